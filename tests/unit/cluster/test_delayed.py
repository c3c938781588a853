"""Requests that wait are completed exactly once: when they have what they want, or cannot get it, or time is up."""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.cluster.delayed import DelayedFetch, DelayedProduce
from barnabas.core.errors import ErrorCode
from barnabas.records.control import ControlType, EndMarker
from tests.unit.cluster.test_partition import OTHER, Bench, registration
from tests.unit.storage.storage_helpers import NOW_MS


class Timer:
    """A timer that fires when the test says so."""

    def __init__(self) -> None:
        self.seconds = -1.0
        self.callback: Callable[[], None] | None = None

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        self.seconds, self.callback = seconds, callback
        return cast(TimerHandle, self)

    def cancel(self) -> None:
        self.callback = None

    @property
    def is_running(self) -> bool:
        return self.callback is not None

    def fire(self) -> None:
        assert self.callback is not None
        callback, self.callback = self.callback, None
        callback()


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def benches(tmp_path: Path) -> list[Bench]:
    """Two partitions in which nothing counts before it is flushed."""
    return [Bench(tmp_path / name, flush_messages=1) for name in ("a", "b")]


def waiting(timer: Timer, benches: list[Bench]) -> list[dict[int, ErrorCode]]:
    """A produce of one batch to each partition; where its outcomes will be."""
    done: list[dict[int, ErrorCode]] = []
    delayed = DelayedProduce(timer.call_later, 3.0, done.append)
    for item, bench in enumerate(benches):
        delayed.wait_for(item, bench.partition, bench.append(), -1)
    return done


def test_a_produce_is_done_when_its_last_partition_is(timer: Timer, benches: list[Bench]) -> None:
    done = waiting(timer, benches)
    assert timer.seconds == 3.0
    benches[1].flush()
    assert done == []
    benches[0].flush()
    assert done == [{0: ErrorCode.NONE, 1: ErrorCode.NONE}]
    assert not timer.is_running


def test_a_produce_tells_partition_by_partition_what_time_did_not_suffice_for(
    timer: Timer, benches: list[Bench]
) -> None:
    done = waiting(timer, benches)
    benches[1].flush()
    timer.fire()
    assert done == [{1: ErrorCode.NONE, 0: ErrorCode.REQUEST_TIMED_OUT}]
    benches[0].flush()
    assert len(done) == 1


def test_a_produce_learns_of_lost_leadership(timer: Timer, benches: list[Bench]) -> None:
    done = waiting(timer, benches)
    benches[0].partition.update(registration(leader=OTHER, leader_epoch=1))
    benches[1].flush()
    assert done == [{0: ErrorCode.NOT_LEADER_OR_FOLLOWER, 1: ErrorCode.NONE}]


class Fetch:
    """A fetch that waits in two partitions, and how often it was completed."""

    def __init__(self, timer: Timer, benches: list[Bench], missing_bytes: int, *, read_committed: bool = False) -> None:
        self.completed = 0
        partitions = [bench.partition for bench in benches]
        self.delayed = DelayedFetch(
            timer.call_later, 0.5, missing_bytes, partitions, self._complete, read_committed=read_committed
        )

    def _complete(self) -> None:
        self.completed += 1


@pytest.fixture
def open_benches(tmp_path: Path) -> list[Bench]:
    return [Bench(tmp_path / name) for name in ("a", "b")]


def test_a_fetch_is_done_when_enough_has_arrived_anywhere(timer: Timer, open_benches: list[Bench]) -> None:
    size = open_benches[0].append(b"x").size_bytes
    fetch = Fetch(timer, open_benches, 3 * size)
    open_benches[0].append(b"x")
    open_benches[1].append(b"x")
    assert fetch.completed == 0
    open_benches[0].append(b"x")
    assert fetch.completed == 1
    assert not timer.is_running
    open_benches[0].append(b"x")
    assert fetch.completed == 1


def commit(bench: Bench) -> None:
    bench.partition.append_end_marker(EndMarker(ControlType.COMMIT, 0), 7, 0, 0, NOW_MS)


def test_a_fetch_of_committed_records_is_not_woken_by_an_open_transaction(
    timer: Timer, open_benches: list[Bench]
) -> None:
    fetch = Fetch(timer, open_benches, 200, read_committed=True)
    for sequence in range(5):
        open_benches[0].append(b"x" * 100, producer=(7, 0, sequence), transactional=True)
        open_benches[0].append(b"x" * 100)
    assert fetch.completed == 0
    commit(open_benches[0])
    assert fetch.completed == 1


def test_a_fetch_of_committed_records_that_begins_within_a_transaction_is_woken_by_its_end(
    timer: Timer, open_benches: list[Bench]
) -> None:
    open_benches[0].append(b"x" * 1000, producer=(7, 0, 0), transactional=True)
    fetch = Fetch(timer, open_benches, 500, read_committed=True)
    open_benches[0].append(b"x")
    assert fetch.completed == 0
    commit(open_benches[0])
    assert fetch.completed == 1


def test_without_transactions_committed_records_count_as_they_come(timer: Timer, open_benches: list[Bench]) -> None:
    fetch = Fetch(timer, open_benches, 500, read_committed=True)
    for _ in range(2):
        open_benches[0].append(b"x" * 100)
        assert fetch.completed == 0
    open_benches[1].append(b"x" * 100)
    assert fetch.completed == 1


def test_a_fetch_is_done_when_time_is_up(timer: Timer, open_benches: list[Bench]) -> None:
    fetch = Fetch(timer, open_benches, 1000)
    assert timer.seconds == 0.5
    timer.fire()
    assert fetch.completed == 1
    open_benches[0].append(b"x" * 2000)
    assert fetch.completed == 1


def test_a_fetch_is_done_when_one_of_its_partitions_changes_hands(timer: Timer, open_benches: list[Bench]) -> None:
    fetch = Fetch(timer, open_benches, 1000)
    open_benches[1].partition.update(registration(leader=OTHER, leader_epoch=1))
    assert fetch.completed == 1
    open_benches[0].partition.update(registration(leader=OTHER, leader_epoch=1))
    assert fetch.completed == 1


def test_an_abandoned_fetch_holds_nothing_and_completes_never(timer: Timer, open_benches: list[Bench]) -> None:
    fetch = Fetch(timer, open_benches, 1)
    fetch.delayed.abandon()
    assert not timer.is_running
    assert not any(bench.partition._watchers for bench in open_benches)
    open_benches[0].append()
    fetch.delayed.complete()
    assert fetch.completed == 0


def test_a_fetch_may_be_abandoned_after_it_is_done(timer: Timer, open_benches: list[Bench]) -> None:
    fetch = Fetch(timer, open_benches, 1)
    open_benches[0].append()
    fetch.delayed.abandon()
    assert fetch.completed == 1


def test_a_completion_may_append_again(timer: Timer, open_benches: list[Bench]) -> None:
    """What a reply sets free is served at once, and may write to the very partition that woke it."""
    appended: list[Any] = []
    partition = open_benches[0].partition
    DelayedFetch(timer.call_later, 1, 1, [partition], lambda: appended.append(open_benches[0].append(b"second")))
    later = Fetch(Timer(), open_benches, 1)
    open_benches[0].append(b"first")
    assert [info.first_offset for info in appended] == [1]
    assert open_benches[0].log.high_watermark == 2
    assert later.completed == 1
