"""Topics, offsets, records and transactions that are not as expected: a clear error, and the rest goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from barnabas import (
    Admin,
    Consumer,
    DeserializationError,
    ErrorCode,
    KafkaError,
    NoOffset,
    NotDelivered,
    Producer,
    RecordTooLarge,
    TopicPartition,
)
from tests.peers import Broker

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(50):
            return await work()

    return asyncio.run(bounded())


async def take(consumer: Consumer, count: int) -> list[Any]:
    """The values of the next records."""
    values: list[Any] = []
    while len(values) < count:
        values += [record.value for record in await consumer.poll(timeout_ms=1000)]
    return values


def test_a_topic_deleted_under_a_consumer_is_told_and_its_other_topics_go_on(cluster: str, topic_name: str) -> None:
    doomed, other = f"{topic_name}-doomed", f"{topic_name}-other"

    async def work() -> None:
        async with Admin(cluster) as admin, Producer(cluster) as producer:
            for topic in (doomed, other):
                await admin.topics.create(topic, partitions=1)
                await producer.send(topic, b"1")
            async with Consumer(cluster, auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition(doomed, 0), TopicPartition(other, 0)])
                assert await take(consumer, 2) == [b"1", b"1"]
                await admin.topics.delete(doomed)
                with pytest.raises(KafkaError, match=doomed) as caught:
                    await take(consumer, 1)
                assert caught.value.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
                await producer.send(other, b"2")
                consumer.unassign(TopicPartition(doomed, 0))
                assert await take(consumer, 1) == [b"2"]

    run(work)


def test_a_name_that_no_topic_can_have_is_told_with_what_it_takes(cluster: str) -> None:
    async def work() -> None:
        async with Producer(cluster) as producer:
            with pytest.raises(KafkaError, match="'orders and more' cannot be the name of a topic; it takes") as caught:
                await producer.send("orders and more", b"1")
            assert not caught.value.retriable

    run(work)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"value": "text"}, "a record's value must be bytes or None, not str; is a serializer missing"),
        ({"value": b"1", "key": "text"}, "a record's key must be bytes or None, not str; is a serializer missing"),
        ({"value": b"1", "headers": [("name", "text")]}, "header must be bytes or None, not str"),
        ({"value": b"1", "headers": {"name": b"1"}}, r"headers must be pairs like .*, not {'name': b'1'}"),
        ({"value": b"1", "headers": [(1, b"1")]}, r"headers must be pairs like .*, not \[\(1, b'1'\)\]"),
        ({"value": b"1", "timestamp": "now"}, "integer"),
        ({"value": b"1", "topic": 5}, "the name of a topic must be text, not int"),
        ({"value": b"1", "topic": "\ud800"}, "surrogates not allowed"),
    ],
    ids=["value", "key", "header", "headers", "name of a header", "timestamp", "topic", "topic that is no UTF-8"],
)
@pytest.mark.parametrize("way", ["send", "post"])
def test_arguments_of_a_wrong_type_are_refused_at_once_and_the_producer_goes_on(
    broker: Broker, topic_name: str, way: str, arguments: dict[str, Any], told: str
) -> None:
    async def work() -> int:
        async with Producer(broker.address) as producer:
            await producer.send(topic_name, b"first")
            with pytest.raises((TypeError, ValueError), match=told):
                await getattr(producer, way)(**{"topic": topic_name, **arguments})
            return (await producer.send(topic_name, b"second")).offset

    assert run(work) == 1


def test_a_consumer_that_has_nothing_to_read_says_so_instead_of_waiting_for_ever(cluster: str) -> None:
    async def work() -> None:
        async with Consumer(cluster) as consumer:
            for read in (consumer.poll(), consumer.poll_batch(), anext(aiter(consumer)), anext(consumer.batches())):
                with pytest.raises(RuntimeError, match="nothing to read; give it topics="):
                    await read

    run(work)


def test_an_offset_out_of_range_names_itself_and_a_seek_mends_it(cluster: str, topic_name: str) -> None:
    partition = TopicPartition(topic_name, 0)

    async def work() -> None:
        async with Producer(cluster) as producer:
            await producer.send(topic_name, b"1")
        async with Consumer(cluster, auto_offset_reset="none") as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 12345)
            with pytest.raises(NoOffset, match="12345") as caught:
                await take(consumer, 1)
            assert not caught.value.retriable
            assert (caught.value.partition, caught.value.offset) == (partition, 12345)
            consumer.seek(partition, 0)
            assert await take(consumer, 1) == [b"1"]

    run(work)


@pytest.mark.parametrize(("reset", "value"), [("earliest", b"1"), ("latest", b"2")])
def test_an_offset_out_of_range_is_reset_where_the_caller_wants_it(
    cluster: str, topic_name: str, reset: Any, value: bytes
) -> None:
    partition = TopicPartition(topic_name, 0)

    async def work() -> None:
        async with Producer(cluster) as producer:
            await producer.send(topic_name, b"1")
            async with Consumer(cluster, auto_offset_reset=reset) as consumer:
                consumer.assign([partition])
                consumer.seek(partition, 12345)
                await consumer.poll(timeout_ms=1000 if reset == "latest" else 0)
                await producer.send(topic_name, b"2")
                assert (await take(consumer, 1))[0] == value

    run(work)


def test_a_record_too_large_for_the_client_is_refused_before_it_is_sent(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        async with Producer(cluster, max_request_size=10_000) as producer:
            with pytest.raises(RecordTooLarge, match="max_request_size=10000") as caught:
                await producer.send(topic_name, b"x" * 20_000)
            assert not caught.value.retriable
            assert (await producer.send(topic_name, b"small")).offset == 0

    run(work)


def test_a_record_too_large_for_the_broker_fails_alone(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        async with Admin(cluster) as admin:
            await admin.topics.create(topic_name, partitions=1, configs={"max.message.bytes": "2000"})
        async with Producer(cluster, linger_ms=100) as producer:
            deliveries = [producer.post(topic_name, b"x" * size) for size in (10, 5000, 20)]
            with pytest.raises(KafkaError, match=topic_name) as caught:
                await deliveries[1]
            assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert not caught.value.retriable
            assert [(await deliveries[0]).offset, (await deliveries[2]).offset] == [0, 1]

    run(work)


def test_no_record_is_dropped_silently_when_a_producer_is_left(cluster: str, topic_name: str) -> None:
    async def post_and_leave() -> None:
        async with Producer(cluster) as producer:
            for size in (10, 5000, 20):
                producer.post(topic_name, b"x" * size)

    async def work() -> None:
        async with Admin(cluster) as admin:
            await admin.topics.create(topic_name, partitions=1, configs={"max.message.bytes": "2000"})
        with pytest.raises(NotDelivered, match="1 record was not delivered") as caught:
            await post_and_leave()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        async with Consumer(cluster, topics=[topic_name], auto_offset_reset="earliest") as consumer:
            assert [len(value) for value in await take(consumer, 2)] == [10, 20]

    run(work)


def test_a_poison_record_is_told_with_its_place_and_the_rest_goes_on(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        async with Producer(cluster) as producer:
            for value in (b"[1]", b"poison", b"[2]"):
                await producer.send(topic_name, value)
        async with Consumer(cluster, auto_offset_reset="earliest", value_deserializer="json") as consumer:
            consumer.assign([TopicPartition(topic_name, 0)])
            values: list[Any] = []
            told: list[tuple[str, int, int, bytes]] = []
            while len(values) + len(told) < 3:
                try:
                    async for record in consumer:
                        values.append(record.value)
                        if len(values) == 2:
                            break
                except DeserializationError as error:
                    told.append((error.field, error.partition, error.offset, error.record.value))
            assert values == [[1], [2]]
            assert told == [("value", 0, 1, b"poison")]

    run(work)


def test_a_poison_record_can_be_put_aside(cluster: str, topic_name: str) -> None:
    aside: list[bytes] = []

    async def work() -> None:
        async with Producer(cluster) as producer:
            for value in (b"[1]", b"poison", b"[2]"):
                await producer.send(topic_name, value)
        async with Consumer(
            cluster,
            auto_offset_reset="earliest",
            value_deserializer="json",
            on_poison_record=lambda error: aside.append(error.record.value),
        ) as consumer:
            consumer.assign([TopicPartition(topic_name, 0)])
            assert await take(consumer, 2) == [[1], [2]]

    run(work)
    assert aside == [b"poison"]


def test_a_fenced_transaction_is_fatal_for_the_older_producer_alone(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        async with Producer(cluster, transactional_id=topic_name) as older:
            async with older.transaction():
                await older.send(topic_name, b"of the older")
            async with Producer(cluster, transactional_id=topic_name) as newer:
                async with newer.transaction():
                    await newer.send(topic_name, b"of the newer")
                with pytest.raises(KafkaError, match=topic_name) as caught:
                    async with older.transaction():
                        await older.send(topic_name, b"fenced")
                assert not caught.value.retriable
                assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
                async with newer.transaction():
                    await newer.send(topic_name, b"of the newer again")
        async with Consumer(cluster, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            consumer.assign([TopicPartition(topic_name, 0)])
            assert await take(consumer, 3) == [b"of the older", b"of the newer", b"of the newer again"]

    run(work)
