"""What compaction keeps and what it removes, and what it may touch at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from barnabas.records.batch import DELETE_HORIZON, HEADER_SIZE, BatchHeader, check_batch
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.records.control import ControlType, EndMarker
from barnabas.storage.cleaner import examine
from barnabas.storage.cleaning import CannotClean, clean, group_segments
from barnabas.storage.log import Log
from barnabas.storage.recovery import LogState
from barnabas.storage.segment import base_name
from tests.unit.storage.cleaner_helpers import COMPACTED, compact, flush, job_of
from tests.unit.storage.storage_helpers import CLEAN, NOW_MS, append, new_log, read_all, reopen

HOUR_MS = 3_600_000


def put(log: Log, key: bytes, value: bytes | None, timestamp_ms: int = NOW_MS, **options: Any) -> int:
    builder = BatchBuilder(**options)
    builder.append(key, value, timestamp_ms=timestamp_ms)
    info = log.append_as_leader(memoryview(builder.build()), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    return info.first_offset


def roll(log: Log) -> None:
    log.roll(log.log_end_offset, NOW_MS)
    flush(log)


def left(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_all(log)]


def batch_headers(log: Log) -> list[BatchHeader]:
    return [header for segment in log.segments for _, header in segment.headers()]


# records


def test_the_newest_record_of_every_key_is_kept_at_its_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    for number in range(6):
        put(log, b"key %d" % (number % 2), b"%d" % number)
    roll(log)
    put(log, b"key 0", b"in the active segment")
    assert compact(log) == 6
    assert left(log) == [(4, b"key 0", b"4"), (5, b"key 1", b"5"), (6, b"key 0", b"in the active segment")]
    assert log.log_end_offset == 7


def test_nothing_changes_in_what_is_left(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    for number in range(3):
        builder = BatchBuilder(list(Compression)[number], producer_id=7, producer_epoch=1, base_sequence=number * 4)
        for index in range(4):
            builder.append(b"key %d" % (index + number), b"%d" % number, [("header", b"%d" % index)], NOW_MS + index)
        log.append_as_leader(memoryview(builder.build()), number, NOW_MS)
    roll(log)
    log.set_high_watermark(log.log_end_offset)
    before, kept = read_all(log), {record.key: record for record in read_all(log)}
    headers = batch_headers(log)
    compact(log)
    assert read_all(log) == [record for record in before if record in kept.values()]
    for old, new in zip(headers, batch_headers(log), strict=True):
        same = {"base_offset", "last_offset_delta", "partition_leader_epoch", "attributes", "producer_id"}
        same |= {"producer_epoch", "base_sequence", "base_timestamp"}
        assert {name: getattr(old, name) for name in same} == {name: getattr(new, name) for name in same}


def test_a_record_without_a_key_goes(tmp_path: Path) -> None:
    """They are refused today, but may be there from before the topic was compacted."""
    log = new_log(tmp_path)
    append(log, b"no key", key=None)
    append(log, b"key", key=b"key")
    log.update_config(type(log.config)(cleanup_policy=("compact",)))
    roll(log)
    compact(log)
    assert left(log) == [(1, b"key", b"key")]


def test_the_append_time_of_a_batch_stays(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED, message_timestamp_type="LogAppendTime")
    append(log, b"1", b"2", b"3", now_ms=NOW_MS + 5)
    roll(log)
    compact(log)
    assert [(record.value, record.timestamp_ms) for record in read_all(log)] == [(b"3", NOW_MS + 5)]


def test_a_map_that_is_full_takes_several_rounds(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    for number in range(60):
        put(log, b"key %d" % (number % 20), b"%d" % number)
    roll(log)
    rounds = [compact(log, log_cleaner_dedupe_buffer_size=24 * 9) for _ in range(8)]
    assert rounds == [8, 16, 24, 32, 40, 48, 56, 60]
    assert left(log) == [(number, b"key %d" % (number % 20), b"%d" % number) for number in range(40, 60)]


def test_a_batch_with_more_keys_than_the_map_holds_is_cleaned_piece_by_piece(tmp_path: Path) -> None:
    log = new_log(tmp_path, **{**COMPACTED, "segment_bytes": 100_000})
    for _ in range(2):
        builder = BatchBuilder()
        for number in range(50):
            builder.append(b"key %d" % number, b"value", timestamp_ms=NOW_MS)
        log.append_as_leader(memoryview(builder.build()), 0, NOW_MS)
    log.set_high_watermark(100)
    roll(log)
    while log.first_dirty_offset < 100:
        dirty = log.first_dirty_offset
        assert compact(log, log_cleaner_dedupe_buffer_size=24 * 9) == min(dirty + 8, 100)
    assert [record.offset for record in read_all(log)] == list(range(50, 100))


# tombstones


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_tombstone_stays_for_its_retention_after_it_was_first_compacted(tmp_path: Path, codec: Compression) -> None:
    log = new_log(tmp_path, **COMPACTED, delete_retention_ms=HOUR_MS)
    put(log, b"a", b"1")
    put(log, b"a", None, NOW_MS + 7, compression=codec)
    put(log, b"b", b"2")
    roll(log)
    put(log, b"c", b"3")
    roll(log)
    compact(log, NOW_MS + 50)
    assert left(log) == [(1, b"a", None), (2, b"b", b"2"), (3, b"c", b"3")]
    tombstone = batch_headers(log)[0]
    assert tombstone.attributes == codec | DELETE_HORIZON
    assert (tombstone.base_timestamp, tombstone.max_timestamp) == (NOW_MS + 50 + HOUR_MS, NOW_MS + 7)
    assert read_all(log)[0].timestamp_ms == NOW_MS + 7

    for now_ms, keys in ((NOW_MS + 49 + HOUR_MS, [b"a", b"b", b"c"]), (NOW_MS + 50 + HOUR_MS, [b"b", b"c"])):
        log.first_dirty_offset = 0
        compact(log, now_ms)
        assert [record.key for record in read_all(log)] == keys


def test_a_retention_for_ever_does_not_overflow(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED, delete_retention_ms=2**63 - 1)
    put(log, b"a", None)
    roll(log)
    put(log, b"b", b"")
    roll(log)
    for _ in range(2):
        log.first_dirty_offset = 0
        compact(log, NOW_MS + 10**12)
        assert [(record.key, record.timestamp_ms) for record in read_all(log)] == [(b"a", NOW_MS), (b"b", NOW_MS)]


# transactions


def transaction(log: Log, outcome: ControlType, *keys: bytes, producer_id: int = 5, epoch: int = 0) -> None:
    entry = log.producers.entries.get(producer_id)
    sequence = entry.last_sequence + 1 if entry and entry.epoch == epoch else 0
    for number, key in enumerate(keys):
        put(log, key, outcome.name.encode(), transactional=True, producer_id=producer_id, producer_epoch=epoch,
            base_sequence=sequence + number)  # fmt: skip
    log.append_end_marker(EndMarker(outcome, 0), producer_id, epoch, 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)


def test_aborted_records_go_and_never_hide_an_older_one(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    put(log, b"a", b"before")
    transaction(log, ControlType.ABORT, b"a", b"b")
    transaction(log, ControlType.COMMIT, b"c")
    roll(log)
    compact(log)
    assert left(log) == [(0, b"a", b"before"), (4, b"c", b"COMMIT")]


def test_a_marker_goes_a_retention_after_its_last_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED, delete_retention_ms=HOUR_MS)
    transaction(log, ControlType.COMMIT, b"a")
    transaction(log, ControlType.ABORT, b"b", epoch=1)
    for number in range(6):  # so that none of the batches above is remembered
        put(log, b"c", b"%d" % number, producer_id=5, producer_epoch=2, base_sequence=number)
    roll(log)
    compact(log)
    assert [header.base_offset for header in batch_headers(log)] == [0, 1, 3, 5, 6, 7, 8, 9]
    commit, abort = batch_headers(log)[1:3]
    assert not commit.attributes & DELETE_HORIZON  # there is still a record in its transaction
    assert (abort.attributes & DELETE_HORIZON, abort.base_timestamp) == (DELETE_HORIZON, NOW_MS + HOUR_MS)
    assert [txn.last_offset for txn in log.aborted_transactions(0, 100)] == [3]

    put(log, b"a", b"newer")
    roll(log)
    compact(log, NOW_MS + HOUR_MS)
    assert [header.base_offset for header in batch_headers(log)] == [1, 5, 6, 7, 8, 9, 10]
    assert batch_headers(log)[0].attributes & DELETE_HORIZON
    assert log.aborted_transactions(0, 100) == []
    put(log, b"a", b"newest")
    roll(log)
    compact(log, NOW_MS + 2 * HOUR_MS)
    assert [header.base_offset for header in batch_headers(log)] == [5, 6, 7, 8, 9, 11]


def test_the_marker_that_a_producer_is_known_by_stays(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED, delete_retention_ms=0)
    transaction(log, ControlType.ABORT, b"a")
    log.append_end_marker(EndMarker(ControlType.ABORT, 3), 5, 1, 0, NOW_MS)  # of a newer epoch, as version 2 has it
    put(log, b"b", b"")
    roll(log)
    for _ in range(3):
        log.first_dirty_offset = 0
        compact(log)
    assert [header.base_offset for header in batch_headers(log)] == [2, 3]
    again, _ = reopen(tmp_path, **COMPACTED)
    entry = again.producers.entries[5]
    assert (entry.epoch, entry.coordinator_epoch) == (1, 3)


def test_nothing_past_an_open_transaction_is_touched(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    put(log, b"a", b"1")
    put(log, b"a", b"2")
    roll(log)
    put(log, b"a", b"3", transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    put(log, b"a", b"4")
    roll(log)
    assert compact(log) == 2
    assert [value for _, _, value in left(log)] == [b"2", b"3", b"4"]
    log.append_end_marker(EndMarker(ControlType.ABORT, 0), 5, 0, 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    assert compact(log) == 4  # the marker is in the active segment, but tells already
    assert [value for _, _, value in left(log)] == [b"4"]


# what must outlive its records


def test_a_producer_s_sequence_outlives_its_records(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    for number in range(8):
        put(log, b"a", b"%d" % number, producer_id=3, producer_epoch=0, base_sequence=number)
    put(log, b"a", b"last")
    roll(log)
    put(log, b"b", b"")
    roll(log)
    compact(log)
    emptied = [header for header in batch_headers(log) if not header.record_count]
    assert [(header.base_offset, header.base_sequence, header.size) for header in emptied] == [
        (number, number, HEADER_SIZE) for number in range(3, 8)
    ]
    assert all(header.max_timestamp == NOW_MS for header in emptied)
    again, _ = reopen(tmp_path, **COMPACTED)
    assert [batch.base_sequence for batch in again.producers.entries[3].batches] == [3, 4, 5, 6, 7]
    assert put(again, b"a", b"7", producer_id=3, producer_epoch=0, base_sequence=7) == 7  # a duplicate
    assert put(again, b"a", b"8", producer_id=3, producer_epoch=0, base_sequence=8) == 10


def test_the_log_ends_where_it_did_though_its_last_records_are_gone(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED, delete_retention_ms=0)
    put(log, b"a", b"1")
    put(log, b"b", None)
    roll(log)
    for _ in range(2):
        log.first_dirty_offset = 0
        compact(log)
    assert left(log) == [(0, b"a", b"1")]
    os.remove(log.segments.active.file.path)  # it was empty, and a power cut has taken it
    again, _ = reopen(tmp_path, **COMPACTED)
    assert again.log_end_offset == 2


def test_the_record_with_the_greatest_time_is_found_among_those_left(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    put(log, b"a", b"1", NOW_MS + 500, producer_id=3, producer_epoch=0, base_sequence=0)
    put(log, b"b", b"2", NOW_MS + 100)
    put(log, b"a", b"3", NOW_MS)
    roll(log)
    compact(log)
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert (found.offset, found.timestamp) == (1, NOW_MS + 100)
    earliest = log.offset_for_timestamp(NOW_MS)
    assert earliest is not None
    assert earliest.offset == 1


# segments


def test_small_segments_become_one(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    for number in range(30):
        put(log, b"key %d" % (number % 3), bytes(100))
    roll(log)
    old = len(log.segments)
    assert compact(log) == 30
    log.first_dirty_offset = 0
    compact(log)
    assert (old > 6, len(log.segments)) == (True, 2)
    assert [record.offset for record in read_all(log)] == [27, 28, 29]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        *(base_name(0) + kind for kind in (".index", ".log", ".timeindex")),
        base_name(30) + ".log",
        base_name(30) + ".snapshot",
        "leader-epoch-checkpoint",
    ]


def test_a_group_holds_what_one_segment_may(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    for number in range(12):
        put(log, b"key %d" % number, bytes(100))
        roll(log)
    job = job_of(log)
    assert 1000 // job.segments[0].size == 5
    assert [len(group) for group in group_segments(log.disk, job, 12)] == [5, 5, 2]
    assert [len(group) for group in group_segments(log.disk, job, 7)] == [5, 2]
    far_apart = tuple(file._replace(end_offset=file.end_offset + 2**31 - 3) for file in job.segments)
    spread = type(job)(**{**{name: getattr(job, name) for name in job.__slots__}, "segments": far_apart})
    assert [len(group) for group in group_segments(log.disk, spread, 12)] == [2] * 6


def test_indexes_of_a_cleaned_segment_are_those_that_a_scan_makes(tmp_path: Path) -> None:
    log = new_log(tmp_path, **{**COMPACTED, "segment_bytes": 5000})
    for number in range(120):
        put(log, b"key %d" % (number * 7 % 60), b"%d" % number * 9, NOW_MS + number * 13 % 50)
    roll(log)
    compact(log)
    cleaned = [(list(s.indexes.offset.entries()), list(s.indexes.time.entries())) for s in list(log.segments)[:-1]]
    log.close()
    scanned, _ = reopen(tmp_path, **{**COMPACTED, "segment_bytes": 5000})
    for segment in scanned.segments:
        segment.seal()
    assert sum(len(offsets) for offsets, _ in cleaned) > 5
    assert [(s.indexes.offset.entries(), s.indexes.time.entries()) for s in list(scanned.segments)[:-1]] == cleaned


def test_a_slice_in_flight_survives_the_swap(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED, file_delete_delay_ms=0)
    for number in range(3):
        put(log, b"a", b"%d" % number)
    roll(log)
    before = log.read(0, 1 << 20, 3, True)
    data = before.read()
    compact(log)
    assert before.is_intact
    assert before.read() == data
    assert len(log.read(0, 1 << 20, 3, True)) < len(data)


def test_a_reader_at_an_offset_that_is_gone_gets_the_next(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    for number in range(40):
        put(log, b"a" if number % 10 else b"b%d" % number, bytes(90))
    roll(log)
    log.read(5, 1000, 40, True)
    compact(log)
    for offset in range(40):
        found = log.read(offset, 1 << 20, 40, True)
        header = check_batch(memoryview(found.read()))
        assert header.base_offset >= offset
        assert found.next_offset > header.base_offset


def test_retention_still_shortens_a_log_that_is_compacted_and_deleted(tmp_path: Path) -> None:
    log = new_log(tmp_path, **{**COMPACTED, "cleanup_policy": ("compact", "delete")}, retention_ms=1000)
    put(log, b"old", b"")
    roll(log)
    put(log, b"new", b"", NOW_MS + 5000)
    roll(log)
    put(log, b"newer", b"", NOW_MS + 5000)
    compact(log)
    assert len(log.segments) == 2
    assert log.delete_old_segments(NOW_MS + 5000) == 0  # both are in one segment now, which is as young as its youngest
    assert log.delete_old_segments(NOW_MS + 6001) == 2
    assert left(log) == []


# what may be cleaned


def dirty(log: Log, now_ms: int = NOW_MS) -> tuple[int, bool]:
    found = examine(log, now_ms)
    return found.end_offset, found.is_due


def test_only_what_is_sealed_synced_and_committed_may_be_cleaned(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    put(log, b"a", b"1")
    assert dirty(log) == (0, False)
    log.roll(1, NOW_MS)
    put(log, b"a", b"2")
    assert dirty(log) == (0, False)
    flush(log)
    log.high_watermark = 0
    assert dirty(log) == (0, False)
    log.high_watermark = 2
    assert dirty(log) == (1, True)


def test_a_log_is_due_when_enough_of_it_is_dirty(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED, min_cleanable_dirty_ratio=0.4)
    for number in range(4):
        put(log, b"%d" % number, b"")
        roll(log)
    compact(log)
    assert dirty(log) == (4, False)
    for number, due in ((4, False), (5, False), (6, True)):
        put(log, b"%d" % number, b"")
        roll(log)
        assert dirty(log) == (number + 1, due)


def test_young_records_wait_and_old_ones_do_not(tmp_path: Path) -> None:
    config = {**COMPACTED, "min_compaction_lag_ms": 1000, "max_compaction_lag_ms": 5000}
    log = new_log(tmp_path, **config, min_cleanable_dirty_ratio=1.0)
    for number in range(3):
        put(log, b"%d" % number, b"", NOW_MS + number * 500)
        roll(log)
    assert dirty(log, NOW_MS + 999) == (0, False)
    assert dirty(log, NOW_MS + 1500) == (2, False)
    assert dirty(log, NOW_MS + 5000) == (3, False)
    assert dirty(log, NOW_MS + 5001) == (3, True)


def test_a_segment_is_sealed_before_its_compaction_is_overdue(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED, max_compaction_lag_ms=5000)
    put(log, b"a", b"")
    put(log, b"a", b"", NOW_MS + 5001)
    assert log.segments.active.base_offset == 1


@pytest.mark.parametrize("checkpoint", [2, 99])
def test_a_checkpoint_outside_of_the_log_is_not_believed(tmp_path: Path, checkpoint: int) -> None:
    log = new_log(tmp_path, **COMPACTED)
    for number in range(5):
        put(log, b"%d" % number, b"")
        roll(log)
    log.log_start_offset = 3
    log.first_dirty_offset = checkpoint
    assert examine(log, NOW_MS).first_dirty_offset == 3


def test_a_truncation_makes_the_rest_dirty(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    for number in range(5):
        put(log, b"%d" % number, b"")
        roll(log)
    compact(log)
    log.truncate_to(3)
    assert log.first_dirty_offset == 3
    again, _ = reopen(tmp_path, LogState(first_dirty_offset=2), **COMPACTED)
    assert again.first_dirty_offset == 2


def test_damage_stops_compaction_and_nothing_is_lost(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    for number in range(5):
        put(log, b"a", b"%d" % number)
    roll(log)
    path = tmp_path / f"{base_name(0)}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CannotClean, match="wrong CRC; restore this replica"):
        compact(log)
    assert path.read_bytes() == data
    path.write_bytes(data[:-3])
    with pytest.raises(CannotClean):
        compact(log)


def test_a_clean_log_opens_without_a_scan(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    for number in range(50):
        put(log, b"%d" % (number % 7), b"x" * 50)
    roll(log)
    compact(log)
    expected = left(log)
    log.close()
    again, recovery = reopen(tmp_path, CLEAN, **COMPACTED)
    assert recovery.scanned_segments == 0
    assert left(again) == expected


def test_the_round_is_a_function_of_its_files(tmp_path: Path) -> None:
    """Twice the same job gives twice the same bytes, and leaves the log alone."""
    log = new_log(tmp_path, **COMPACTED)
    for number in range(30):
        put(log, b"%d" % (number % 7), None if number % 3 else b"x")
    roll(log)
    job, before = job_of(log), {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    written = []
    for _ in range(2):
        assert list(clean(log.disk, job))
        written.append({path.name: path.read_bytes() for path in tmp_path.glob("*.cleaned")})
    assert written[0] == written[1]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {**before, **written[0]}
