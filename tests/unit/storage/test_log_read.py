"""Slices: whole batches, from the right one, within the limits; and look-ups by time."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import check_batch, headers
from barnabas.records.compression import Compression
from barnabas.storage.log import Log
from tests.unit.storage.storage_helpers import CLEAN, NOW_MS, append, new_log, read_all, reopen, values


def _filled(directory: Path, rng: random.Random, batches: int = 60) -> Log:
    log = new_log(directory, segment_bytes=3000, index_interval_bytes=rng.choice([0, 200, 1000, 4096]))
    for _ in range(batches):
        append(log, *[bytes(rng.randrange(120)) for _ in range(rng.randrange(1, 6))])
    return log


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("reopened", [False, True])
def test_a_slice_is_whole_batches_from_the_right_one_within_its_limits(
    tmp_path: Path, seed: int, reopened: bool
) -> None:
    rng = random.Random(seed)
    log = _filled(tmp_path, rng)
    end = log.log_end_offset
    if reopened:
        log.close()
        log, _ = reopen(tmp_path, CLEAN)
    for _ in range(300):
        offset = rng.randrange(end)
        max_offset = rng.randrange(offset, end + 1)
        max_bytes = rng.choice([0, 1, 100, 500, 2000, 100_000])
        min_one_batch = rng.random() < 0.5
        found = log.read(offset, max_bytes, max_offset, min_one_batch)
        data = memoryview(found.read())
        inside = list(headers(data))
        assert sum(header.size for _, header in inside) == len(data) == len(found)
        for position, _ in inside:
            check_batch(data, position)
        if inside:
            assert inside[0][1].base_offset <= offset <= inside[0][1].last_offset
            assert inside[-1][1].last_offset < max_offset
            assert inside[-1][1].next_offset <= found.next_offset <= max_offset
            assert len(data) <= max_bytes or (min_one_batch and len(inside) == 1)
        elif min_one_batch:  # then only a batch that is not below max_offset as a whole can be missing
            whole = log.read(offset, 1, end, True)
            assert next(headers(memoryview(whole.read())))[1].next_offset > max_offset


def test_one_reader_gets_through_with_any_limit(tmp_path: Path) -> None:
    log = _filled(tmp_path, random.Random(5))
    for max_bytes in (1, 300, 1500, 5000):
        offset, seen = 0, 0
        while offset < log.log_end_offset:
            found = log.read(offset, max_bytes, log.log_end_offset, True)
            seen += sum(header.record_count for _, header in headers(memoryview(found.read())))
            assert found.next_offset > offset
            offset = found.next_offset
        assert seen == log.log_end_offset


def test_nothing_beyond_the_ends(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(4):
        append(log, b"a", b"b")
    log.advance_log_start_offset(3)
    assert len(log.read(8, 100, 8, True)) == 0
    for offset in (2, 9, -1):
        with pytest.raises(KafkaError) as refused:
            log.read(offset, 100, 8, True)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.offset for record in read_all(log)] == [3, 4, 5, 6, 7]


def test_a_slice_outlives_the_deletion_of_its_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=1000, retention_bytes=0)
    for number in range(20):
        append(log, b"%03d" % number * 100)
    found = log.read(0, 1 << 20, log.log_end_offset, True)
    expected = found.read()
    assert log.delete_old_segments(NOW_MS) == 20 // 2
    assert not [name for name in os.listdir(tmp_path) if name.startswith(f"{0:020d}.log")]
    assert found.read() == expected
    assert found.is_intact


def test_a_truncation_is_seen_by_a_slice(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(5):
        append(log)
    found = log.read(0, 1 << 20, 5, True)
    log.truncate_to(3)
    assert not found.is_intact
    assert log.read(0, 1 << 20, 3, True).is_intact


@pytest.mark.parametrize("codec", list(Compression))
def test_records_are_found_by_time(tmp_path: Path, codec: Compression) -> None:
    log = new_log(tmp_path, segment_bytes=2000, index_interval_bytes=100)
    rng = random.Random(3)
    times: list[int] = []
    for _ in range(40):
        start = NOW_MS + rng.randrange(1000)  # not in order
        append(log, b"x" * 60, b"y" * 60, timestamp_ms=start, compression=codec, epoch=len(times) // 40)
        times += [start, start + 1]
    log.advance_log_start_offset(5)
    for lookup in (log, None):
        if lookup is None:
            log.close()
            lookup, _ = reopen(tmp_path, CLEAN)
            lookup.set_high_watermark(80)
            lookup.advance_log_start_offset(5)
        for timestamp in (0, *range(NOW_MS, NOW_MS + 1003, 17)):
            expected = next((offset for offset in range(5, 80) if times[offset] >= timestamp), None)
            found = lookup.offset_for_timestamp(timestamp)
            assert (found and found.offset) == expected
            if found:
                assert (found.timestamp, found.leader_epoch) == (times[found.offset], found.offset // 40)
        latest = lookup.offset_of_max_timestamp()
        assert latest is not None
        assert (latest.timestamp, latest.offset) == (max(times[5:]), times.index(max(times[5:]), 5))


def test_an_empty_log_has_no_times(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None
    append(log, timestamp_ms=-1)
    assert log.offset_of_max_timestamp() is None


def test_truncation_by_offset_drops_whole_batches_and_what_was_derived(tmp_path: Path) -> None:
    for target in range(31):
        log = new_log(tmp_path / str(target), segment_bytes=600, index_interval_bytes=0)
        for number in range(15):
            epoch = number // 4
            append(
                log, b"%d" % number, bytes(50), epoch=epoch, producer=(7, 0, 2 * number), timestamp_ms=NOW_MS + number
            )
        log.truncate_to(target)
        end = target // 2 * 2
        assert (log.log_end_offset, log.high_watermark) == (end, end)
        assert values(log)[0::2] == [b"%d" % number for number in range(end // 2)]
        assert all(entry.start_offset < end for entry in log.leader_epochs.entries)
        entry = log.producers.entries.get(7)
        assert (entry.last_offset if entry else -1) == end - 1
        latest = log.offset_of_max_timestamp()
        assert (latest.timestamp if latest else None) == (NOW_MS + end // 2 if end else None)
        append(log, b"next", producer=(7, 0, end))
        log.close()
        again, recovery = reopen(tmp_path / str(target), CLEAN)
        assert (recovery.scanned_segments, again.log_end_offset) == (0, end + 1)
        assert values(again)[-1] == b"next"


def test_a_log_starts_anew_at_another_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=600)
    for number in range(10):
        append(log, bytes(100), producer=(7, 0, number))
    for start in (100, 0):
        log.truncate_fully_and_start_at(start)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (start, start, start)
        assert (log.size_bytes, log.producers.entries, log.leader_epochs.entries) == (0, {}, [])
        assert append(log, b"x").first_offset == start
    assert values(log) == [b"x"]
