"""One partition: who may write and read, how far, and who is told when that changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster.image import Partition as Registration
from barnabas.cluster.partition import READ_COMMITTED, Partition
from barnabas.cluster.waiters import OffsetWaiters
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.storage.log_config import LogConfig
from tests.unit.storage.storage_helpers import NOW_MS, batch, new_log

ME, OTHER = 1, 2


def registration(
    leader: int = ME,
    leader_epoch: int = 0,
    replicas: tuple[int, ...] = (ME,),
    isr: tuple[int, ...] = (ME,),
    partition_epoch: int = 0,
) -> Registration:
    return Registration(replicas, isr, leader, leader_epoch, partition_epoch)


class Watcher:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def data_arrived(self, partition: Partition, size_bytes: int) -> None:
        self.told.append(size_bytes)


class Bench:
    """A partition on a real log whose flushes are the test's to finish."""

    def __init__(self, directory: Path, lead: bool = True, **config: Any) -> None:
        self.flushes: list[Partition] = []
        self.log = new_log(directory / "topic-0", **config)
        self.partition = Partition(ME, self.log, self.flushes.append)
        if lead:
            self.partition.update(registration())

    def append(self, *values: bytes, acks: int = -1, **options: Any) -> Any:
        return self.partition.append(batch(values or (b"value",), **options), NOW_MS, acks)

    def flush(self) -> None:
        """Finish a flush of everything that is there now."""
        self.log.complete_flush(self.log.prepare_flush())
        self.partition.flushed(self.log.flushed_offset)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(KafkaError) as caught:
        yield
    assert caught.value.code is code


# writing


def test_with_one_replica_an_append_is_committed_at_once(bench: Bench) -> None:
    info = bench.append(b"a", b"b")
    assert (info.first_offset, info.last_offset) == (0, 1)
    assert bench.log.high_watermark == 2
    assert all(bench.partition.is_acknowledged(info, acks) for acks in (-1, 1))


def test_only_the_leader_takes_appends(tmp_path: Path) -> None:
    bench = Bench(tmp_path, lead=False)
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        bench.append()
    bench.partition.update(registration(leader=OTHER, replicas=(OTHER, ME), isr=(OTHER, ME)))
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        bench.append()
    assert bench.log.log_end_offset == 0


def test_too_few_in_sync_replicas_refuse_only_those_who_ask_for_all(tmp_path: Path) -> None:
    bench = Bench(tmp_path, lead=False, min_insync_replicas=2)
    bench.partition.update(registration(replicas=(ME, OTHER), isr=(ME,)))
    with refused(ErrorCode.NOT_ENOUGH_REPLICAS):
        bench.append(acks=-1)
    info = bench.append(acks=1)
    assert bench.partition.is_acknowledged(info, 1)
    assert bench.log.high_watermark == 0  # and nobody reads what is not committed
    bench.partition.reconfigure(LogConfig(min_insync_replicas=1))
    assert bench.log.high_watermark == 1


def test_a_lone_replica_cannot_be_asked_to_have_company(tmp_path: Path) -> None:
    bench = Bench(tmp_path, min_insync_replicas=3)
    assert bench.partition.is_acknowledged(bench.append(acks=-1), -1)


def test_the_batch_carries_the_leader_epoch_and_the_epoch_its_first_offset(bench: Bench) -> None:
    bench.append()
    bench.partition.update(registration(leader_epoch=5))
    assert bench.append().leader_epoch == 5
    assert bench.log.epoch_of(0) == 0
    assert bench.log.epoch_of(1) == 5


def test_a_duplicate_is_acknowledged_with_its_first_offset_and_wakes_nobody(bench: Bench) -> None:
    first = bench.append(b"a", producer=(9, 0, 0))
    bench.append(b"b", producer=(9, 0, 1))
    watcher = Watcher()
    bench.partition.watch(watcher)
    again = bench.append(b"a", producer=(9, 0, 0))
    assert again.duplicate
    assert again.first_offset == first.first_offset
    assert bench.partition.is_acknowledged(again, -1)
    assert watcher.told == []


# flushing before the acknowledgement


def test_nothing_is_read_or_acknowledged_before_the_flush_that_must_precede_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_messages=1)
    info = bench.append(b"a")
    outcomes: list[tuple[int, ErrorCode]] = []
    for acks in (-1, 1):
        assert not bench.partition.is_acknowledged(info, acks)
        bench.partition.when_acknowledged(info, acks, lambda code, acks=acks: outcomes.append((acks, code)))  # type: ignore[misc]
    assert bench.flushes == [bench.partition]
    assert bench.log.high_watermark == 0
    assert len(bench.partition.read(0, 1000, 0, -1, True)) == 0
    bench.flush()
    assert sorted(outcomes) == [(-1, ErrorCode.NONE), (1, ErrorCode.NONE)]
    assert len(bench.partition.read(0, 1000, 0, -1, True)) > 0


def test_a_flush_covers_only_what_was_there_when_it_began(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_messages=1)
    first = bench.append(b"a")
    began = bench.log.prepare_flush()
    second = bench.append(b"b")
    bench.log.complete_flush(began)
    bench.partition.flushed(bench.log.flushed_offset)
    assert bench.partition.is_acknowledged(first, -1)
    assert not bench.partition.is_acknowledged(second, -1)
    assert bench.log.high_watermark == 1
    bench.flush()
    assert bench.partition.is_acknowledged(second, -1)


