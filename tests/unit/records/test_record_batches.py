"""Batches built and read again, on both engines."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.records import engine
from barnabas.records.batch import (
    NO_TIMESTAMP,
    CorruptBatch,
    check_batch,
    read_header,
    write_crc,
    write_log_append_time,
)
from barnabas.records.builder import BatchBuilder, record_size_bound
from barnabas.records.compression import Compression, DecompressedTooLarge
from barnabas.records.reader import find_invalid_records, read_records, recompress, records_of, section_of
from barnabas.records.record import Header, Record

pytestmark = pytest.mark.usefixtures("either_engine")

optional_bytes = st.none() | st.binary(max_size=200)
record_contents = st.tuples(
    optional_bytes,
    optional_bytes,
    st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=3),
    st.integers(NO_TIMESTAMP, 2**61),
)


def batch_of(*values: bytes | None, base_offset: int = 0, compression: Compression = Compression.NONE) -> memoryview:
    builder = BatchBuilder(compression)
    for value in values:
        builder.append(b"key", value, timestamp_ms=1000)
    return memoryview(builder.build(base_offset))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    contents=st.lists(record_contents, min_size=1, max_size=20),
    base_offset=st.integers(0, 2**61),
    compression=st.sampled_from(Compression),
)
def test_what_was_appended_is_read_back(
    contents: list[tuple[bytes | None, bytes | None, list[Header], int]], base_offset: int, compression: Compression
) -> None:
    builder = BatchBuilder(compression)
    deltas = [builder.append(*content) for content in contents]
    batch = memoryview(builder.build(base_offset, leader_epoch=7))
    header = check_batch(batch)
    assert deltas == list(range(len(contents)))
    assert (header.base_offset, header.partition_leader_epoch, header.compression) == (base_offset, 7, compression)
    assert (header.last_offset_delta, header.record_count) == (len(contents) - 1, len(contents))
    assert header.max_timestamp == max(content[3] for content in contents)
    assert records_of(batch) == [
        Record(base_offset + delta, timestamp, key, value, tuple(headers))
        for delta, (key, value, headers, timestamp) in enumerate(contents)
    ]


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 1 << 20])
def test_sizes_around_the_steps_of_a_varint_are_estimated_exactly(size: int) -> None:
    builder = BatchBuilder()
    for timestamp in (0, 63, 64, 1 << 40, 5):
        before = builder.estimated_size
        builder.append(b"k" * size, b"v" * size, [("h" * size, b"x" * size)], timestamp)
        bound = record_size_bound(b"k" * size, b"v" * size, [("h" * size, b"x" * size)])
        assert builder.estimated_size - before <= bound
    batch = builder.build()
    assert len(batch) == builder.estimated_size
    assert [len(record.value or b"") for record in records_of(memoryview(batch))] == [size] * 5


def test_a_batch_carries_the_producer_and_its_flags() -> None:
    builder = BatchBuilder(producer_id=9, producer_epoch=3, base_sequence=41, transactional=True)
    builder.append(None, b"v", timestamp_ms=5)
    header = check_batch(memoryview(builder.build()))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 41)
    assert header.is_transactional
    assert not header.is_control
    builder.base_sequence = 50
    assert check_batch(memoryview(builder.build())).base_sequence == 50


def test_many_values_at_once_are_the_same_as_one_by_one() -> None:
    keys, values = [b"a", None, b"c"], [b"1", b"2", None]
    one_by_one, at_once = BatchBuilder(), BatchBuilder()
    for key, value in zip(keys, values):
        one_by_one.append(key, value, timestamp_ms=77)
    at_once.extend(values, keys, timestamp_ms=77)
    assert at_once.build() == one_by_one.build()
    at_once.extend([b"4"], timestamp_ms=78)
    assert records_of(memoryview(at_once.build()))[-1] == Record(3, 78, None, b"4")
    assert len(at_once.build()) == at_once.estimated_size
    with pytest.raises(ValueError, match="timestamp -2"):
        at_once.extend([b"5"], timestamp_ms=-2)
    with pytest.raises(ValueError, match="2 keys do not fit 1 values"):
        at_once.extend([b"5"], [b"a", b"b"])


def test_keys_and_values_of_any_bytes_type_are_taken_and_others_refused() -> None:
    builder = BatchBuilder()
    builder.append(bytearray(b"k"), memoryview(b"v"))
    assert records_of(memoryview(builder.build())) == [Record(0, NO_TIMESTAMP, b"k", b"v")]
    with pytest.raises(TypeError, match="value must be bytes or None, not str"):
        builder.append(None, "text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timestamp -2"):
        builder.append(None, b"v", timestamp_ms=-2)
    assert len(builder) == 1


def test_an_empty_batch_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        BatchBuilder().build()


def test_records_below_an_offset_are_left_out() -> None:
    batch = batch_of(b"a", b"b", b"c", base_offset=10)
    assert [record.offset for record in records_of(batch, from_offset=11)] == [11, 12]
    assert records_of(batch, from_offset=2**63) == []


class Placed(NamedTuple):
    """As a consumer has its records."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def test_a_consumers_records_are_the_same_with_topic_and_partition() -> None:
    builder = BatchBuilder()
    for number in range(6):
        builder.append(None if number % 2 else b"k", b"v", [("h", b"%d" % number)] * number, 1000 + number)
    batch = memoryview(builder.build(10))
    header = check_batch(batch)
    stream = engine.codec.RecordStream(section_of(batch, header), header, 13, Placed, "orders", 7)
    portions = [stream.take(2) for _ in range(3)]
    assert [len(portion) for portion in portions] == [2, 1, 0]
    placed = [record for portion in portions for record in portion]
    assert placed == [("orders", 7, *record) for record in records_of(batch, from_offset=13)]
    assert {type(record) for record in placed} == {Placed}


