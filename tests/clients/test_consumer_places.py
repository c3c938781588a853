"""From where a consumer reads: assigned, sought, reset, its topic gone; on Barnabas and on Apache Kafka."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from barnabas import Consumer, KafkaError, TopicPartition
from barnabas.client.consume.consumer_errors import NoOffset
from barnabas.client.offsets import Last
from barnabas.core.errors import ErrorCode
from tests.clients.consumer_topics import Source, numbers, run

FIRST_MS = 1_700_000_000_000


@pytest.fixture
def source(cluster: str, topic_name: str) -> Source:
    """A topic with ten records, a second apart."""
    source = Source(cluster, topic_name)
    for number in range(10):
        source.write([b"%d" % number], timestamp=FIRST_MS + 1000 * number)
    return source


async def values(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        records = await consumer.poll(20_000, max_records=count - len(found))
        assert records, f"{found} and nothing more"
        found += [record.value for record in records]
    return found


def test_an_assigned_consumer_goes_where_it_is_sent(source: Source) -> None:
    partition = TopicPartition(source.topic, 0)

    async def work() -> None:
        async with Consumer(source.address) as consumer:
            consumer.assign({partition: 4})
            assert await values(consumer, 2) == [b"4", b"5"]
            assert await consumer.position(partition) == 6
            assert await consumer.lag(partition) == {partition: 4}
            consumer.seek(partition, 1)
            assert await consumer.position(partition) == 1
            assert await values(consumer, 2) == [b"1", b"2"]
            await consumer.seek_to_beginning()
            assert await values(consumer, 1) == [b"0"]
            await consumer.seek_to_time(FIRST_MS + 6500)
            assert await values(consumer, 1) == [b"7"]
            await consumer.seek_to_time(datetime.fromtimestamp(FIRST_MS // 1000 + 3, UTC), partition)
            assert await values(consumer, 1) == [b"3"]
            await consumer.seek_to(Last(2))
            assert await values(consumer, 2) == [b"8", b"9"]
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 10
            source.write([b"new"])
            assert await values(consumer, 1) == [b"new"]
            assert await consumer.beginning_offsets() == {partition: 0}
            assert await consumer.end_offsets() == {partition: 11}
            other = TopicPartition(source.topic, 7)
            with pytest.raises(ValueError, match=f"{source.topic}-7 is not assigned"):
                consumer.seek(other, 0)

    run(work)


def test_a_place_can_be_changed_in_the_middle_of_a_loop(source: Source) -> None:
    partition = TopicPartition(source.topic, 0)

    async def work() -> list[bytes]:
        found: list[bytes] = []
        async with Consumer(source.address) as consumer:
            consumer.assign({partition: 0})
            async for record in consumer:
                found.append(record.value)
                if len(found) == 3:
                    consumer.seek(partition, 7)
                if len(found) == 6:
                    return found
        raise AssertionError("the records ended")

    assert run(work) == [b"0", b"1", b"2", b"7", b"8", b"9"]


def test_a_new_assignment_takes_the_place_of_the_old_one(cluster: str, topic_name: str) -> None:
    source = Source(cluster, topic_name, partitions=2)
    source.write(numbers(0, 5), 0)
    source.write(numbers(5, 10), 1)
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)

    async def work() -> None:
        async with Consumer(cluster, auto_offset_reset="earliest") as consumer:
            consumer.assign([first])
            assert await values(consumer, 2) == numbers(0, 2)
            consumer.assign([second])
            assert await values(consumer, 5) == numbers(5, 10)
            assert consumer.assignment() == [second]
            consumer.unassign(second)
            with pytest.raises(RuntimeError, match="nothing to read"):
                await consumer.poll(50)

    run(work)


@pytest.mark.parametrize(("reset", "expected"), [("earliest", b"6"), ("latest", b"new")])
def test_records_that_are_gone_are_passed_over_as_the_option_says(
    source: Source, reset: str, expected: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    partition = TopicPartition(source.topic, 0)

    async def work() -> bytes:
        source.delete_before(6)
        async with Consumer(source.address, auto_offset_reset=reset) as consumer:  # type: ignore[arg-type]
            consumer.assign({partition: 3})
            assert await consumer.poll(0) == []
            end = {"earliest": 6, "latest": 10}[reset]
            while await consumer.position(partition) != end:
                assert await consumer.poll(0) == []
            source.write([b"new"])
            return (await values(consumer, 1))[0]

    with caplog.at_level(logging.WARNING):
        assert run(work) == expected
    assert f"{source.topic}-0 does not hold offset 3" in caplog.text


def test_without_a_reset_an_offset_out_of_range_is_an_error_and_a_seek_goes_on(source: Source) -> None:
    partition = TopicPartition(source.topic, 0)

    async def work() -> None:
        async with Consumer(source.address, auto_offset_reset="none") as consumer:
            consumer.assign({partition: 12345})
            with pytest.raises(NoOffset, match=f"{source.topic}-0: it does not hold offset 12345; seek") as caught:
                await consumer.poll(20_000)
            assert (caught.value.code, caught.value.partition) == (ErrorCode.OFFSET_OUT_OF_RANGE, partition)
            consumer.seek(partition, 9)
            assert await values(consumer, 1) == [b"9"]
            consumer.assign([TopicPartition(source.topic, 0)])
            consumer.rewind()
            with pytest.raises(NoOffset, match="no offset is committed"):
                await consumer.poll(20_000)

    run(work)


@pytest.fixture
def soon_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.client.consume.fetch_answers._GONE_SECONDS", 0.3)


@pytest.mark.usefixtures("soon_gone")
def test_a_topic_deleted_under_its_reader_is_told_and_one_made_anew_is_read(source: Source) -> None:
    async def work() -> None:
        async with Consumer(source.address, topics=[source.topic], auto_offset_reset="earliest") as consumer:
            assert await values(consumer, 10) == numbers(0, 10)
            source.delete()
            with pytest.raises(KafkaError, match=f"topic '{source.topic}' does not exist") as caught:
                await consumer.poll(20_000)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            source.create(source.topic)
            source.write(numbers(20, 25))
            assert await values(consumer, 5) == numbers(20, 25)

    run(work)


@pytest.mark.usefixtures("soon_gone")
def test_of_a_pattern_a_topic_may_go(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    other = f"{source.topic}-other"
    source.create(other)
    source.write([b"a"], topic=other)

    async def work() -> None:
        pattern = f"{source.topic}(-.*)?"
        async with Consumer(source.address, pattern=pattern, auto_offset_reset="earliest") as consumer:
            assert len(await values(consumer, 11)) == 11
            source.delete()
            while "reading on without it" not in caplog.text:
                assert await consumer.poll(50) == []
            source.write([b"b"], topic=other)
            assert await values(consumer, 1) == [b"b"]

    with caplog.at_level(logging.WARNING):
        run(work)


def test_a_partition_that_a_topic_lacks_is_an_error(source: Source) -> None:
    async def work() -> None:
        async with Consumer(source.address, retry_timeout_ms=300) as consumer:
            consumer.assign([TopicPartition(source.topic, 3)])
            with pytest.raises(KafkaError, match="has no partition 3; it has 1"):
                await consumer.poll(20_000)

    run(work)


def test_a_subscribed_consumer_refuses_an_assignment(source: Source) -> None:
    async def work() -> None:
        async with Consumer(source.address, topics=[source.topic]) as consumer:
            with pytest.raises(RuntimeError, match="subscribes to topics"):
                consumer.assign([TopicPartition(source.topic, 0)])

    run(work)
