"""Batches of a partition leave in order, and carry the sequences that make retries idempotent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from barnabas.client.metadata import TopicPartition
from barnabas.client.produce.delivery import Appended, Delivery
from barnabas.client.produce.identity import NOBODY, ProducerIdentity
from barnabas.client.produce.partition_queue import PartitionQueue
from barnabas.client.produce.producer_batch import ProducerBatch
from barnabas.records.batch import BatchHeader, check_batch
from barnabas.records.compression import Compression
from barnabas.records.reader import records_of

PARTITION = TopicPartition("orders", 2)
SEVEN = ProducerIdentity(7, 0)


def add(queue: PartitionQueue, *values: bytes, created: float = 0.0) -> ProducerBatch:
    batch = ProducerBatch(PARTITION, 1000, created)
    for value in values:
        batch.append(batch, None, value, (), 1000)
    queue.add(batch)
    return batch


def take(queue: PartitionQueue, identity: ProducerIdentity = SEVEN) -> ProducerBatch:
    return queue.take(identity, Compression.NONE, False)


def header(batch: ProducerBatch) -> BatchHeader:
    assert batch.data is not None
    return check_batch(memoryview(batch.data))


def sequences(queue: PartitionQueue) -> list[int]:
    return [batch.base_sequence for batch in queue.waiting]


@pytest.fixture
def on_loop() -> Callable[[Callable[[PartitionQueue], None]], None]:
    def run(check: Callable[[PartitionQueue], None]) -> None:
        async def work() -> None:
            check(PartitionQueue(PARTITION))

        asyncio.run(work())

    return run


OnLoop = Callable[[Callable[[PartitionQueue], None]], None]


def test_sequences_go_on_from_batch_to_batch(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        for _ in range(3):
            add(queue, b"x", b"y")
        headers = [header(take(queue)) for _ in range(3)]
        assert [found.base_sequence for found in headers] == [0, 2, 4]
        assert {(found.producer_id, found.producer_epoch) for found in headers} == {(7, 0)}

    on_loop(check)


def test_a_sequence_wraps_to_zero(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        add(queue, b"x", b"y")
        add(queue, b"z")
        queue.identity = queue._family = SEVEN
        queue.next_sequence = 2**31 - 1
        assert [take(queue).base_sequence, take(queue).base_sequence] == [2**31 - 1, 1]

    on_loop(check)


def test_a_producer_of_no_identity_has_no_sequences(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        add(queue, b"x")
        found = header(take(queue, NOBODY))
        assert (found.producer_id, found.producer_epoch, found.base_sequence) == (-1, -1, -1)

    on_loop(check)


def test_an_open_batch_lingers_and_a_closed_one_does_not(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        add(queue, b"x", created=10.0)
        assert queue.ready_at(0.5, 5) == 10.5
        queue.close()
        assert queue.ready_at(0.5, 5) == 0.0

    on_loop(check)


def test_no_more_batches_are_in_flight_than_may_be(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        for _ in range(4):
            add(queue, b"x")
        queue.close()
        first = take(queue)
        assert queue.ready_at(0, 2) is None  # until the leader counts this producer's sequence
        queue.is_counted = True
        assert queue.ready_at(0, 2) == 0.0
        take(queue)
        assert queue.ready_at(0, 2) is None
        queue.settle(first)
        assert queue.ready_at(0, 2) == 0.0

    on_loop(check)


def test_a_repeated_batch_returns_to_its_place_and_goes_alone(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        for _ in range(4):
            add(queue, b"x")
        first, second, third = take(queue), take(queue), take(queue)
        queue.repeat(second, at=5.0)
        assert queue.ready_at(0, 5) is None  # the others are in flight
        queue.repeat(third, at=4.0)
        queue.repeat(first, at=3.0)
        assert sequences(queue) == [0, 1, 2, -1]
        assert queue.ready_at(0, 5) == 5.0
        assert take(queue) is first
        assert queue.ready_at(0, 5) is None
        queue.settle(first)
        assert take(queue) is second
        assert (first.base_sequence, second.base_sequence) == (0, 1)

    on_loop(check)


def test_nothing_leaves_that_makes_the_leader_forget_an_unsettled_batch(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        for _ in range(6):
            add(queue, b"x")
        queue.close()
        first, *later = [take(queue) for _ in range(5)]
        queue.is_counted = True
        queue.repeat(first, at=0.0)
        for batch in later:
            queue.settle(batch)
        assert take(queue) is first
        assert queue.ready_at(0, 5) is None
        queue.settle(first)
        assert queue.ready_at(0, 5) == 0.0

    on_loop(check)


def test_a_gap_is_closed_under_the_next_epoch(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        for _ in range(4):
            add(queue, b"x", b"y")
        lost, second, third = take(queue), take(queue), take(queue)
        assert [lost.leads, second.leads, third.leads] == [True, False, False]
        queue.settle(lost)
        queue.repeat(third, 0.0)
        queue.repeat(second, 0.0)
        assert take(queue).leads
        queue.repeat(second, 0.0)
        assert queue.close_gap()
        assert [(header(batch).producer_epoch, batch.base_sequence) for batch in (second, third)] == [(1, 0), (1, 2)]
        assert queue.identity == ProducerIdentity(7, 1)
        for batch in (take(queue), take(queue)):
            queue.settle(batch)
        last = header(take(queue))
        assert (last.producer_epoch, last.base_sequence) == (1, 4)

    on_loop(check)


def test_after_the_last_epoch_a_new_identity_counts_from_zero(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        add(queue, b"x")
        add(queue, b"y")
        first, second = take(queue, ProducerIdentity(7, 2**15 - 1)), take(queue, ProducerIdentity(7, 2**15 - 1))
        queue.repeat(second, 0.0)
        queue.repeat(first, 0.0)
        assert not queue.close_gap()
        found = [header(take(queue, ProducerIdentity(9, 0))) for _ in range(2)]
        assert [(each.producer_id, each.producer_epoch, each.base_sequence) for each in found] == [(9, 0, 0), (9, 0, 1)]

    on_loop(check)


def test_a_new_identity_waits_until_what_the_old_one_sent_is_settled(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        for _ in range(3):
            add(queue, b"x")
        first = take(queue)
        second = take(queue, ProducerIdentity(8, 0))
        assert (header(second).producer_id, second.base_sequence) == (7, 1)
        queue.settle(first)
        queue.settle(second)
        third = take(queue, ProducerIdentity(8, 0))
        assert (header(third).producer_id, third.base_sequence) == (8, 0)

    on_loop(check)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_the_halves_of_a_batch_keep_its_records_sequences_and_handles(compression: Compression) -> None:
    async def run() -> None:
        queue = PartitionQueue(PARTITION)
        values = [b"%d" % number for number in range(5)]
        batch = add(queue, *values)
        batch.reserved_bytes = 1000
        handles = [Delivery.of(batch, delta, 1000) for delta in range(5)]
        add(queue, b"after")
        queue.next_sequence = 40
        queue.identity = queue._family = SEVEN
        queue.take(SEVEN, compression, False)
        batch.may_be_appended = True
        queue.split(batch, compression)
        first, second = list(queue.waiting)[:2]
        assert first.may_be_appended
        assert second.may_be_appended
        assert [record.value for record in records_of(memoryview(first.data or b""))] == values[:2]
        assert [record.value for record in records_of(memoryview(second.data or b""))] == values[2:]
        assert (first.base_sequence, second.base_sequence, header(second).producer_id) == (40, 42, 7)
        assert batch.reserved_bytes + first.reserved_bytes + second.reserved_bytes == 1000
        second.complete(Appended(90, -1))
        queue.take(SEVEN, compression, False)
        queue.split(first, compression)
        assert sequences(queue) == [40, 41, 42, -1]
        for offset, part in zip((50, 70), list(queue.waiting)[:2], strict=True):
            part.complete(Appended(offset, -1))
        assert [(await handle).offset for handle in handles] == [50, 70, 90, 91, 92]

    asyncio.run(run())


def test_what_is_too_old_is_taken_out_and_what_is_in_flight_waits_for_its_answer(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        for created in (1.0, 2.0, 3.0):
            add(queue, b"x", created=created)
        first = take(queue)
        assert queue.oldest == 1.0
        expired = queue.expire(now=12.5, limit_seconds=10)
        assert [batch.created for batch in expired] == [2.0, 1.0]
        assert queue.in_flight == [first]
        assert [batch.created for batch in queue.waiting] == [3.0]

    on_loop(check)


def test_after_a_long_silence_one_batch_goes_alone_again(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        for created in (1.0, 2.0, 5000.0, 5001.0):
            add(queue, b"x", created=created)
        queue.close()
        queue.settle(take(queue))
        queue.is_counted = True
        queue.settle(take(queue))
        assert queue.is_counted
        take(queue)
        assert queue.ready_at(0, 5) is None

    on_loop(check)


def test_a_batch_that_is_given_up_lets_go_of_its_bytes(on_loop: OnLoop) -> None:
    def check(queue: PartitionQueue) -> None:
        batch = add(queue, b"x" * 500)
        batch.drop()
        assert (batch.record_count, len(batch.records.take()[0])) == (1, 0)

    on_loop(check)
