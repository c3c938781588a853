"""Coordinators are where their partition is led: groups and transactions outlive the broker that coordinated them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.wire.messages import k10_find_coordinator as k10
from tests.broker.wire_client import Client
from tests.cluster.three_brokers import NUMBERS, Cluster, three_brokers
from tests.peers import kafka_tool

PARTITIONS = 3
GROUP, TRANSACTION = 0, 1
SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@pytest.fixture
def cluster(tmp_path: Path, topic_name: str) -> Iterator[Cluster]:
    with three_brokers(tmp_path, SETTINGS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(topic_name, PARTITIONS, len(NUMBERS))])[topic_name].result(60)
        yield running


def coordinator(cluster: Cluster, kind: int, key: str) -> int:
    with Client(cluster.address(next(iter(cluster.brokers)))) as client:
        request = k10.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        (found,) = client.call(request, 6).coordinators
    assert found.error_code == 0
    node: int = found.node_id
    return node


def consumer_of(cluster: Cluster, topic: str, **settings: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "log_level": "0",
            **settings,
        }
    )
    consumer.subscribe([topic])
    return consumer


def retried(act: Callable[[], object], timeout: float = 30) -> None:
    """As an application does with an error that tells it to try again."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            act()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def take(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + 40
    while len(found) < count and time.monotonic() < deadline:
        found += [int(message.value()) for message in consumer.consume(count - len(found), 1) if not message.error()]
    return found


def test_a_group_goes_on_when_its_coordinator_is_killed(cluster: Cluster, topic_name: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    consumer = consumer_of(cluster, topic_name)

    def write(first: int) -> None:
        for number in range(first, first + 30):
            producer.produce(topic_name, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(30) == 0

    write(0)
    assert sorted(take(consumer, 30)) == list(range(30))
    retried(lambda: consumer.commit(asynchronous=False))
    cluster.kill(coordinator(cluster, GROUP, topic_name))
    write(30)
    assert sorted(take(consumer, 30)) == list(range(30, 60))
    retried(lambda: consumer.commit(asynchronous=False))
    consumer.close()
    write(60)
    after = consumer_of(cluster, topic_name)  # finds what was committed before the kill and after it
    assert sorted(take(after, 30)) == list(range(60, 90))
    after.close()


def test_a_transaction_ends_as_decided_when_its_coordinator_is_killed(cluster: Cluster, topic_name: str) -> None:
    settings = {"transactional.id": topic_name, "transaction.timeout.ms": "60000", "log_level": "0"}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    retried(lambda: producer.init_transactions(60))
    expected: list[int] = []
    for round_, end in enumerate(("commit", "abort", "kill", "commit")):
        producer.begin_transaction()
        numbers = range(30 * round_, 30 * round_ + 30)
        for number in numbers:
            producer.produce(topic_name, b"%d" % number, partition=number % PARTITIONS)
        if end == "kill":
            cluster.kill(coordinator(cluster, TRANSACTION, topic_name))
        if end == "abort":
            retried(lambda: producer.abort_transaction(30))
        else:
            retried(lambda: producer.commit_transaction(30))
            expected += numbers
    consumer = consumer_of(cluster, topic_name, **{"isolation.level": "read_committed"})
    consumer.unsubscribe()
    consumer.assign([TopicPartition(topic_name, partition, 0) for partition in range(PARTITIONS)])
    assert sorted(take(consumer, len(expected))) == expected
    consumer.close()


def test_kafkas_producer_writes_transactions_over_all_brokers(cluster: Cluster, topic_name: str) -> None:
    """Of the second protocol: who leads a partition has it added to the transaction, wherever that is coordinated."""
    for transactional_id in ("a", "b", "c"):  # each with another coordinator
        kafka_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic_name, "--num-records", "300", "--record-size", "8", "--throughput", "-1"),
            *("--transactional-id", transactional_id, "--transaction-duration-ms", "20"),
            *("--command-property", f"bootstrap.servers={cluster.bootstrap}"),
        )
    assert len({coordinator(cluster, TRANSACTION, each) for each in ("a", "b", "c")}) == len(NUMBERS)
    consumer = consumer_of(cluster, topic_name, **{"isolation.level": "read_committed"})
    values = [message for _ in range(900) for message in consumer.consume(1, 60)]
    assert len(values) == 900
    consumer.close()
