"""A handle tells where its record landed or why it did not; what nobody was told is raised later."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.errors import NotDelivered
from barnabas.client.metadata import TopicPartition
from barnabas.client.produce import delivery
from barnabas.client.produce.delivery import Appended, Delivery, Failures, Moved, Pending
from barnabas.core.errors import ErrorCode, KafkaError

PARTITION = TopicPartition("orders", 2)
TOO_LARGE = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")


def test_every_record_of_a_batch_learns_its_own_offset() -> None:
    async def run() -> list[int]:
        batch = Pending(PARTITION)
        handles = [Delivery.of(batch, delta, 7) for delta in range(3)]
        batch.complete(Appended(40, -1))
        return [(await handle).offset for handle in handles]

    assert asyncio.run(run()) == [40, 41, 42]


def test_the_time_is_the_records_unless_the_topic_stamps_it() -> None:
    async def run() -> list[int]:
        times = []
        for stamped in (-1, 99):
            batch = Pending(PARTITION)
            batch.complete(Appended(0, stamped))
            times.append((await Delivery.of(batch, 0, 7)).timestamp_ms)
        return times

    assert asyncio.run(run()) == [7, 99]


def test_a_cancelled_wait_leaves_the_other_records_of_the_batch_alone() -> None:
    async def run() -> int:
        batch = Pending(PARTITION)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await Delivery.of(batch, 0, 7)
        batch.complete(Appended(5, -1))
        return (await Delivery.of(batch, 1, 7)).offset

    assert asyncio.run(run()) == 6


def test_a_handle_follows_its_record_into_a_batch() -> None:
    async def run() -> None:
        parked, batch = Pending(TopicPartition("orders", -1)), Pending(PARTITION)
        handle = Delivery.of(parked, 0, 7)
        assert handle.partition.partition == -1
        waiting = asyncio.ensure_future(_result(handle))
        await asyncio.sleep(0)
        parked.complete(Moved(((-4, batch),)))
        assert handle.partition == PARTITION
        seen = [handle.is_done]
        batch.complete(Appended(10, -1))
        assert [*seen, handle.is_done] == [False, True]
        assert await waiting == 14

    async def _result(handle: Delivery) -> int:
        return (await handle).offset

    asyncio.run(run())


def test_a_failure_is_raised_by_the_flush_for_those_who_did_not_ask() -> None:
    async def run() -> None:
        failures = Failures()
        batch = Pending(PARTITION)
        handle = Delivery.of(batch, 0, 7)
        batch.fail(TOO_LARGE, 3)
        failures.add(batch)
        for _ in range(2):  # the second look tells nobody new
            with pytest.raises(KafkaError, match="too large"):
                await handle
        with pytest.raises(NotDelivered, match="2 records were not delivered: too large") as caught:
            failures.raise_unseen()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        failures.raise_unseen()

    asyncio.run(run())


def test_a_failure_that_everybody_saw_is_not_raised_again() -> None:
    async def run() -> None:
        failures = Failures()
        batch = Pending(PARTITION)
        batch.fail(TOO_LARGE, 1)
        failures.add(batch)
        with pytest.raises(KafkaError):
            await Delivery.of(batch, 0, 7)
        failures.raise_unseen()

    asyncio.run(run())


def test_failures_that_nobody_looks_at_are_counted_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_KEPT_FAILURES", 10)

    async def run() -> None:
        failures = Failures()
        for number in range(50):
            batch = Pending(PARTITION)
            batch.fail(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"problem {number}"), 2)
            failures.add(batch)
        assert len(failures._failed) == 10
        with pytest.raises(NotDelivered, match="100 records were not delivered: problem 0"):
            failures.raise_unseen()

    asyncio.run(run())
