"""Fixtures for tests that talk to a running broker.

`BARNABAS_TEST_PEER=kafka` puts Apache Kafka in Barnabas's place: a test that fails there too asks for something that
Kafka does not do.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Iterator

import confluent_kafka.admin
import pytest
from hypothesis import HealthCheck, settings

from tests import grouping
from tests.peers import QUICK_JVM, BarnabasServer, Broker, KafkaServer, NewTopic, collect_sockets, eventually
from tests.progress import Progress

# A shell's background job ignores Ctrl-C, and so would every program that it starts: those that tests interrupt too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of processes start here, and each would compile every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long examples take to be made and run says more of the machine than of the test.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config), "progress")


def pytest_itemcollected(item: pytest.Item) -> None:
    grouping.name_group(item)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    grouping.check_groups_are_used(config, items)
    grouping.put_long_groups_first(items)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the whole run: a test keeps to topics of its own names."""
    directory = tmp_path_factory.mktemp("broker")
    server: Broker
    if os.environ.get("BARNABAS_TEST_PEER") == "kafka":
        server = KafkaServer(directory / "kafka", jvm=(*QUICK_JVM, "-Xmx1G"))
    else:
        server = BarnabasServer(directory / "barnabas")
    with server:
        yield server


@pytest.fixture
def topic_name() -> str:
    """A name that no other test uses; the topic is not there yet."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_topic(broker: Broker) -> NewTopic:
    """Makes topics, and waits until they have leaders."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.address})

    def create(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        wanted = confluent_kafka.admin.NewTopic(name, partitions, 1, config=config or {})
        admin.create_topics([wanted])[name].result(20)

        def leaders() -> int:
            topic = admin.list_topics(timeout=20).topics.get(name)
            return sum(partition.leader >= 0 for partition in topic.partitions.values()) if topic else 0

        eventually(leaders, partitions)
        return name

    return create


@pytest.fixture
def forgotten_sockets() -> Iterator[None]:
    yield
    collect_sockets()