def test_appends_below_the_limit_wait_for_a_flush_that_is_already_due(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_messages=2)
    assert bench.partition.is_acknowledged(bench.append(b"a"), -1)
    due = bench.append(b"b", b"c")
    assert not bench.partition.is_acknowledged(due, -1)
    bench.flush()
    assert bench.partition.is_acknowledged(due, -1)
    assert bench.partition.is_acknowledged(bench.append(b"d"), -1)


def test_a_new_epoch_does_not_acknowledge_what_is_still_being_flushed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_messages=1)
    info = bench.append(b"a")
    bench.partition.update(registration(leader_epoch=1))
    assert not bench.partition.is_acknowledged(info, 1)
    assert bench.log.high_watermark == 0
    bench.flush()
    assert bench.partition.is_acknowledged(info, -1)


def test_a_flush_that_was_waited_for_is_done_even_if_the_log_was_cut_meanwhile(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_messages=2)
    bench.append(b"a")
    bench.append(b"b")
    bench.log.truncate_to(1)
    bench.flush()
    assert bench.partition.is_acknowledged(bench.append(b"c"), -1)


# leadership


def test_waiters_learn_that_leadership_is_lost(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_messages=1)
    info = bench.append()
    outcomes: list[ErrorCode] = []
    for acks in (-1, 1):
        bench.partition.when_acknowledged(info, acks, outcomes.append)
    watcher = Watcher()
    bench.partition.watch(watcher)
    bench.partition.update(registration(leader=OTHER, leader_epoch=1, replicas=(ME, OTHER)))
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert watcher.told == [0]
    bench.flush()
    assert bench.log.high_watermark == 0  # a former leader commits nothing
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


def test_a_change_without_a_new_epoch_keeps_the_leader(bench: Bench) -> None:
    bench.partition.update(registration(leader=OTHER, leader_epoch=0, partition_epoch=7))
    assert bench.partition.is_leader
    assert bench.partition.partition_epoch == 7


@pytest.mark.parametrize(("epoch", "code"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_requests_of_another_epoch_are_refused(bench: Bench, epoch: int, code: ErrorCode) -> None:
    bench.partition.update(registration(leader_epoch=5))
    bench.partition.check_leader(5)
    bench.partition.check_leader()
    with refused(code):
        bench.partition.check_leader(epoch)
    with refused(code):
        bench.partition.read(0, 1000, 0, epoch, True)


# reading


def test_readers_see_committed_records_only_and_transactions_only_when_decided(bench: Bench) -> None:
    bench.append(b"a")
    bench.append(b"open", producer=(9, 0, 0), transactional=True)
    bench.append(b"b")
    assert bench.log.high_watermark == 3
    assert bench.partition.read(0, 10_000, 0, -1, True).next_offset == 3
    assert bench.partition.read(0, 10_000, READ_COMMITTED, -1, True).next_offset == 1
    assert len(bench.partition.read(1, 10_000, READ_COMMITTED, -1, True)) == 0


def test_watchers_are_told_how_much_more_there_is_until_they_leave(bench: Bench) -> None:
    staying, leaving = Watcher(), Watcher()
    bench.partition.watch(staying)
    bench.partition.watch(leaving)
    size = bench.append(b"a").size_bytes
    bench.partition.unwatch(leaving)
    bench.partition.unwatch(leaving)
    bench.append(b"a")
    assert staying.told == [size, size]
    assert leaving.told == [size]


def test_a_watcher_may_leave_while_it_is_told(bench: Bench) -> None:
    class Once(Watcher):
        def data_arrived(self, partition: Partition, size_bytes: int) -> None:
            super().data_arrived(partition, size_bytes)
            partition.unwatch(self)

    watchers = [Once() for _ in range(3)]
    for watcher in watchers:
        bench.partition.watch(watcher)
    bench.append()
    bench.append()
    assert [len(watcher.told) for watcher in watchers] == [1, 1, 1]


# waiters


def test_waiters_are_called_in_the_order_of_their_offsets_and_once() -> None:
    waiters = OffsetWaiters()
    called: list[tuple[str, ErrorCode]] = []

    def note(name: str) -> Any:
        return lambda code: called.append((name, code))

    for offset, name in ((5, "e"), (2, "b"), (5, "f"), (3, "c"), (9, "z")):
        waiters.add(offset, note(name))
    waiters.reached(1)
    assert called == []
    waiters.reached(5)
    assert called == [(name, ErrorCode.NONE) for name in "bcef"]
    waiters.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert called[4:] == [("z", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    waiters.reached(100)
    assert len(called) == 5


def test_a_waiter_may_add_another_while_it_is_called() -> None:
    waiters = OffsetWaiters()
    called: list[str] = []

    def again(_: ErrorCode) -> None:
        called.append("first")
        waiters.add(1, lambda _: called.append("second"))
        waiters.add(9, lambda _: called.append("later"))

    waiters.add(1, again)
    waiters.reached(1)
    assert called == ["first", "second"]
    waiters.fail(ErrorCode.NONE)
    assert called == ["first", "second", "later"]
