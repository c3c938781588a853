"""What a consumer hands out, in which forms, and that nothing of it gets lost; on Barnabas and on Apache Kafka."""

from __future__ import annotations

import asyncio
import json

import pytest

from barnabas import Consumer, ConsumerRecord, DeserializationError, TopicPartition
from barnabas.client.errors import NotOpen
from tests.clients.consumer_topics import Source, numbers, run


@pytest.fixture
def source(cluster: str, topic_name: str) -> Source:
    return Source(cluster, topic_name)


def from_the_beginning(source: Source, **options: object) -> Consumer:
    return Consumer(source.address, topics=[source.topic], auto_offset_reset="earliest", **options)  # type: ignore[arg-type]


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    async for record in consumer:
        found.append(record)
        if len(found) == count:
            return found
    raise AssertionError("the records ended")


async def values(consumer: Consumer, count: int) -> list[bytes]:
    return [record.value for record in await read(consumer, count)]


def test_a_record_tells_all_that_was_written(source: Source) -> None:
    source.write([b"v"], key=b"k", timestamp=1_700_000_000_000, headers=[("a", b"1"), ("b", None)])
    source.write([None], key=b"gone")

    async def work() -> None:
        async with from_the_beginning(source) as consumer:
            first, second = await read(consumer, 2)
        assert first == (source.topic, 0, 0, 1_700_000_000_000, b"k", b"v", (("a", b"1"), ("b", None)))
        assert (second.offset, second.key, second.value, second.headers) == (1, b"gone", None, ())

    run(work)


def test_a_loop_that_was_left_goes_on_with_the_next_record(source: Source) -> None:
    source.write(numbers(0, 30))

    async def work() -> list[bytes]:
        async with from_the_beginning(source) as consumer:
            found = await values(consumer, 7)
            found += [record.value for record in await consumer.poll(20_000, max_records=5)]
            found += await values(consumer, 3)
            batch = await consumer.poll_batch(20_000)
            assert batch is not None
            found += [record.value for record in batch.records()]
        return found

    assert run(work) == numbers(0, 30)


def test_poll_gives_no_more_than_asked_and_nothing_when_there_is_nothing(source: Source) -> None:
    source.write(numbers(0, 25))

    async def work() -> None:
        async with from_the_beginning(source) as consumer:
            found = [await consumer.poll(20_000, max_records=10) for _ in range(3)]
            assert [len(records) for records in found] == [10, 10, 5]
            assert [record.value for records in found for record in records] == numbers(0, 25)
            assert await consumer.poll(50) == []

    run(work)


def test_batches_are_of_one_partition_and_become_columns(cluster: str, topic_name: str) -> None:
    source = Source(cluster, topic_name, partitions=2)
    for partition in (0, 1):
        source.write(numbers(0, 50), partition, key=b"k", headers=[("h", b"%d" % partition)])

    async def work() -> None:
        rows = 0
        async with from_the_beginning(source) as consumer:
            async for batch in consumer.batches():
                records, table = batch.records(), batch.to_arrow()
                assert {record.partition for record in records} == {batch.partition.partition}
                assert [records[0].offset, records[-1].offset + 1] == [batch.from_offset, batch.next_offset]
                assert table["value"].to_pylist() == [record.value for record in records]
                assert table["offset"].to_pylist() == [record.offset for record in records]
                assert batch.to_arrow("offset", "key").column_names == ["key", "offset"]
                assert batch.to_pandas("value")["value"].tolist() == [record.value for record in records]
                assert batch.high_watermark == 50
                with pytest.raises(ValueError, match="no column 'size'"):
                    batch.to_arrow("size")
                rows += table.num_rows
                if rows == 100:
                    return

    run(work)


def test_a_cancelled_wait_for_a_record_loses_nothing(source: Source) -> None:
    async def write() -> None:
        for number in range(60):
            source.write([b"%d" % number])
            await asyncio.sleep(0.002)

    async def work() -> list[bytes]:
        found: list[bytes] = []
        async with from_the_beginning(source) as consumer:
            writing = asyncio.create_task(write())
            while len(found) < 60:
                try:
                    async with asyncio.timeout(0.004):
                        async for record in consumer:
                            found += [record.value]
                except TimeoutError:
                    pass
            await writing
        return found

    assert run(work) == numbers(0, 60)


def test_reading_ahead_is_bounded_and_goes_on_as_the_caller_reads(source: Source) -> None:
    for _ in range(40):
        source.write([bytes(1000)] * 50)  # a batch comes as a whole, so they must not be large

    async def work() -> None:
        async with from_the_beginning(source, max_partition_fetch_bytes=100_000) as consumer:
            await read(consumer, 1)
            await asyncio.sleep(0.3)
            assert 0 < consumer.metrics().buffered_bytes <= 250_000
            await read(consumer, 1999)
            assert consumer.metrics().fetched_bytes > 2_000_000

    run(work)


def test_a_pattern_covers_topics_and_partitions_that_appear_later(source: Source) -> None:
    source.write(numbers(0, 5))

    async def work() -> None:
        pattern = f"{source.topic}(-.*)?"
        async with Consumer(
            source.address, pattern=pattern, auto_offset_reset="latest", metadata_max_age_ms=100
        ) as consumer:
            assert consumer.assignment() == [TopicPartition(source.topic, 0)]
            await consumer.position(TopicPartition(source.topic, 0))
            source.grow(2)
            source.create(f"{source.topic}-more")
            source.write([b"grown"], 1)
            source.write([b"more"], topic=f"{source.topic}-more")
            assert sorted(await values(consumer, 2)) == [b"grown", b"more"]

    run(work)


