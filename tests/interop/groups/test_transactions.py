"""Transactions with confluent-kafka: what commits is seen, what aborts is not, and an older producer is fenced."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.peers import Broker, NewTopic, eventually

TIMEOUT = 20.0


@pytest.fixture
def address(broker: Broker) -> str:
    return broker.address


def transactional(address: str, transactional_id: str | None = None, **settings: object) -> Producer:
    """A producer that has begun a transaction."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": transactional_id or f"x-{uuid.uuid4().hex[:12]}",
            "linger.ms": 0,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    return producer


def produce(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT) == 0


def consume(address: str, topic: str, count: int, isolation: str = "read_committed") -> list[str]:
    """The values of partition 0: as many as wanted, and what else comes within a moment."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[Message] = []
        deadline = time.monotonic() + TIMEOUT
        while len(messages) < count and time.monotonic() < deadline:
            messages += consumer.consume(count, 0.2)
        messages += consumer.consume(1, 0.3)
        assert all(message.error() is None for message in messages)
        return [(message.value() or b"").decode() for message in messages]
    finally:
        consumer.close()


def end_offset(address: str, topic: str, isolation: IsolationLevel) -> int:
    partition = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": address})
    found = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=isolation)[partition].result(10)
    offset: int = found.offset
    return offset


def committed(address: str, group: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": address})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (found,) = admin.list_consumer_group_offsets([wanted])[group].result(10).topic_partitions
    offset: int = found.offset
    return offset


def error_of(raised: pytest.ExceptionInfo[KafkaException]) -> KafkaError:
    error: KafkaError = raised.value.args[0]
    return error


def test_records_of_a_transaction_are_seen_with_its_commit(address: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = transactional(address)
    produce(producer, topic, "a", "b")

    assert consume(address, topic, 0) == []
    assert consume(address, topic, 2, "read_uncommitted") == ["a", "b"]
    assert end_offset(address, topic, IsolationLevel.READ_COMMITTED) == 0
    assert end_offset(address, topic, IsolationLevel.READ_UNCOMMITTED) == 2

    producer.commit_transaction(TIMEOUT)
    assert consume(address, topic, 2) == ["a", "b"]
    assert end_offset(address, topic, IsolationLevel.READ_COMMITTED) == 3  # and the marker


def test_records_of_an_aborted_transaction_are_never_seen(address: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = transactional(address)
    for number in range(6):
        produce(producer, topic, f"{number} a", f"{number} b")
        if number % 2:
            producer.commit_transaction(TIMEOUT)
        else:
            producer.abort_transaction(TIMEOUT)
        producer.begin_transaction()
    producer.abort_transaction(TIMEOUT)

    assert consume(address, topic, 6) == ["1 a", "1 b", "3 a", "3 b", "5 a", "5 b"]
    everything = consume(address, topic, 12, "read_uncommitted")
    assert everything == [f"{number} {letter}" for number in range(6) for letter in "ab"]


def test_committed_records_of_one_wait_for_the_open_transaction_of_another(address: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    slow, quick = transactional(address), transactional(address)
    produce(slow, topic, "slow")
    produce(quick, topic, "quick")
    quick.commit_transaction(TIMEOUT)
    assert consume(address, topic, 0) == []

    slow.abort_transaction(TIMEOUT)
    assert consume(address, topic, 1) == ["quick"]


def test_a_transaction_spans_topics_and_partitions(address: str, new_topic: NewTopic) -> None:
    first, second = new_topic(3), new_topic(3)
    producer = transactional(address)
    for topic in (first, second):
        for partition in range(3):
            produce(producer, topic, topic, partition=partition)
    assert consume(address, first, 0) == consume(address, second, 0) == []

    producer.commit_transaction(TIMEOUT)
    assert (consume(address, first, 1), consume(address, second, 1)) == ([first], [second])


def test_offsets_become_visible_with_the_commit_and_vanish_with_the_abort(address: str, new_topic: NewTopic) -> None:
    source, target = new_topic(), new_topic()
    plain = Producer({"bootstrap.servers": address})
    produce(plain, source, *"abcdef")
    group = f"g-{uuid.uuid4().hex[:12]}"
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([source])
        messages: list[Message] = []
        while len(messages) < 6:
            messages += consumer.consume(6 - len(messages), TIMEOUT)
        producer = transactional(address)

        def send(offset: int) -> None:
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition(source, 0, offset)], metadata, TIMEOUT)

        produce(producer, target, "three")
        send(3)
        producer.commit_transaction(TIMEOUT)
        eventually(lambda: committed(address, group, source), 3)

        producer.begin_transaction()
        produce(producer, target, "five")
        send(5)
        producer.abort_transaction(TIMEOUT)
        assert committed(address, group, source) == 3
        assert consume(address, target, 1) == ["three"]

        producer.begin_transaction()
        send(6)
        assert committed(address, group, source) == 3
        producer.commit_transaction(TIMEOUT)
        eventually(lambda: committed(address, group, source), 6)
    finally:
        consumer.close()


def test_a_second_producer_with_the_same_id_fences_the_first_and_aborts_its_transaction(
    address: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    name = f"x-{uuid.uuid4().hex[:12]}"
    zombie = transactional(address, name)
    produce(zombie, topic, "zombie")
    successor = transactional(address, name)
    produce(successor, topic, "successor")

    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(TIMEOUT)
    assert error_of(raised).fatal()
    assert error_of(raised).code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)

    successor.commit_transaction(TIMEOUT)
    assert consume(address, topic, 1) == ["successor"]
    assert consume(address, topic, 2, "read_uncommitted") == ["zombie", "successor"]


def test_a_fenced_producer_cannot_produce(address: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    name = f"x-{uuid.uuid4().hex[:12]}"
    zombie = transactional(address, name)
    produce(zombie, topic, "before")
    successor = transactional(address, name)

    with pytest.raises(KafkaException) as raised:
        produce(zombie, topic, "after")
    assert error_of(raised).code() == KafkaError._FENCED
    successor.abort_transaction(TIMEOUT)
    assert consume(address, topic, 1, "read_uncommitted") == ["before"]


def test_a_transaction_that_takes_too_long_is_aborted(address: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = transactional(address, transaction_timeout_ms=5000, message_timeout_ms=5000)
    produce(producer, topic, "late")
    eventually(lambda: end_offset(address, topic, IsolationLevel.READ_COMMITTED), 2, timeout=30)
    assert consume(address, topic, 0) == []

    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(TIMEOUT)
    assert error_of(raised).fatal() or error_of(raised).txn_requires_abort()


def test_a_transaction_time_out_over_the_limit_is_refused(address: str) -> None:
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": "too-long", "transaction.timeout.ms": 2_000_000_000}
    )
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(TIMEOUT)
    assert error_of(raised).code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
