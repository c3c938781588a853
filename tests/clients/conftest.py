"""The client's clusters: Barnabas, and Apache Kafka as the outside judge."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.peers import QUICK_JVM, BarnabasServer, Broker, KafkaServer

GROUP_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
"""Groups that learn soon of what happens to their members."""

ACCESS_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Access control can be administered, and concerns nobody."""

SHARE_SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Share groups work on a single broker."""


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("kafka") / "kafka"
    settings = {
        **GROUP_SETTINGS,
        **ACCESS_SETTINGS,
        **SHARE_SETTINGS,
        "log.dirs": f"{directory / 'data'},{directory / 'other'}",
    }
    with KafkaServer(directory, settings, jvm=(*QUICK_JVM, "-Xmx512m")) as server:
        yield server


@pytest.fixture(params=["barnabas", "kafka"])
def cluster(request: pytest.FixtureRequest) -> str:
    """The address of a broker; every test that takes it runs on both."""
    if request.param == "barnabas" and os.environ.get("BARNABAS_TEST_PEER") == "kafka":
        pytest.skip("BARNABAS_TEST_PEER=kafka: Apache Kafka stands in Barnabas's place")
    server: Broker = request.getfixturevalue("broker" if request.param == "barnabas" else "kafka")
    return server.address


@pytest.fixture(scope="session")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with BarnabasServer(tmp_path_factory.mktemp("group-broker") / "barnabas", GROUP_SETTINGS) as server:
        yield server


@pytest.fixture(params=["barnabas", "kafka"])
def group_cluster(request: pytest.FixtureRequest) -> str:
    """The same with brokers whose groups react quickly."""
    server: Broker = request.getfixturevalue("group_broker" if request.param == "barnabas" else "kafka")
    return server.address
