"""Records reach Barnabas and Apache Kafka as they were sent, whichever way; librdkafka reads them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import confluent_kafka
import pytest

from barnabas import Admin, BufferFull, KafkaError, NewRecord, Producer
from barnabas.client.client import Client, connect
from barnabas.client.errors import Abandoned, NotDelivered, NotOpen, RecordTooLarge
from barnabas.client.options import WrongOption
from barnabas.core.errors import ErrorCode

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await work()

    return asyncio.run(bounded())


async def create(cluster: str, topic: str, partitions: int = 1, **configs: str) -> None:
    async with Admin(cluster) as admin:
        wanted = {name.replace("_", "."): value for name, value in configs.items()}
        await admin.topics.create(topic, partitions=partitions, configs=wanted)


def read(cluster: str, topic: str, count: int) -> dict[int, list[confluent_kafka.Message]]:
    """So many messages by partition, and not one more."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster, "group.id": "unused"})
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        ends = {
            number: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, number), timeout=60)[1]
            for number in partitions
        }
        assert sum(ends.values()) == count
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
        found: dict[int, list[confluent_kafka.Message]] = {number: [] for number in partitions}
        deadline = time.monotonic() + 20
        while sum(map(len, found.values())) < count and time.monotonic() < deadline:
            for message in consumer.consume(1000, 1):
                assert message.error() is None
                found[message.partition()].append(message)
        return found
    finally:
        consumer.close()


def values(messages: list[confluent_kafka.Message]) -> list[bytes]:
    return [message.value() for message in messages]


def test_a_record_arrives_with_all_that_it_was_sent_with(cluster: str, topic_name: str) -> None:
    moment = datetime(2026, 7, 4, 12, 30, 0, 250_000, UTC)

    async def work() -> None:
        await create(cluster, topic_name, 3)
        async with Producer(cluster, key_serializer="str", value_serializer="json") as producer:
            sent = await producer.send(
                topic_name, {"a": [1]}, key="ü", headers=[("h", b"1"), ("n", None)], partition=2, timestamp=moment
            )
            assert (sent.topic, sent.partition, sent.offset) == (topic_name, 2, 0)
            assert sent.timestamp_ms == moment.timestamp() * 1000
            await producer.send(topic_name, None, partition=2, timestamp=1234)
            before = time.time() * 1000
            now = await producer.send(topic_name, "x", partition=2)
            assert before - 1 <= now.timestamp_ms <= time.time() * 1000

    run(work)
    first, second, _ = read(cluster, topic_name, 3)[2]
    assert (first.key(), first.value(), first.headers()) == ("ü".encode(), b'{"a":[1]}', [("h", b"1"), ("n", None)])
    assert first.timestamp()[1] == moment.timestamp() * 1000
    assert (second.key(), second.value(), second.timestamp()[1]) == (None, None, 1234)


def test_many_are_sent_in_their_order_each_with_its_place(cluster: str, topic_name: str) -> None:
    async def work() -> list[int]:
        await create(cluster, topic_name, 2)
        async with Producer(cluster, value_serializer="str") as producer:
            records = [NewRecord(str(number), partition=1, headers=[("n", b"")]) for number in range(3000)]
            landed = await producer.send_many(topic_name, records)
            landed += await producer.send_many(topic_name, ["plain"])
        return [each.offset for each in landed if each.partition == 1]

    offsets = run(work)
    assert offsets[:3000] == list(range(3000))
    found = read(cluster, topic_name, 3001)
    assert values(found[1])[:3000] == [b"%d" % number for number in range(3000)]


def test_order_holds_with_five_requests_in_flight(cluster: str, topic_name: str) -> None:
    async def work() -> int:
        await create(cluster, topic_name)
        most = 0
        async with Producer(cluster, batch_size=500, linger_ms=0) as producer:
            for number in range(5000):
                producer.post(topic_name, b"%d" % number)
            while producer.metrics().records_sent < 5000:
                most = max(most, producer.metrics().batches_in_flight)
                await asyncio.sleep(0)
        return most

    assert run(work) == 5
    assert values(read(cluster, topic_name, 5000)[0]) == [b"%d" % number for number in range(5000)]


