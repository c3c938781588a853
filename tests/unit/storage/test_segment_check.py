"""Whatever happens to the files of a sealed segment, reading it through tells, and tells what of it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from barnabas.records.control import ControlType, EndMarker
from barnabas.storage.disk import RealDisk
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment
from barnabas.storage.segment_check import Finding, SegmentCheck
from tests.unit.storage.storage_helpers import NOW_MS, append, new_log

SMALL: dict[str, Any] = {"segment_bytes": 900, "index_interval_bytes": 150}
NUMBER = 1  # of the segment that something happens to


def filled(directory: Path, **config: Any) -> Log:
    """A log whose sealed segments have their indexes on disk."""
    log = new_log(directory, **{**SMALL, **config})
    for number in range(40):
        append(log, b"%03d" % number * (number % 7 * 5 + 1), epoch=number // 7, timestamp_ms=NOW_MS + number)
    flush(log)
    return log


def flush(log: Log) -> None:
    job = log.prepare_flush()
    job.run(log.disk)
    log.complete_flush(job)


def check(log: Log, number: int = NUMBER, directory: Path | None = None) -> Finding | None:
    """Look at one segment of the log, or of a copy of it that was opened anew."""
    segment = list(log.segments)[number]
    following = log.segments.after(segment)
    if directory is not None:
        path = directory / f"{segment.base_offset:020d}.log"
        segment = Segment(RealDisk(), str(directory), segment.base_offset, NOW_MS, path.stat().st_size)
    end_offset = following.base_offset if following else log.log_end_offset
    epochs = log.leader_epochs.entries
    looking = SegmentCheck(RealDisk(), segment, end_offset, epochs, is_growing=following is None)
    while looking.step():
        pass
    looking.close()
    return looking.finding


def file_of(log: Log, suffix: str) -> Path:
    return Path(list(log.segments)[NUMBER].path(suffix))


def flipped(data: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


def test_nothing_is_found_in_a_log_that_is_in_order(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert len(log.segments) > 3
    assert [check(log, number) for number in range(len(log.segments))] == [None] * len(log.segments)


def test_every_flipped_bit_of_the_records_is_found(tmp_path: Path) -> None:
    log = filled(tmp_path)
    file = file_of(log, ".log")
    data = file.read_bytes()
    rng = random.Random(1)
    for position in range(len(data)):
        bit = rng.randrange(8)
        file.write_bytes(flipped(data, position, bit))
        found = check(log)
        assert found is not None, f"bit {bit} of byte {position}"
        assert not found.is_index
        assert str(file) in found.problem


@pytest.mark.parametrize("is_restarted", [False, True])
def test_records_that_are_missing_at_the_end_are_found_wherever_the_cut_is(tmp_path: Path, is_restarted: bool) -> None:
    log = filled(tmp_path / "log")
    data = file_of(log, ".log").read_bytes()
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    directory = tmp_path / ("copy" if is_restarted else "log")
    boundaries = [position for position, _ in list(log.segments)[NUMBER].headers()]
    for size in {*boundaries, *range(1, len(data), 7)}:
        (directory / file_of(log, ".log").name).write_bytes(data[:size])
        found = check(log, directory=directory if is_restarted else None)
        # A segment that was emptied before a restart is none, and has nothing to be told by.
        assert size == 0 or (found is not None and not found.is_index), f"cut to {size} of {len(data)}"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_in_which_a_bit_has_flipped_is_found_unless_searches_go_on_as_before(
    tmp_path: Path, suffix: str
) -> None:
    log = filled(tmp_path)
    segment = list(log.segments)[NUMBER]
    offsets = range(segment.base_offset, list(log.segments)[NUMBER + 1].base_offset)

    def searches(of: Segment) -> list[object]:
        by_time = [of.indexes.time.lookup(NOW_MS + number).offset <= number for number in offsets]
        return [of.max_timestamp, *by_time, *(of.locate(offset) for offset in offsets)]

    expected = searches(segment)
    file = file_of(log, suffix)
    data = file.read_bytes()
    assert len(data) >= 16
    found = 0
    for position in range(len(data)):
        for bit in range(8):
            file.write_bytes(flipped(data, position, bit))
            finding = check(log)
            if finding is None:
                segment.reload_indexes()
                assert searches(segment) == expected, f"bit {bit} of byte {position}"
            else:
                assert finding.is_index
                found += 1
    assert found > len(data) * 4


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_is_cut_or_gone_is_found(tmp_path: Path, suffix: str) -> None:
    log = filled(tmp_path)
    file = file_of(log, suffix)
    file.write_bytes(file.read_bytes()[:-1])
    assert check(log) is not None
    file.unlink()
    finding = check(log)
    assert finding is not None
    assert finding.is_index


def test_aborted_transactions_that_cannot_be_told_any_more_are_damage_to_the_records(tmp_path: Path) -> None:
    log = new_log(tmp_path, **SMALL)
    append(log, b"x", producer=(5, 0, 0), transactional=True)
    log.append_end_marker(EndMarker(ControlType.ABORT, 0), 5, 0, 0, NOW_MS)
    log.roll(log.log_end_offset, NOW_MS)
    flush(log)
    assert check(log, 0) is None
    file = Path(log.segments.first.path(".txnindex"))
    data = file.read_bytes()
    for damaged in (data[:-1], flipped(data, 1, 0), flipped(data, 18, 0)):
        file.write_bytes(damaged)
        finding = check(log, 0)
        assert finding is not None
        assert not finding.is_index


def test_a_gap_that_compaction_has_left_is_no_damage(tmp_path: Path) -> None:
    log = new_log(tmp_path, **SMALL)
    append(log, b"x")
    log.roll(log.log_end_offset + 5, NOW_MS)
    flush(log)
    assert check(log, 0) is None


def test_a_segment_that_is_written_to_is_checked_as_far_as_it_was_when_the_check_was_made(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, b"x" * 100)
    epochs = log.leader_epochs.entries
    looking = SegmentCheck(RealDisk(), log.segments.active, log.log_end_offset, epochs, is_growing=True)
    append(log, b"y", epoch=1)
    while looking.step():
        pass
    assert looking.finding is None
    file = Path(log.segments.active.path(".log"))
    file.write_bytes(flipped(file.read_bytes(), 90, 3))
    assert check(log, 0) is not None
