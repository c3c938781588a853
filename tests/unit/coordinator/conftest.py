"""One Apache Kafka that judges all coordinators; every script has groups and transactional ids of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers import QUICK_JVM, KafkaServer

MAX_CLASSIC_SIZE = 4
MAX_CONSUMER_SIZE = 6
MIN_SESSION_MS = 100
MAX_SESSION_MS = 3_600_000

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.min.session.timeout.ms": str(MIN_SESSION_MS),
    "group.max.session.timeout.ms": str(MAX_SESSION_MS),
    "group.max.size": str(MAX_CLASSIC_SIZE),
    "group.consumer.max.size": str(MAX_CONSUMER_SIZE),
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.migration.policy": "upgrade",  # the state machine is asked for nothing but consumer groups
}


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path_factory.mktemp("judge"), SETTINGS, jvm=(*QUICK_JVM, "-Xmx512m")) as server:
        yield server