def test_broken_connections_cost_neither_a_record_nor_the_order(cluster: str, topic_name: str) -> None:
    def cut(client: Client) -> None:
        for channel in list(client.connections._channels.values()):
            channel.close()

    async def work() -> int:
        await create(cluster, topic_name, 2)
        async with connect(cluster) as client, Producer(client, batch_size=1000, linger_ms=1) as producer:
            for number in range(4000):
                producer.post(topic_name, b"%d" % number, partition=number % 2)
                if number % 300 == 0:
                    while not producer.metrics().batches_in_flight:  # noqa: ASYNC110  # the producer tells nobody
                        await asyncio.sleep(0)
                    cut(client)
                elif number % 50 == 0:
                    await asyncio.sleep(0.002)
            await producer.flush()
            return producer.metrics().batches_repeated

    assert run(work) > 0
    found = read(cluster, topic_name, 4000)
    for partition in (0, 1):
        assert values(found[partition]) == [b"%d" % number for number in range(partition, 4000, 2)]


def test_batches_of_many_partitions_share_requests(cluster: str, topic_name: str) -> None:
    async def work() -> int:
        await create(cluster, topic_name, 20)
        async with Producer(cluster, linger_ms=20) as producer:
            sent = []
            for _ in range(2):  # the first time some partitions may have no leader yet
                for partition in range(20):
                    producer.post(topic_name, b"x", partition=partition)
                await producer.flush()
                sent.append(producer.metrics().requests_sent)
            return sent[1] - sent[0]

    assert run(work) == 1
    assert all(read(cluster, topic_name, 40).values())


def test_a_batch_that_is_too_large_for_the_topic_is_split(cluster: str, topic_name: str) -> None:
    async def work() -> list[int]:
        await create(cluster, topic_name, max_message_bytes="2000")
        async with Producer(cluster, batch_size=16_384, linger_ms=50) as producer:
            posted = [producer.post(topic_name, b"%3d" % number * 40) for number in range(100)]
            return [(await delivery).offset for delivery in posted]

    assert run(work) == list(range(100))
    assert values(read(cluster, topic_name, 100)[0]) == [b"%3d" % number * 40 for number in range(100)]


