"""A broker for tests of groups and transactions: its sessions time out soon, so that a dead member is missed soon."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.groups.members import SESSION_MS, Group
from tests.peers import QUICK_JVM, BarnabasServer, Broker, KafkaServer, NewTopic

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}

StartBroker = Callable[[Path], Broker]


@pytest.fixture(scope="session")
def start_broker() -> StartBroker:
    """Starts a broker on a directory, or starts it again, on the port that it had."""
    ports: dict[Path, int] = {}

    def start(directory: Path) -> Broker:
        port = ports.get(directory, 0)
        server: Broker
        if os.environ.get("BARNABAS_TEST_PEER") == "kafka":
            server = KafkaServer(directory, SETTINGS, jvm=(*QUICK_JVM, "-Xmx1G"), port=port)
        else:
            server = BarnabasServer(directory, SETTINGS, port=port)
        ports[directory] = int(server.address.rpartition(":")[2])
        return server

    return start


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, start_broker: StartBroker) -> Iterator[Broker]:
    """One broker for all these tests: a test keeps to topics and groups of its own names."""
    with start_broker(tmp_path_factory.mktemp("broker") / "data") as server:
        yield server


@pytest.fixture
def new_group(broker: Broker, new_topic: NewTopic, tmp_path: Path) -> Iterator[Callable[[int], Group]]:
    """Makes groups of processes over a new topic, and leaves none of them running."""
    groups: list[Group] = []

    def create(partitions: int) -> Group:
        groups.append(Group(broker.address, new_topic(partitions), partitions, tmp_path))
        return groups[-1]

    yield create
    for group in groups:
        group.end()