def test_a_topic_that_is_not_there_yet_is_waited_for(cluster: str, topic_name: str) -> None:
    async def work() -> None:
        async with Consumer(cluster, topics=[topic_name], auto_offset_reset="earliest") as consumer:
            assert await consumer.poll(50) == []
            Source(cluster, topic_name).write([b"here"])
            assert await values(consumer, 1) == [b"here"]

    run(work)


def test_read_committed_gives_neither_open_nor_aborted_records(source: Source) -> None:
    producer = source.transactional()
    for number in range(4):
        producer.begin_transaction()
        producer.produce(source.topic, b"%d" % number)
        if number == 1:
            producer.flush(60)
            producer.abort_transaction(60)
        elif number < 3:
            producer.commit_transaction(60)
    producer.flush(60)
    partition = TopicPartition(source.topic, 0)

    async def work() -> None:
        async with from_the_beginning(source, isolation_level="read_committed") as consumer:
            assert await values(consumer, 2) == [b"0", b"2"]
            assert await consumer.poll(100) == []
            assert await consumer.lag() == {partition: 0}
            producer.commit_transaction(60)
            assert await values(consumer, 1) == [b"3"]
        async with from_the_beginning(source) as consumer:
            assert await values(consumer, 4) == numbers(0, 4)

    run(work)


def test_a_paused_partition_gives_nothing_and_loses_nothing(cluster: str, topic_name: str) -> None:
    source = Source(cluster, topic_name, partitions=2)
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    for partition in (first, second):
        source.write(numbers(0, 100), partition.partition)

    async def work() -> None:
        found: dict[int, list[bytes]] = {0: [], 1: []}
        async with from_the_beginning(source) as consumer:
            async for record in consumer:
                found[record.partition].append(record.value)
                if len(found[0]) == 10:
                    consumer.pause(first)  # in the middle of what was fetched
                    assert consumer.paused() == [first]
                if len(found[1]) == 100 and len(found[0]) >= 10:
                    break
            assert len(found[0]) in (10, 100)
            if len(found[0]) == 10:
                assert await consumer.poll(100) == []
                consumer.resume()
                found[0] += await values(consumer, 90)
        assert found == {0: numbers(0, 100), 1: numbers(0, 100)}

    run(work)


def test_only_one_task_reads_at_a_time(source: Source) -> None:
    async def work() -> None:
        async with from_the_beginning(source) as consumer:
            waiting = asyncio.create_task(consumer.poll(20_000))
            await asyncio.sleep(0.05)
            with pytest.raises(RuntimeError, match="another task"):
                await consumer.poll()
            source.write([b"x"])
            assert [record.value for record in await waiting] == [b"x"]

    run(work)


def test_whoever_waits_for_a_consumer_that_is_closed_is_told(source: Source) -> None:
    async def work() -> None:
        async with from_the_beginning(source) as consumer:
            waiting = asyncio.create_task(consumer.poll(20_000))
            await asyncio.sleep(0.05)
        with pytest.raises(NotOpen, match="was closed"):
            await waiting

    run(work)


def test_a_poison_record_is_told_and_the_rest_goes_on(source: Source) -> None:
    source.write([b"1", b"{", b"3", b"}", b"5"], key=b"k")

    async def work() -> None:
        found: list[object] = []
        async with from_the_beginning(source, value_deserializer="json", key_deserializer="str") as consumer:
            while len(found) < 5:
                try:
                    async for record in consumer:
                        assert record.key == "k"
                        found.append(record.value)
                        if len(found) == 5:
                            break
                except DeserializationError as error:
                    found.append((error.topic, error.offset, error.field, error.record.value, type(error.__cause__)))
            first, second = (
                (source.topic, at, "value", raw, json.JSONDecodeError) for at, raw in [(1, b"{"), (3, b"}")]
            )
            assert found == [1, first, 3, second, 5]
            await consumer.seek_to_beginning()
            assert [record.value for record in await consumer.poll(20_000)] == [1]
            with pytest.raises(DeserializationError, match=f"{source.topic}-0 at offset 1"):
                await consumer.poll(20_000)
            assert [record.value for record in await consumer.poll(20_000)] == [3]

    run(work)


def test_poison_records_can_be_passed_over_or_collected(source: Source) -> None:
    source.write([b"1", b"{", b"3"])

    async def work() -> None:
        async with from_the_beginning(source, value_deserializer="json", on_poison_record="skip") as consumer:
            assert [record.value for record in await read(consumer, 2)] == [1, 3]
        collected: list[DeserializationError] = []
        async with from_the_beginning(source, value_deserializer="json", on_poison_record=collected.append) as consumer:
            batch = await consumer.poll_batch(20_000)
            assert batch is not None
            assert [record.value for record in batch] == [1, 3]
            assert [record.value for record in batch.raw_records()] == [b"1", b"{", b"3"]
        assert [error.offset for error in collected] == [1]

    run(work)
