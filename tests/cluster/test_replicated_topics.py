"""Topics with three replicas, on three processes: a leader that is killed takes nothing acknowledged with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.wire.messages import k03_metadata
from tests.broker.wire_client import Client
from tests.cluster.three_brokers import METADATA_VERSION, NUMBERS, Cluster, leaders, three_brokers
from tests.peers import eventually, kafka_tool

PARTITIONS = 3
RECORDS = 300


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with three_brokers(tmp_path, {"min.insync.replicas": "2"}) as running:
        yield running


def in_sync(address: str, topic: str) -> list[set[int]]:
    request = k03_metadata.MetadataRequest([k03_metadata.MetadataRequestTopic(name=topic)])
    with Client(address) as client:
        (found,) = client.call(request, METADATA_VERSION).topics
    return [set(each.isr_nodes) for each in sorted(found.partitions, key=lambda each: each.partition_index)]


def write(producer: Producer, topic: str, first: int) -> None:
    """RECORDS numbers, all acknowledged by the in-sync replicas."""
    failures: list[object] = []
    for number in range(first, first + RECORDS):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            callback=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert failures == []


def read(cluster: Cluster, topic: str, partition: int, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = [int(message.value()) for message in consumer.consume(count, 20)]
    consumer.close()
    return found


def segments(directory: Path, number: int, topic: str, partition: int) -> list[Path]:
    return sorted((directory / f"broker-{number}").glob(f"**/{topic}-{partition}/*.log"))


def test_a_killed_leader_loses_nothing_and_comes_back_with_the_same_bytes(
    cluster: Cluster, tmp_path: Path, topic_name: str
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic_name, PARTITIONS, len(NUMBERS))])[topic_name].result(10)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
    )
    write(producer, topic_name, 0)
    victim = leaders(cluster.address(1), topic_name)[0]
    survivor = next(number for number in NUMBERS if number != victim)
    cluster.kill(victim)
    write(producer, topic_name, RECORDS)
    assert victim not in leaders(cluster.address(survivor), topic_name).values()
    cluster.start(victim)
    eventually(lambda: in_sync(cluster.address(survivor), topic_name), [set(NUMBERS)] * PARTITIONS)
    write(producer, topic_name, 2 * RECORDS)
    for partition in range(PARTITIONS):
        expected = list(range(partition, 3 * RECORDS, PARTITIONS))
        assert read(cluster, topic_name, partition, len(expected)) == expected
        copies = [segments(tmp_path, number, topic_name, partition) for number in NUMBERS]
        contents = {b"".join(path.read_bytes() for path in paths) for paths in copies}
        assert len(contents) == 1
    files = ",".join(str(path) for path in segments(tmp_path, victim, topic_name, 0))
    dumped = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", files, "--deep-iteration")
    assert "isvalid: false" not in dumped
    assert dumped.count("| offset: ") == RECORDS
