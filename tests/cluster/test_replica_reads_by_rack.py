"""Consumers that say where they are read from the replica there; whose bytes they were, the brokers' metrics tell."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from tests.broker.metrics import Metrics
from tests.cluster.three_brokers import NUMBERS, Cluster, leaders
from tests.peers import eventually, free_port, kafka_tool

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TOPICS = "org.apache.kafka.tools.TopicCommand"
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
VALUES = [b"%04d %s" % (number, bytes(500)) for number in range(400)]
SIZE = sum(len(value) for value in VALUES)


class Racks(NamedTuple):
    """Three brokers, each in a rack of its own."""

    cluster: Cluster
    metrics: dict[int, Metrics]

    def consumed_bytes(self, broker: int, role: str) -> float:
        return self.metrics[broker].value("barnabas_fetched_bytes_total", reader="consumer", role=role)

    def settings(self, reads_in: int) -> dict[str, str]:
        rack = {"client.rack": f"rack-{reads_in}", "group.id": "unused", "log_level": "0"}
        return {"bootstrap.servers": self.cluster.bootstrap, **rack}


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racks]:
    cluster = Cluster(tmp_path_factory.mktemp("racks"), {"replica.selector.class": SELECTOR})
    metrics = {number: Metrics(free_port()) for number in NUMBERS}
    try:
        for number in NUMBERS:
            port = str(metrics[number].port)
            cluster.start(number, {"broker.rack": f"rack-{number}", "barnabas.metrics.port": port})
        yield Racks(cluster, metrics)
    finally:
        cluster.close()


@pytest.fixture
def replicated(racks: Racks, topic_name: str) -> str:
    """A topic with one partition on all brokers."""
    admin = AdminClient({"bootstrap.servers": racks.cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic_name, 1, len(NUMBERS))])[topic_name].result(60)
    return topic_name


def a_follower(racks: Racks, topic: str) -> int:
    leader = leaders(racks.cluster.address(1), topic)[0]
    return next(number for number in NUMBERS if number != leader)


def write(racks: Racks, topic: str, **settings: str) -> Producer:
    producer = Producer({"bootstrap.servers": racks.cluster.bootstrap, "acks": "all", "log_level": 0, **settings})
    if settings:
        producer.init_transactions(60)
        producer.begin_transaction()
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    return producer


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), 60)
        assert messages, f"{len(found)} of {count} came"
        found += [message.value() or b"" for message in messages]
    return found


def test_librdkafka_reads_from_the_replica_in_its_rack(racks: Racks, replicated: str) -> None:
    write(racks, replicated)
    follower = a_follower(racks, replicated)
    before = racks.consumed_bytes(follower, "follower")
    consumer = Consumer(racks.settings(follower))
    consumer.assign([TopicPartition(replicated, 0, 0)])
    assert read(consumer, len(VALUES)) == VALUES
    write(racks, replicated)  # and goes on there with what comes
    assert read(consumer, len(VALUES)) == VALUES
    consumer.close()
    assert racks.consumed_bytes(follower, "follower") - before >= 2 * SIZE


def test_kafkas_consumer_reads_from_the_replica_in_its_rack(racks: Racks, replicated: str) -> None:
    write(racks, replicated)
    follower = a_follower(racks, replicated)
    before = racks.consumed_bytes(follower, "follower")
    consumed = kafka_tool(
        CONSUMER,
        *("--bootstrap-server", racks.cluster.bootstrap, "--topic", replicated, "--partition", "0"),
        *("--offset", "earliest", "--max-messages", str(len(VALUES)), "--timeout-ms", "30000"),
        *("--command-property", f"client.rack=rack-{follower}"),
    )
    numbers = [int(number) for number in re.findall(r"^(\d{4}) ", consumed, re.MULTILINE)]
    assert numbers == list(range(len(VALUES)))
    assert racks.consumed_bytes(follower, "follower") - before >= SIZE


def test_a_follower_shows_committed_transactions_alone(racks: Racks, replicated: str) -> None:
    producer = write(racks, replicated, **{"transactional.id": replicated})
    producer.abort_transaction(60)
    producer.begin_transaction()
    producer.produce(replicated, b"committed", partition=0)
    producer.commit_transaction(60)
    producer.begin_transaction()
    producer.produce(replicated, b"open", partition=0)
    assert producer.flush(60) == 0
    follower = a_follower(racks, replicated)
    before = racks.consumed_bytes(follower, "follower")
    consumer = Consumer({**racks.settings(follower), "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(replicated, 0, 0)])
    assert read(consumer, 1) == [b"committed"]
    assert consumer.consume(1, 1) == []
    producer.commit_transaction(60)
    assert read(consumer, 1) == [b"open"]
    consumer.close()
    assert racks.consumed_bytes(follower, "follower") > before


def test_a_rack_without_a_replica_and_no_rack_are_served_by_the_leader(racks: Racks, replicated: str) -> None:
    write(racks, replicated)
    leader = leaders(racks.cluster.address(1), replicated)[0]
    for rack in ({"client.rack": "another"}, {}):
        before = racks.consumed_bytes(leader, "leader")
        settings = {"bootstrap.servers": racks.cluster.bootstrap, "group.id": "unused", "log_level": "0"}
        consumer = Consumer({**settings, **rack})
        consumer.assign([TopicPartition(replicated, 0, 0)])
        assert read(consumer, len(VALUES)) == VALUES
        consumer.close()
        assert racks.consumed_bytes(leader, "leader") - before >= SIZE


def test_a_consumer_goes_on_elsewhere_when_its_replica_dies(racks: Racks, replicated: str) -> None:
    write(racks, replicated)
    follower = a_follower(racks, replicated)
    consumer = Consumer({**racks.settings(follower), "topic.metadata.refresh.interval.ms": "1000"})
    consumer.assign([TopicPartition(replicated, 0, 0)])
    assert read(consumer, len(VALUES)) == VALUES
    racks.cluster.kill(follower)
    try:
        write(racks, replicated)
        assert read(consumer, len(VALUES)) == VALUES
    finally:
        consumer.close()
        port = str(racks.metrics[follower].port)
        racks.cluster.start(follower, {"broker.rack": f"rack-{follower}", "barnabas.metrics.port": port})
        eventually(lambda: in_sync(racks, replicated), set(NUMBERS), timeout=30)


def in_sync(racks: Racks, topic: str) -> set[int]:
    described = kafka_tool(TOPICS, "--bootstrap-server", racks.cluster.bootstrap, "--describe", "--topic", topic)
    (isr,) = re.findall(r"Isr: ([\d,]+)", described)
    return {int(number) for number in isr.split(",")}


def test_our_consumer_is_read_from_its_rack_too(racks: Racks, replicated: str) -> None:
    write(racks, replicated)
    follower = a_follower(racks, replicated)
    before = racks.consumed_bytes(follower, "follower")

    async def consume() -> list[bytes]:
        found: list[bytes] = []
        async with (
            asyncio.timeout(60),
            barnabas.Consumer(
                racks.cluster.bootstrap,
                topics=[replicated],
                auto_offset_reset="earliest",
                client_rack=f"rack-{follower}",
            ) as consumer,
        ):
            while len(found) < len(VALUES):
                found += [record.value for record in await consumer.poll(20_000)]
        return found

    assert asyncio.run(consume()) == VALUES
    assert racks.consumed_bytes(follower, "follower") - before >= SIZE
