"""After a crash a log is a prefix of what was appended, and holds all that was synced."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from barnabas.records.control import ControlType, EndMarker
from barnabas.storage.disk import RealDisk
from barnabas.storage.log import Log
from barnabas.storage.recovery import LogState
from tests.simulation.simulated_disk import SimulatedDisk
from tests.unit.storage.storage_helpers import CLEAN, NOW_MS, append, new_log, reopen, values

SMALL: dict[str, Any] = {"segment_bytes": 900, "index_interval_bytes": 150}


def _flush(log: Log) -> None:
    job = log.prepare_flush()
    job.run(log.disk)
    log.complete_flush(job)


def _indexes(log: Log) -> list[tuple[object, ...]]:
    for segment in log.segments:
        segment.seal()
    return [
        (segment.base_offset, segment.size, segment.indexes.offset.entries(), segment.indexes.time.entries())
        for segment in log.segments
    ]


def _filled(directory: Path) -> tuple[Log, list[bytes]]:
    log = new_log(directory, **SMALL)
    appended = [b"%03d" % number * (number % 7 * 5 + 1) for number in range(40)]
    for number, value in enumerate(appended):
        append(log, value, epoch=number // 15, producer=(3, 0, number), timestamp_ms=NOW_MS + number)
    return log, appended


def test_a_log_cut_at_any_byte_is_a_prefix(tmp_path: Path) -> None:
    log, appended = _filled(tmp_path / "log")
    last = log.segments.active
    assert last.size > 300
    for size in range(last.size + 1):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "log", copy)
        with (copy / f"{last.base_offset:020d}.log").open("r+b") as file:
            file.truncate(size)
        again, recovery = reopen(copy, **SMALL)
        found = values(again)
        assert found == appended[: len(found)]
        assert len(found) >= last.base_offset
        assert recovery.dropped_bytes == size - again.segments.active.size
        entry = again.producers.entries[3]
        assert entry.last_sequence == again.log_end_offset - 1
        shutil.rmtree(copy)


def test_a_flipped_bit_cuts_the_log_there(tmp_path: Path) -> None:
    log, appended = _filled(tmp_path / "log")
    segment = list(log.segments)[-2]
    name = f"{segment.base_offset:020d}.log"
    rng = random.Random(1)
    for position in rng.sample(range(segment.size), 80):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "log", copy)
        data = bytearray((copy / name).read_bytes())
        data[position] ^= 1 << rng.randrange(8)
        (copy / name).write_bytes(data)
        again, recovery = reopen(copy, **SMALL)
        found = values(again)
        if recovery.dropped_bytes:
            assert found == appended[: len(found)]
            assert segment.base_offset <= len(found) < log.segments.active.base_offset
            assert recovery.dropped_segments == 1
        else:  # what no CRC covers: the leader epoch, which does not change what was written
            assert 12 <= position - _batch_start(segment.size, bytes(data), position) < 16
            assert found == appended
        shutil.rmtree(copy)


def _batch_start(size: int, data: bytes, position: int) -> int:
    start = 0
    while True:
        following = start + 12 + int.from_bytes(data[start + 8 : start + 12], "big")
        if following > position:
            return start
        start = following


def test_indexes_epochs_and_producers_are_rebuilt_as_they_were(tmp_path: Path) -> None:
    log, _ = _filled(tmp_path)
    epochs, producers = list(log.leader_epochs.entries), log.producers.encode()
    again, recovery = reopen(tmp_path, **SMALL)
    assert recovery.scanned_segments == len(log.segments)
    assert (again.leader_epochs.entries, again.producers.encode()) == (epochs, producers)
    assert _indexes(again) == _indexes(log)


def test_a_clean_stop_needs_no_scan_and_an_unclean_one_only_past_the_recovery_point(tmp_path: Path) -> None:
    log, appended = _filled(tmp_path)
    _flush(log)
    again, recovery = reopen(tmp_path, LogState(False, log.recovery_point), **SMALL)
    assert recovery.scanned_segments == 1
    assert values(again) == appended
    again.close()
    clean, recovery = reopen(tmp_path, CLEAN, **SMALL)
    assert (recovery.scanned_segments, clean.log_end_offset, clean.recovery_point) == (0, 40, 40)
    assert values(clean) == appended


def test_missing_index_files_are_rebuilt(tmp_path: Path) -> None:
    log, appended = _filled(tmp_path)
    expected = _indexes(log)
    log.close()
    second = list(log.segments)[1].base_offset
    (tmp_path / f"{second:020d}.timeindex").unlink()
    again, recovery = reopen(tmp_path, CLEAN, **SMALL)
    assert recovery.scanned_segments == len(log.segments) - 1
    assert values(again) == appended
    assert _indexes(again) == expected


def test_a_damaged_index_file_is_rebuilt_when_it_is_needed(tmp_path: Path) -> None:
    log, appended = _filled(tmp_path)
    log.close()
    for path in tmp_path.glob("*.index"):
        path.write_bytes(b"damaged")
    again, _ = reopen(tmp_path, CLEAN, **SMALL)
    assert values(again) == appended


def test_remains_of_a_crash_are_removed(tmp_path: Path) -> None:
    log, appended = _filled(tmp_path)
    log.close()
    for name in (f"{0:020d}.index.tmp", f"{9:020d}.log.deleted", f"{0:020d}.log.cleaned"):
        (tmp_path / name).write_bytes(b"x")
    again, _ = reopen(tmp_path, CLEAN, **SMALL)
    assert values(again) == appended
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".tmp", ".deleted", ".cleaned")]


@pytest.mark.parametrize("seed", range(150))
def test_power_cuts_take_only_what_was_not_synced(seed: int) -> None:
    """Random work on a disk that loses power again and again; a crash of the process alone loses nothing."""
    rng = random.Random(seed)
    disk = SimulatedDisk(random.Random(seed + 1000))
    directory = "/data/topic-0"
    disk.make_dirs("/data")
    disk.sync_dir("/")
    log = new_log(directory, disk, **SMALL)
    appended: list[bytes] = []
    synced = recovery_point = 0
    for _ in range(rng.randrange(3, 8)):
        for step in range(rng.randrange(30)):
            action = rng.random()
            if action < 0.8:
                value = b"%d.%d" % (len(appended), step) * rng.randrange(1, 30)
                append(log, value, producer=(1, 0, len(appended)), epoch=len(appended) // 20)
                appended.append(value)
            elif action < 0.9:
                _flush(log)
                synced = log.flushed_offset
                assert synced == len(appended)
                if rng.random() < 0.5:
                    recovery_point = synced  # its checkpoint may be older than what is synced
            elif appended:
                target = rng.randrange(len(appended) + 1)
                log.truncate_to(target)
                del appended[target:]
                synced = min(synced, target)
                recovery_point = min(recovery_point, target)
        lost_power = rng.random() < 0.6
        stop = rng.random()
        if stop < 0.2:
            log.close()
            synced = recovery_point = len(appended)
        if lost_power:
            disk.power_cut()
            if not disk.exists(directory):
                assert synced == 0
                disk.make_dirs(directory)
        log, _ = reopen(directory, LogState(stop < 0.2, recovery_point), disk, **SMALL)
        found = values(log)
        assert found == appended[: len(found)]
        assert len(found) >= (synced if lost_power else len(appended))
        appended = appended[: len(found)]
        entry = log.producers.entries.get(1)
        assert (entry.last_sequence if entry else -1) == len(appended) - 1
        assert log.leader_epochs.latest == ((len(appended) - 1) // 20 if appended else -1)
        synced = len(appended)
        recovery_point = rng.choice([recovery_point, synced])


def test_real_and_simulated_disks_hold_the_same(tmp_path: Path) -> None:
    disk = SimulatedDisk(random.Random(1))
    disk.make_dirs("/data")
    log = new_log("/data/topic-0", disk, **SMALL)
    real = new_log(tmp_path, RealDisk(), **SMALL)
    for number in range(30):
        for each in (log, real):
            append(each, b"%d" % number * 20)
    log.close()
    real.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert disk.list_dir("/data/topic-0") == names
    for name in names:
        assert disk.read_bytes(f"/data/topic-0/{name}") == (tmp_path / name).read_bytes()


def test_a_log_that_lost_its_end_after_a_clean_stop_is_a_prefix_and_known_to_be_short(tmp_path: Path) -> None:
    log, appended = _filled(tmp_path / "log")
    log.close()
    state = LogState(True, log.recovery_point)
    last = log.segments.active
    boundaries = [position for position, _ in last.headers()]
    for size in {*boundaries, *range(1, last.size, 20), last.size}:
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "log", copy)
        with (copy / f"{last.base_offset:020d}.log").open("r+b") as file:
            file.truncate(size)
        again, recovery = reopen(copy, state, **SMALL)
        found = values(again)
        assert found == appended[: len(found)]
        assert again.is_short == (size < last.size)
        assert again.log_end_offset == len(found)
        append(again, b"goes on", epoch=3)
        assert values(again)[-1] == b"goes on"
        assert recovery.scanned_segments == (size < last.size)
        shutil.rmtree(copy)


@pytest.mark.parametrize(
    "damaged", [b"", b"0\n3\n0 0\n1 15\n", b"0\n3\n0 0\n1 15\n2\n", b"0\n3\n0 0\n1 15\n9 30\n", b"0\n2\n1 15\n0 30\n"]
)
def test_leader_epochs_that_are_damaged_are_found_again_in_the_batches(tmp_path: Path, damaged: bytes) -> None:
    log, appended = _filled(tmp_path)
    log.close()
    (tmp_path / "leader-epoch-checkpoint").write_bytes(damaged)
    again, _ = reopen(tmp_path, LogState(True, log.recovery_point), **SMALL)
    assert again.leader_epochs.entries == log.leader_epochs.entries == [(0, 0), (1, 15), (2, 30)]
    assert (values(again), again.is_short) == (appended, False)


def test_valid_records_behind_a_damaged_batch_are_kept_in_files(tmp_path: Path) -> None:
    log, _ = _filled(tmp_path)
    segment, last = list(log.segments)[-2:]
    data = bytearray((tmp_path / f"{segment.base_offset:020d}.log").read_bytes())
    data[100] ^= 1
    (tmp_path / f"{segment.base_offset:020d}.log").write_bytes(data)
    behind = (tmp_path / f"{last.base_offset:020d}.log").read_bytes()
    again, _ = reopen(tmp_path, **SMALL)
    cut_at = again.segments.active.size
    assert again.is_short
    assert (tmp_path / f"{segment.base_offset:020d}.damaged").read_bytes() == data[cut_at:]
    assert (tmp_path / f"{last.base_offset:020d}.damaged").read_bytes() == behind
    again.close()
    assert reopen(tmp_path, LogState(True, again.recovery_point), **SMALL)[0].log_end_offset == again.log_end_offset


def test_of_a_torn_write_nothing_is_kept(tmp_path: Path) -> None:
    log, _ = _filled(tmp_path)
    with (tmp_path / f"{log.segments.active.base_offset:020d}.log").open("r+b") as file:
        file.truncate(log.segments.active.size - 1)
    again, _ = reopen(tmp_path, **SMALL)
    assert again.is_short
    assert list(tmp_path.glob("*.damaged")) == []


def test_damage_since_a_clean_stop_is_known_and_nothing_is_cut(tmp_path: Path) -> None:
    log, appended = _filled(tmp_path)
    log.close()
    path = tmp_path / f"{log.segments.active.base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    again, recovery = reopen(tmp_path, LogState(True, log.recovery_point), **SMALL)
    assert str(path) in again.damage
    assert (again.is_short, recovery.scanned_segments, again.log_end_offset) == (False, 0, len(appended))
    assert path.read_bytes() == data


def test_a_log_start_offset_beyond_the_log_is_not_believed_after_a_clean_stop(tmp_path: Path) -> None:
    log, appended = _filled(tmp_path)
    log.close()
    again, _ = reopen(tmp_path, LogState(True, log.recovery_point, log_start_offset=1 << 40), **SMALL)
    assert (again.log_start_offset, values(again)) == (0, appended)


def test_a_damaged_transaction_index_of_the_last_segment_is_built_again(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, b"x", producer=(5, 0, 0), transactional=True)
    log.append_end_marker(EndMarker(ControlType.ABORT, 0), 5, 0, 0, NOW_MS)
    aborted = log.aborted_transactions(0, 2)
    assert len(aborted) == 1
    log.close()
    path = tmp_path / f"{0:020d}.txnindex"
    path.write_bytes(path.read_bytes()[:-5])
    again, _ = reopen(tmp_path, LogState(True, log.recovery_point))
    assert again.aborted_transactions(0, 2) == aborted
    append(again, b"goes on")
    assert not again.is_short
