"""Batches fill in order, and carry the sequences that make retries idempotent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from barnabas.client.accumulator import Appended, Delivery, PartitionQueue, ProducerIdentity
from barnabas.client.metadata import TopicPartition
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.builder import record_size_bound
from barnabas.records.compression import Compression

PARTITION = TopicPartition("orders", 2)


def append(queue: PartitionQueue, value: bytes) -> Delivery:
    return queue.append(None, value, (), 1000, record_size_bound(None, value), 0.0)


def on_loop(check: Callable[[PartitionQueue], None]) -> None:
    async def run() -> None:
        check(PartitionQueue(PARTITION, Compression.NONE, 1000))

    asyncio.run(run())


def test_a_record_that_does_not_fit_opens_the_next_batch() -> None:
    def check(queue: PartitionQueue) -> None:
        for _ in range(4):
            append(queue, b"x" * 300)
        assert [len(batch.builder) for batch in queue.batches] == [2, 2]
        assert [batch.closing.is_set() for batch in queue.batches] == [True, False]

    on_loop(check)


def test_a_record_larger_than_a_batch_gets_one_of_its_own() -> None:
    def check(queue: PartitionQueue) -> None:
        for value in (b"a", b"x" * 5000, b"b"):
            append(queue, value)
        assert [len(batch.builder) for batch in queue.batches] == [1, 1, 1]

    on_loop(check)


def test_sequences_go_on_after_an_append_and_restart_with_a_new_identity() -> None:
    def check(queue: PartitionQueue) -> None:
        for _ in range(6):
            append(queue, b"x" * 300)
        first, second, third = queue.batches
        queue.number(first, ProducerIdentity(7, 0))
        queue.appended(first)
        queue.number(second, ProducerIdentity(7, 0))
        assert (first.builder.base_sequence, second.builder.base_sequence) == (0, 2)
        queue.number(third, ProducerIdentity(8, 0))
        assert (third.builder.producer_id, third.builder.base_sequence) == (8, 0)

    on_loop(check)


def test_a_sequence_wraps_to_zero() -> None:
    def check(queue: PartitionQueue) -> None:
        append(queue, b"x")
        append(queue, b"y")
        queue.number(queue.batches[0], ProducerIdentity(7, 0))
        queue.next_sequence = 2**31 - 1
        queue.appended(queue.batches[0])
        assert queue.next_sequence == 1

    on_loop(check)


def test_every_record_of_a_batch_learns_its_own_offset() -> None:
    async def run() -> list[int]:
        queue = PartitionQueue(PARTITION, Compression.NONE, 1000)
        deliveries = [append(queue, b"x") for _ in range(3)]
        queue.batches[0].complete(Appended(40, -1))
        return [(await delivery).offset for delivery in deliveries]

    assert asyncio.run(run()) == [40, 41, 42]


def test_a_cancelled_wait_leaves_the_other_records_of_the_batch_alone() -> None:
    async def run() -> int:
        queue = PartitionQueue(PARTITION, Compression.NONE, 1000)
        impatient, patient = append(queue, b"x"), append(queue, b"y")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await impatient
        queue.batches[0].complete(Appended(5, -1))
        return (await patient).offset

    assert asyncio.run(run()) == 6


def test_a_failed_batch_fails_each_record() -> None:
    async def run() -> None:
        queue = PartitionQueue(PARTITION, Compression.NONE, 1000)
        delivery = append(queue, b"x")
        queue.batches[0].fail(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large"))
        with pytest.raises(KafkaError, match="too large"):
            await delivery

    asyncio.run(run())
