"""The map of newest offsets, and the records that are kept by it: on both engines."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

import pytest

from barnabas.records import engine
from barnabas.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, read_header
from barnabas.records.builder import BatchBuilder, seal
from barnabas.records.compression import Compression
from barnabas.records.reader import records_of
from barnabas.records.record import Record

pytestmark = pytest.mark.usefixtures("either_engine")
SECRET = b"0123456789abcdef"


def batch_of(*pairs: tuple[bytes | None, bytes | None], base_offset: int = 0) -> tuple[memoryview, BatchHeader]:
    builder = BatchBuilder()
    for number, (key, value) in enumerate(pairs):
        builder.append(key, value, [("h", b"x")] if number % 2 else [], timestamp_ms=1000 + number * 100)
    batch = memoryview(builder.build(base_offset))
    section = batch[HEADER_SIZE:]
    return section, read_header(batch)


def rebuilt(opened: bytearray, header: BatchHeader, **changes: int) -> list[Record]:
    return records_of(memoryview(seal(opened, header._replace(**changes), Compression.NONE)))


def test_the_map_holds_the_last_offset_of_every_key_of_any_length() -> None:
    rng = random.Random(1)
    keys = [rng.randbytes(rng.choice([0, 1, 20, 300])) for _ in range(300)]
    newest = engine.compaction_codec.OffsetMap(24 * 1000, 0.9, SECRET)
    expected: dict[bytes, int] = {}
    for start in range(0, 3000, 50):
        chosen = [rng.choice(keys) for _ in range(50)]
        section, header = batch_of(*((key, b"") for key in chosen), base_offset=start)
        assert newest.index(section, header, 0) == start + 49
        expected.update((key, start + number) for number, key in enumerate(chosen))
    assert {key: newest.offset_of(key) for key in expected} == expected
    assert newest.offset_of(b"never seen") == -1
    assert len(newest) == len(expected)


def test_a_full_map_tells_how_far_it_came_and_still_takes_known_keys() -> None:
    newest = engine.compaction_codec.OffsetMap(24 * 10, 0.5, SECRET)
    section, header = batch_of(*((b"%d" % number, b"") for number in (0, 1, 2, 3, 4, 0, 1, 5, 0)))
    assert newest.index(section, header, 0) == 6
    assert [newest.offset_of(b"%d" % number) for number in range(6)] == [5, 6, 2, 3, 4, -1]


def test_the_smallest_map_holds_one_key() -> None:
    newest = engine.compaction_codec.OffsetMap(0, 0.01, SECRET)
    section, header = batch_of((b"a", b""), (b"a", b""), (b"b", b""))
    assert newest.index(section, header, 0) == 1


def test_records_before_an_offset_and_without_a_key_are_not_indexed() -> None:
    newest = engine.compaction_codec.OffsetMap(24 * 10, 0.9, SECRET)
    section, header = batch_of((b"a", b""), (None, b""), (b"b", b""))
    assert newest.index(section, header, 1) == 2
    assert [newest.offset_of(b"a"), newest.offset_of(b"b"), len(newest)] == [-1, 2, 1]


@pytest.mark.parametrize("tombstones", [True, False])
def test_what_is_kept_stays_as_it_was(tombstones: bool) -> None:
    rng = random.Random(5)
    for _ in range(60):
        pairs = [
            (rng.choice([b"a", b"b", b"c", None]), rng.choice([None, b"", rng.randbytes(200)]))
            for _ in range(rng.randrange(1, 12))
        ]
        section, header = batch_of(*pairs)
        latest = rng.randrange(-1, len(pairs))
        newest = engine.compaction_codec.OffsetMap(24 * 10, 0.9, SECRET)
        newest.index(section, header, 0)
        records = records_of(memoryview(_whole(section, header)))
        expected = [
            record
            for record in records
            if record.offset > latest
            or (
                record.key is not None
                and record.offset >= newest.offset_of(record.key)
                and (record.value is not None or tombstones)
            )
        ]
        kept, max_timestamp, has_tombstones, opened = engine.compaction_codec.retain(
            section, header, newest, latest, tombstones
        )
        assert kept == len(expected)
        assert max_timestamp == max((record.timestamp_ms for record in expected), default=-1)
        assert has_tombstones == any(record.value is None for record in expected)
        if kept == len(records):
            assert opened == b""
        elif kept:
            assert rebuilt(opened, header, record_count=kept) == expected


def _whole(section: memoryview, header: BatchHeader) -> bytearray:
    return seal(bytearray(HEADER_SIZE) + section, header, Compression.NONE)


@pytest.mark.parametrize("base_timestamp", [0, 1234, 2**40, 2**61])
def test_records_can_count_their_time_from_another_base(base_timestamp: int) -> None:
    section, header = batch_of((b"a", None), (None, b"x" * 100), (b"b", b"y"))
    rebased = engine.compaction_codec.rebase(section, header, base_timestamp)
    assert rebuilt(rebased, header, base_timestamp=base_timestamp) == records_of(memoryview(_whole(section, header)))


def test_bytes_that_lie_are_refused() -> None:
    section, header = batch_of(*((b"%d" % number, b"value") for number in range(5)))
    codec = engine.compaction_codec
    newest = codec.OffsetMap(24 * 10, 0.9, SECRET)
    rng = random.Random(1)
    for _ in range(300):
        damaged = bytearray(section)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        for work in (
            partial(newest.index, damaged, header, 0),
            partial(codec.retain, damaged, header, newest, 9, True),
            partial(codec.rebase, damaged, header, 5),
        ):
            with suppress(CorruptBatch):
                work()
    with pytest.raises(CorruptBatch):
        codec.retain(bytes(section)[:-1], header, newest, 9, True)
    with pytest.raises(CorruptBatch):
        newest.index(bytes(section) + b"0", header, 0)
