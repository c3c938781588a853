"""What a consumer commits: only what its caller has moved past, or has said; on Barnabas and on Apache Kafka."""

from __future__ import annotations

import asyncio

import pytest

from barnabas import Consumer, ConsumerRecord, OffsetAndMetadata, TopicPartition
from tests.clients.consumer_topics import Source, numbers, run

NOTHING = -1001


@pytest.fixture
def source(cluster: str, topic_name: str) -> Source:
    source = Source(cluster, topic_name)
    source.write(numbers(0, 20))
    return source


class Assigned(Consumer):
    """Commits for a group of the topic's name without joining it: who is in a group is another matter."""

    def __init__(self, source: Source, **options: object) -> None:
        super().__init__(source.address, group=source.topic, auto_offset_reset="earliest", **options)  # type: ignore[arg-type]
        self._partition = TopicPartition(source.topic, 0)

    async def __aenter__(self) -> Assigned:
        await super().__aenter__()
        self.assign([self._partition])
        return self


async def committed_comes_to(source: Source, expected: int) -> None:
    async with asyncio.timeout(60):
        while await asyncio.to_thread(source.committed, source.topic) != expected:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.02)


def test_automatic_commits_leave_out_the_record_at_hand(source: Source) -> None:
    async def work() -> None:
        async with Assigned(source, auto_commit_interval_ms=30) as consumer:
            async for record in consumer:
                if record.offset == 7:
                    await committed_comes_to(source, 7)
                    await asyncio.sleep(0.1)
                    assert source.committed(source.topic) == 7
                    break

    run(work)
    assert source.committed(source.topic) == 7


def test_leaving_commits_what_was_moved_past_also_after_an_error(source: Source) -> None:
    async def work() -> None:
        async with Assigned(source) as consumer:
            async for record in consumer:
                if record.offset == 12:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(work)
    assert source.committed(source.topic) == 12


def test_polled_records_are_moved_past_by_the_next_poll(source: Source) -> None:
    async def work() -> None:
        async with Assigned(source, auto_commit_interval_ms=30) as consumer:
            await consumer.poll(20_000, max_records=5)
            await asyncio.sleep(0.15)
            assert source.committed(source.topic) in (0, NOTHING)
            await consumer.poll(20_000, max_records=5)
            await committed_comes_to(source, 5)

    run(work)
    assert source.committed(source.topic) == 5


def test_a_commit_by_call_covers_the_record_at_hand(source: Source) -> None:
    partition = TopicPartition(source.topic, 0)

    async def work() -> None:
        async with Assigned(source, enable_auto_commit=False) as consumer:
            async for record in consumer:
                if record.offset == 4:
                    assert consumer.passed()[partition].offset == 5
                    await consumer.commit()
                    assert source.committed(source.topic) == 5
                if record.offset == 9:
                    break
            await consumer.commit({partition: OffsetAndMetadata(3, "half way")})
            found = (await consumer.committed(partition))[partition]
            assert found is not None
            assert (found.offset, found.metadata) == (3, "half way")

    run(work)
    assert source.committed(source.topic) == 3


def test_each_batch_is_committed_once_it_is_done(cluster: str, topic_name: str) -> None:
    source = Source(cluster, topic_name)
    for _ in range(3):
        source.write([b"x"] * 10)

    async def work() -> int:
        done = 0
        async with Assigned(source, enable_auto_commit=False, max_partition_fetch_bytes=1) as consumer:
            async for batch in consumer.batches(commit=True):
                assert source.committed(source.topic) == (done or NOTHING)
                done = batch.next_offset
                if done == 30:
                    return batch.from_offset
        raise AssertionError("the batches ended")

    last_begins_at = run(work)
    assert source.committed(source.topic) == last_begins_at > 0


def test_a_consumer_goes_on_where_its_group_has_committed_and_rewinds_to_it(source: Source) -> None:
    async def work() -> None:
        async with Assigned(source) as consumer:
            await consumer.commit({TopicPartition(source.topic, 0): 15})
        async with Assigned(source, enable_auto_commit=False) as consumer:
            for _ in range(2):
                found: list[ConsumerRecord] = []
                while len(found) < 5:
                    found += await consumer.poll(20_000)
                assert [record.value for record in found] == numbers(15, 20)
                consumer.rewind()

    run(work)


def test_offsets_kept_outside_are_found_again_when_partitions_are_assigned(source: Source) -> None:
    partition = TopicPartition(source.topic, 0)
    outside = {partition: 13}
    calls: list[tuple[str, list[TopicPartition]]] = []

    async def work() -> None:
        async def assigned(partitions: list[TopicPartition]) -> None:
            calls.append(("assigned", partitions))
            for each in partitions:
                consumer.seek(each, outside[each])

        consumer = Consumer(
            source.address,
            topics=[source.topic],
            group=source.topic,
            auto_offset_reset="none",
            enable_auto_commit=False,
            on_assigned=assigned,
            on_revoked=lambda partitions: calls.append(("revoked", partitions)),
        )
        async with consumer:
            async for record in consumer:
                assert record.offset == outside[partition]
                outside[partition] = record.offset + 1
                if record.offset == 19:
                    break
            assert consumer.group_metadata().group_id == source.topic
            assert consumer.group_metadata().member_id

    run(work)
    assert calls == [("assigned", [partition]), ("revoked", [partition])]
    assert source.committed(source.topic) == NOTHING


def test_leaving_does_not_take_back_a_commit_by_call(source: Source) -> None:
    partition = TopicPartition(source.topic, 0)

    async def work() -> None:
        async with Assigned(source) as consumer:
            await consumer.poll(20_000, max_records=5)
            await consumer.commit({partition: 15})

    run(work)
    assert source.committed(source.topic) == 15


def test_a_consumer_without_a_group_cannot_commit(source: Source) -> None:
    async def work() -> None:
        async with Consumer(source.address, topics=[source.topic]) as consumer:
            with pytest.raises(RuntimeError, match="no group to commit for; make it with group="):
                await consumer.commit()

    run(work)
