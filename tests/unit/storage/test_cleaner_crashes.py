"""Whatever a crash interrupts of compaction, the log that is found again is the one before a swap or the one after."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from barnabas.records.control import ControlType, EndMarker
from barnabas.records.record import Record
from barnabas.storage import swap
from barnabas.storage.cleaning import clean
from barnabas.storage.log import Log
from barnabas.storage.recovery import LogState
from tests.simulation.simulated_disk import SimulatedDisk
from tests.unit.storage.cleaner_helpers import COMPACTED, flush, job_of, segments_of
from tests.unit.storage.storage_helpers import NOW_MS, append, new_log, read_all, reopen

DIRECTORY = "/data/topic-0"
CONFIG = {**COMPACTED, "delete_retention_ms": 0, "file_delete_delay_ms": 0}


class Crash(BaseException):
    pass


class CrashingDisk(SimulatedDisk):
    """Dies before a chosen change of what is on it."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng, watcher=self._count)
        self.changes_left = -1

    def _count(self, operation: str, path: str) -> None:
        if self.changes_left == 0:
            raise Crash(f"{operation} {path}")
        self.changes_left -= 1


def _filled(disk: SimulatedDisk) -> Log:
    """Several groups of segments; tombstones, an aborted transaction, and a producer to remember."""
    disk.make_dirs("/data")
    disk.sync_dir("/")
    log = new_log(DIRECTORY, disk, **CONFIG)
    sequence = 0
    for number in range(60):
        if number % 11 == 5:
            append(log, b"aborted", key=b"%d" % (number % 9), producer=(1, 0, sequence), transactional=True)
            log.append_end_marker(EndMarker(ControlType.ABORT, 0), 1, 0, 0, NOW_MS)
            sequence += 1
        else:
            append(log, b"%d" % number * 30, key=b"%d" % (number % 9 if number % 4 else number))
    log.roll(log.log_end_offset, NOW_MS)
    append(log, b"active", key=b"3")
    flush(log)
    disk.sync_dir("/data")
    return log


def _swaps(log: Log) -> Iterator[None]:
    """One round, stopping after every swap."""
    for group in clean(log.disk, job_of(log)):
        swap.replace_segments(log, segments_of(log, group), group.size)
        log.disk.sync_dir(log.directory)
        yield


def _states() -> list[list[Record]]:
    log = _filled(SimulatedDisk(random.Random(1)))
    return [read_all(log), *(read_all(log) for _ in _swaps(log))]


def _check(disk: SimulatedDisk, allowed: list[list[Record]], recovery_point: int) -> int:
    """Open what is there, twice: the second time after a clean stop. Which of the states it is."""
    log, recovery = reopen(DIRECTORY, LogState(False, recovery_point), disk, **CONFIG)
    found = read_all(log)
    assert found in allowed
    assert (recovery.dropped_bytes, recovery.dropped_segments) == (0, 0)
    assert log.producers.entries[1].last_sequence == 4
    names = disk.list_dir(DIRECTORY)
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    log.close()
    again, _ = reopen(DIRECTORY, LogState(is_clean=True), disk, **CONFIG)
    assert read_all(again) == found
    return allowed.index(found)


def _crash_in(work: Callable[[], object], disk: CrashingDisk, after: int) -> bool:
    disk.changes_left = after
    crashed = True
    with suppress(Crash):
        work()
        crashed = False
    disk.changes_left = -1
    return crashed


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_at_any_step_leaves_the_old_or_the_new(power_cut: bool) -> None:
    states = _states()
    assert len(states) > 3
    seen = []
    for step in range(10_000):
        disk = CrashingDisk(random.Random(step))
        log = _filled(disk)
        recovery_point = log.recovery_point
        job_of(log)
        crashed = _crash_in(partial(list, _swaps(log)), disk, step)
        if power_cut:
            disk.power_cut()
        seen.append(_check(disk, states, recovery_point))
        if not crashed:
            break
    if not power_cut:  # whose losses are drawn, and may take back the step before
        assert seen == sorted(seen)
    assert set(seen) == {states.index(state) for state in states}  # the last swap may have had nothing to remove


def test_a_crash_while_a_swap_is_brought_to_its_end_changes_nothing() -> None:
    """Dies when the log file has got its new name, and again at any step of the start that follows."""
    states = _states()
    crashed, step = True, 0
    while crashed:
        disk = CrashingDisk(random.Random(step))
        log = _filled(disk)
        _decide_first_swap(log)
        state = LogState(False, log.recovery_point)
        crashed = _crash_in(partial(reopen, DIRECTORY, state, disk, **CONFIG), disk, step)
        if step % 2:
            disk.power_cut()
        assert _check(disk, states, log.recovery_point) == 1
        step += 1
    assert step > 5


def _decide_first_swap(log: Log) -> None:
    group = next(clean(log.disk, job_of(log)))
    for name in log.disk.list_dir(DIRECTORY):
        if name.endswith(".cleaned"):
            log.disk.rename(f"{DIRECTORY}/{name}", f"{DIRECTORY}/{name.removesuffix('.cleaned')}.swap")
    log.disk.sync_dir(DIRECTORY)
    assert group.base_offsets[0] == 0


def test_a_swap_that_was_not_decided_is_undone() -> None:
    disk = SimulatedDisk(random.Random(1))
    log = _filled(disk)
    expected = read_all(log)
    assert len(list(clean(disk, job_of(log)))) > 2
    for name in disk.list_dir(DIRECTORY):  # all but the log files were renamed
        if name.endswith("index.cleaned"):
            disk.rename(f"{DIRECTORY}/{name}", f"{DIRECTORY}/{name.removesuffix('.cleaned')}.swap")
    again, recovery = reopen(DIRECTORY, LogState(False, log.recovery_point), disk, **CONFIG)
    assert read_all(again) == expected
    assert recovery.scanned_segments == 1
    assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith((".cleaned", ".swap"))]
