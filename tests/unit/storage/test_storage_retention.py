"""Which segments go, and which stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.storage.storage_helpers import CLEAN, NOW_MS, append, new_log, reopen, values


@pytest.mark.parametrize("reopened", [False, True])
def test_segments_go_when_their_newest_record_is_too_old(tmp_path: Path, reopened: bool) -> None:
    log = new_log(tmp_path, segment_bytes=500, retention_ms=1000)
    for number in range(6):
        append(log, bytes(300), timestamp_ms=NOW_MS + number * 100)
    if reopened:
        log.close()
        log, _ = reopen(tmp_path, CLEAN, segment_bytes=500, retention_ms=1000)
        log.set_high_watermark(6)
    assert log.delete_old_segments(NOW_MS + 1200) == 2
    assert log.log_start_offset == 2
    assert log.delete_old_segments(NOW_MS + 1200) == 0
    assert len(values(log)) == 4


def test_a_log_that_is_all_too_old_goes_on_at_its_end(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=500, retention_ms=1000)
    for _ in range(4):
        append(log, bytes(300))
    assert log.delete_old_segments(NOW_MS + 1001) == 4
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, len(log.segments)) == (4, 4, 0, 1)
    assert log.delete_old_segments(NOW_MS + 9999) == 0
    append(log, b"next")
    log.close()
    again, _ = reopen(tmp_path, CLEAN)
    assert (again.log_start_offset, values(again)) == (4, [b"next"])


def test_by_size_at_least_what_is_to_be_kept_stays(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=500, retention_bytes=1000)
    for _ in range(6):
        append(log, bytes(300))
    log.delete_old_segments(NOW_MS)
    assert 1000 <= log.size_bytes < 1000 + 500


def test_nothing_above_the_watermark_goes(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=500, retention_bytes=0)
    for _ in range(6):
        append(log, bytes(300))
    log.set_high_watermark(3)
    assert log.delete_old_segments(NOW_MS) == 3
    assert log.log_start_offset == 3


def test_what_lies_before_the_log_start_goes_under_any_policy(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=500, retention_ms=0, retention_bytes=0, cleanup_policy=("compact",))
    for _ in range(6):
        append(log, bytes(300))
    assert log.delete_old_segments(NOW_MS + 10**9) == 0
    log.advance_log_start_offset(4)
    assert log.delete_old_segments(NOW_MS) == 4
    assert log.segments.first.base_offset == 4


def test_without_limits_everything_stays(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=500, retention_ms=-1)
    for _ in range(6):
        append(log, bytes(300), timestamp_ms=1)
    assert log.delete_old_segments(NOW_MS + 10**12) == 0


def test_records_without_a_time_age_with_their_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path, retention_ms=1000)
    append(log, timestamp_ms=-1)
    assert log.delete_old_segments(NOW_MS + 1000) == 0
    assert log.delete_old_segments(NOW_MS + 1001) == 1


def test_a_segment_is_not_deleted_for_what_a_damaged_time_index_says(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=900, retention_ms=1000)
    for number in range(40):
        append(log, b"x" * 30, timestamp_ms=NOW_MS + number)
    job = log.prepare_flush()
    job.run(log.disk)
    log.complete_flush(job)
    segments = len(log.segments)
    for segment in list(log.segments)[:-1]:
        path = Path(segment.path(".timeindex"))
        path.write_bytes(path.read_bytes()[:-12] + bytes(12))
        segment.reload_indexes()
        assert segment.max_timestamp == 0
    assert log.delete_old_segments(NOW_MS + 500) == 0
    assert log.delete_old_segments(NOW_MS + 2000) == segments
