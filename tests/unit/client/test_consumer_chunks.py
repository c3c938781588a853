"""What is in the bytes of a fetch for the caller, and where to go on after them."""

from __future__ import annotations

import pytest

from barnabas.client.consume.chunks import scan
from barnabas.client.consume.positions import PartitionState, Reading
from barnabas.client.metadata import TopicPartition
from barnabas.records.batch import CorruptBatch
from barnabas.records.builder import BatchBuilder
from barnabas.records.columns import Column
from barnabas.records.control import ControlType, EndMarker, build_end_marker
from barnabas.wire.messages.k01_fetch import AbortedTransaction

PARTITION = TopicPartition("orders", 3)
PRODUCER = 7


def batch(base_offset: int, count: int, *, producer_id: int = -1, epoch: int = 0) -> bytes:
    transactional = producer_id >= 0
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        transactional=transactional,
    )
    for number in range(count):
        builder.append(b"k", b"%d" % (base_offset + number), timestamp_ms=1000 + number)
    return bytes(builder.build(base_offset, epoch))


def marker(offset: int, kind: ControlType, producer_id: int = PRODUCER) -> bytes:
    return bytes(
        build_end_marker(
            EndMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=0, base_offset=offset
        )
    )


def offsets(fetched: bytes, position: int, aborted: list[AbortedTransaction] | None = None) -> list[int]:
    chunk = scan(memoryview(fetched), position, aborted or [])
    found = [record.offset for portion in chunk.records(PARTITION, at_a_time=2) for record in portion]
    assert chunk.columns(Column.OFFSET).to_arrow()["offset"].to_pylist() == found
    return found


def test_records_before_the_position_and_a_batch_that_is_cut_off_are_left_out() -> None:
    fetched = batch(0, 10, epoch=4) + batch(10, 5, epoch=5)
    assert offsets(fetched + batch(15, 5)[:-1], 6) == list(range(6, 15))
    chunk = scan(memoryview(fetched), 6, [])
    assert (chunk.next_offset, chunk.last_epoch, chunk.size) == (15, 5, len(fetched))
    first = next(chunk.records(PARTITION))[0]
    assert first == ("orders", 3, 6, 1006, b"k", b"6", ())


def test_every_place_in_a_chunk_has_an_epoch_that_lasted_so_long() -> None:
    """An older one would have ended before that place, and a broker asked about it tell of a truncation."""
    fetched = batch(0, 10, epoch=4) + batch(10, 5, epoch=5) + batch(15, 5, epoch=7)
    chunk = scan(memoryview(fetched), 6, [])
    assert [chunk.epoch_at(offset) for offset in (6, 9, 10, 14, 15, 19, 20)] == [4, 4, 5, 5, 7, 7, 7]


def test_a_place_in_the_middle_of_a_chunk_is_committed_with_its_own_epoch() -> None:
    state = PartitionState(PARTITION)
    state.place(0)
    state.arrived(scan(memoryview(batch(0, 2, epoch=4) + batch(2, 2, epoch=5) + batch(4, 2, epoch=5)), 0, []))
    reading = state.reading = Reading(state, state.take())
    for position, epoch in ((0, 4), (1, 4), (2, 5), (4, 5)):
        while reading.position < position:
            assert reading.left or reading.advance()
            reading.skip(1)
        assert (state.position, state.epoch) == (position, epoch)
    state.set_aside()
    assert (state.position, state.epoch) == (4, 5)


def test_markers_are_passed_over_and_count_for_where_to_go_on() -> None:
    fetched = batch(0, 2, producer_id=PRODUCER) + marker(2, ControlType.COMMIT)
    assert offsets(fetched, 0) == [0, 1]
    assert scan(memoryview(fetched), 0, []).next_offset == 3
    only_marker = scan(memoryview(marker(2, ControlType.COMMIT)), 2, [])
    assert (only_marker.batches, only_marker.next_offset) == ([], 3)


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    fetched = (
        batch(0, 2, producer_id=PRODUCER)
        + batch(2, 2, producer_id=8)
        + batch(4, 1)
        + marker(5, ControlType.ABORT)
        + batch(6, 1, producer_id=PRODUCER)
        + marker(7, ControlType.COMMIT)
    )
    aborted = [AbortedTransaction(producer_id=PRODUCER, first_offset=0)]
    assert offsets(fetched, 0, aborted) == [2, 3, 4, 6]
    assert offsets(fetched, 0) == [0, 1, 2, 3, 4, 6]


def test_a_corrupt_batch_is_told_of_once_it_comes_first() -> None:
    damaged = bytearray(batch(5, 5))
    damaged[-1] ^= 1
    fetched = memoryview(batch(0, 5) + bytes(damaged) + batch(10, 5))
    assert scan(fetched, 0, []).next_offset == 5
    with pytest.raises(CorruptBatch, match="wrong CRC"):
        scan(fetched[len(batch(0, 5)) :], 5, [])
    assert scan(fetched, 0, [], check_crcs=False).next_offset == 15


def test_bytes_that_hold_no_whole_batch_are_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="no whole batch"):
        scan(memoryview(batch(0, 5)[:-1]), 0, [])