def test_log_append_time_gives_every_record_the_brokers_time() -> None:
    batch = bytearray(batch_of(b"a", b"b"))
    write_log_append_time(memoryview(batch), 4242)
    assert [record.timestamp_ms for record in records_of(memoryview(batch))] == [4242, 4242]
    builder = BatchBuilder(log_append_time_ms=4242)
    builder.append(b"key", b"a", timestamp_ms=1000)
    builder.append(b"key", b"b", timestamp_ms=1000)
    assert builder.build() == batch


def test_fetched_batches_are_read_in_a_row_and_a_cut_one_is_left() -> None:
    control = BatchBuilder(control=True, transactional=True, producer_id=1, producer_epoch=0)
    control.append(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")
    last = batch_of(b"d", base_offset=3)
    whole = b"".join([batch_of(b"a", b"b"), control.build(2), last])
    for cut in range(1, len(last)):
        records = list(read_records(memoryview(whole[:-cut]), from_offset=1))
        assert [(record.offset, record.value) for record in records] == [(1, b"b")]
    assert [record.offset for record in read_records(memoryview(whole))] == [0, 1, 3]


def test_a_record_that_says_more_than_the_batch_holds_is_corrupt() -> None:
    good = batch_of(b"value")
    for count in (0, 2, -1, 2**31 - 1):
        batch = bytearray(good)
        batch[57:61] = count.to_bytes(4, "big", signed=True)
        write_crc(memoryview(batch))
        with pytest.raises(CorruptBatch):
            records_of(memoryview(batch))


def test_a_wrong_crc_or_magic_is_refused() -> None:
    batch = bytearray(batch_of(b"value"))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch, match="wrong CRC"):
        records_of(memoryview(batch))
    batch[16] = 1
    with pytest.raises(CorruptBatch, match="magic 1"):
        records_of(memoryview(batch))


def test_a_header_key_that_is_not_utf8_is_read_with_replacements() -> None:
    builder = BatchBuilder()
    builder.append(None, None, [("header", b"v")])
    batch = builder.build()
    start = batch.index(b"header")
    batch[start] = 0xFF
    write_crc(memoryview(batch))
    assert records_of(memoryview(batch))[0].headers == (("�eader", b"v"),)


@pytest.mark.parametrize("compression", Compression)
def test_records_without_key_or_out_of_time_range_are_found(compression: Compression) -> None:
    builder = BatchBuilder(compression)
    for key, timestamp_ms in [(b"k", 50), (None, 60), (b"k", 9), (b"k", 101), (None, 8), (b"k", -1), (b"k", 100)]:
        builder.append(key, b"v", timestamp_ms=timestamp_ms)
    batch = memoryview(builder.build())

    def invalid(require_key: bool, most: int = 10) -> tuple[int, list[tuple[int, int | None]]]:
        return find_invalid_records(batch, require_key=require_key, oldest_ms=10, newest_ms=100, most=most)

    assert invalid(True) == (4, [(1, None), (2, 9), (3, 101), (4, None)])
    assert invalid(False) == (3, [(2, 9), (3, 101), (4, 8)])
    assert invalid(True, most=2) == (4, [(1, None), (2, 9)])


@pytest.mark.parametrize("before", Compression)
@pytest.mark.parametrize("after", Compression)
def test_recompressing_changes_the_codec_and_nothing_else(before: Compression, after: Compression) -> None:
    builder = BatchBuilder(before, producer_id=5, producer_epoch=1, base_sequence=9, transactional=True)
    for index in range(100):
        builder.append(b"key %d" % index, b"value" * index, [("h", b"x")], index)
    batch = memoryview(builder.build(1000, 3))
    again = memoryview(recompress(batch, after))
    old, new = read_header(batch), check_batch(again)
    assert new.compression == after
    assert new._replace(batch_length=0, crc=0, attributes=0) == old._replace(batch_length=0, crc=0, attributes=0)
    assert new.is_transactional
    assert records_of(again) == records_of(batch)


def test_a_batch_beyond_the_readers_limit_is_refused() -> None:
    batch = batch_of(bytes(100_000), compression=Compression.ZSTD)
    assert len(records_of(batch, limit_bytes=101_000)) == 1
    search: Any = partial(find_invalid_records, require_key=True, oldest_ms=0, newest_ms=0, most=1)
    for read in (records_of, search):
        with pytest.raises(DecompressedTooLarge, match="limit of 100000 bytes"):
            read(batch, limit_bytes=100_000)