def test_a_record_that_is_too_large_says_so_and_harms_no_other(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        await create(cluster, topic_name, max_message_bytes="2000")
        async with Producer(cluster, max_request_size=10_000) as producer:
            with pytest.raises(RecordTooLarge, match="max_request_size=10000"):
                producer.post(topic_name, b"x" * 10_000)
            posted = [producer.post(topic_name, value) for value in (b"1", b"x" * 3000, b"2", b"3")]
            with pytest.raises(RecordTooLarge, match=r"raise its max\.message\.bytes"):
                await posted[1]
            assert [(await posted[index]).offset for index in (0, 2, 3)] == [0, 1, 2]
            await producer.send(topic_name, b"4")

    run(work)
    assert values(read(cluster, topic_name, 4)[0]) == [b"1", b"2", b"3", b"4"]


def test_a_full_buffer_refuses_posts_until_there_is_room(cluster: str, topic_name: str) -> None:
    async def work() -> int:
        await create(cluster, topic_name)
        refusals = 0
        async with Producer(cluster, batch_size=1000, buffer_memory=5000) as producer:
            await producer.partition_count(topic_name)
            for number in range(1000):
                while True:
                    try:
                        producer.post(topic_name, b"%d" % number)
                        break
                    except BufferFull:
                        refusals += 1
                        await producer.room()
                assert producer.metrics().buffered_bytes <= 5000
        return refusals

    assert run(work) > 0
    assert values(read(cluster, topic_name, 1000)[0]) == [b"%d" % number for number in range(1000)]


def test_sends_that_wait_for_room_all_arrive(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        await create(cluster, topic_name)
        async with Producer(cluster, batch_size=300, buffer_memory=1000, linger_ms=0) as producer:
            await asyncio.gather(*(producer.send(topic_name, value) for value in sent))

    sent = [b"%03d" % number * 20 for number in range(200)]
    run(work)
    assert sorted(values(read(cluster, topic_name, 200)[0])) == sent


def test_records_wait_for_a_topic_that_is_created_by_them(cluster: str, topic_name: str) -> None:
    async def work() -> list[int]:
        async with Producer(cluster) as producer:
            posted = [producer.post(topic_name, b"%d" % number) for number in range(10)]
            assert posted[0].partition.partition == -1
            await producer.flush()
            return [(await delivery).offset for delivery in posted]

    assert run(work) == list(range(10))
    assert values(read(cluster, topic_name, 10)[0]) == [b"%d" % number for number in range(10)]


def test_a_topic_that_cannot_be_fails_at_once(cluster: str) -> None:
    async def work() -> None:
        async with Producer(cluster) as producer:
            with pytest.raises(KafkaError) as caught:
                await producer.send("no/such topic", b"x")
            assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
            assert not caught.value.retriable

    run(work)


def test_a_partition_that_is_not_there_is_told(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        await create(cluster, topic_name, 2)
        async with Producer(cluster) as producer:
            for _ in range(2):  # while the topic is unknown, and after
                with pytest.raises(KafkaError, match="has no partition 7; it has 2, counted from 0"):
                    await producer.send(topic_name, b"x", partition=7)

    run(work)


def test_a_callers_function_chooses_the_partition(cluster: str, topic_name: str) -> None:
    def choose(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        assert (topic, key) == (topic_name, b"k")
        return int(value or b"0") % count

    async def work() -> list[int]:
        await create(cluster, topic_name, 3)
        async with Producer(cluster, partitioner=choose) as producer:
            landed = await producer.send_many(topic_name, [NewRecord(b"%d" % number, b"k") for number in range(6)])
            return [each.partition for each in landed]

    assert run(work) == [0, 1, 2, 0, 1, 2]


def test_leaving_raises_what_nobody_was_told(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        await create(cluster, topic_name, max_message_bytes="2000")
        async with Producer(cluster) as producer:
            producer.post(topic_name, b"x" * 3000)
            producer.post(topic_name, b"fits")

    with pytest.raises(NotDelivered, match=r"1 record was not delivered: a record of 30\d\d bytes") as caught:
        run(work)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    read(cluster, topic_name, 1)


def test_leaving_by_an_exception_fails_every_waiting_handle(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        await create(cluster, topic_name)
        waiting: list[asyncio.Future[Any]] = []

        async def leave() -> None:
            async with Producer(cluster, linger_ms=60_000) as producer:
                await producer.partition_count(topic_name)
                waiting.extend(asyncio.ensure_future(producer.send(topic_name, b"x")) for _ in range(3))
                await asyncio.sleep(0.05)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await leave()
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, Abandoned)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(work())


def test_a_cancelled_send_may_still_deliver(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        await create(cluster, topic_name)
        async with Producer(cluster, linger_ms=100) as producer:
            await producer.partition_count(topic_name)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await producer.send(topic_name, b"impatient")
            assert (await producer.send(topic_name, b"patient")).offset == 1

    run(work)
    assert values(read(cluster, topic_name, 2)[0]) == [b"impatient", b"patient"]


def test_a_wrong_type_is_refused_before_anything_is_sent(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        async with Producer(cluster) as producer:
            for _ in range(2):
                with pytest.raises(TypeError, match="value must be bytes or None, not str; is a serializer missing"):
                    producer.post(topic_name, "text")
                await producer.send(topic_name, b"bytes")

    run(work)
    read(cluster, topic_name, 2)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"acks": 2}, "acks=2 is none of"),
        ({"acks": 1, "enable_idempotence": True}, "needs acks='all'"),
        ({"max_in_flight_requests_per_connection": 6, "enable_idempotence": True}, "of 5 at most"),
        ({"compression_type": "zip"}, "compression_type='zip' is none of"),
        ({"linger_ms": -1}, "linger_ms=-1 is below 0"),
        ({"value_serializer": "xml"}, "value_serializer='xml'"),
        ({"lingerMs": 5}, "did you mean 'linger_ms'"),
    ],
)
def test_wrong_options_are_told_when_the_producer_is_made(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WrongOption, match=complaint):
        Producer("127.0.0.1:9092", **options)


def test_closing_waits_for_what_was_posted_and_may_be_done_twice(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        await create(cluster, topic_name)
        async with Producer(cluster, linger_ms=1000, connect_timeout_ms=5000) as producer:
            for number in range(10):
                producer.post(topic_name, b"%d" % number)
            await producer.close()
            await producer.close()
            with pytest.raises(NotOpen, match="this Producer was closed"):
                producer.post(topic_name, b"late")

    run(work)
    assert values(read(cluster, topic_name, 10)[0]) == [b"%d" % number for number in range(10)]
