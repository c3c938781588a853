"""Which logs want compaction, and the rounds that give it to them, one at a time.

A log's segments are clean up to `first_dirty_offset`, then dirty. May be cleaned what is sealed and synced, below the
last stable offset, and older than `min.compaction.lag.ms`. A log is due when more than `min.cleanable.dirty.ratio` of
that is dirty, or when a dirty record is older than `max.compaction.lag.ms`; the dirtiest comes first.

The work (`cleaning`) is done by a runner, in another process in a real broker. The loop, which owns the logs, then
swaps in group after group. A round that finds its log changed below it (truncated, deleted, shortened by retention)
is given up, and nothing of it remains.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple, Protocol

from barnabas.core import logs
from barnabas.core.seams import Clock, Disk, Executor
from barnabas.storage import swap
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.cleaning import CannotClean, CleanedGroup, CleaningJob, SegmentFile, clean
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment

_SECRET_BYTES = 16
_FOREVER = 2**63 - 1

_log = logs.get_logger(__name__)


class WorkerDied(Exception):
    """The process that cleaned is gone; a later round begins anew."""


class Runner(Protocol):
    """Where cleaning is done. Iterating blocks; `stop` may be called meanwhile, and ends it soon."""

    def clean(self, job: CleaningJob) -> Iterator[CleanedGroup]: ...

    def stop(self) -> None:
        """Let go of what idle work holds."""
        ...


class InlineRunner:
    """Cleaning in the process that asks for it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def clean(self, job: CleaningJob) -> Iterator[CleanedGroup]:
        return clean(self._disk, job)

    def stop(self) -> None:
        pass


class Settings(Protocol):
    """The broker's configuration, by Kafka's names."""

    def __getitem__(self, name: str) -> Any: ...


class LogHost(Protocol):
    """What the cleaner needs of the manager of the logs."""

    @property
    def logs(self) -> Mapping[TopicPartition, Log]: ...

    def fail(self, log: Log, error: OSError) -> object: ...

    async def checkpoint_log(self, log: Log) -> None:
        """Write down the offsets of the directory that a log is in."""
        ...


class Cleanable(NamedTuple):
    """What could be cleaned of a log."""

    log: Log
    segments: list[Segment]
    end_offset: int
    first_dirty_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / ((self.clean_bytes + self.dirty_bytes) or 1)

    @property
    def is_due(self) -> bool:
        return self.dirty_bytes > 0 and (
            self.is_overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio
        )


def examine(log: Log, now_ms: int) -> Cleanable:
    """The segments that may be cleaned, from the log's first, and how much of them is dirty."""
    config = log.config
    first_dirty = log.first_dirty_offset
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset
    stable = min(log.last_stable_offset, log.recovery_point)
    chosen: list[Segment] = []
    end_offset = log.segments.first.base_offset
    clean_bytes = dirty_bytes = 0
    earliest_ms = _FOREVER
    segments = list(log.segments)
    for segment, following in pairwise(segments):
        if following.base_offset > stable or not segment.saved:
            break
        if following.base_offset <= first_dirty:
            clean_bytes += segment.size
        else:
            if config.min_compaction_lag_ms > 0 and segment.max_timestamp > now_ms - config.min_compaction_lag_ms:
                break
            if config.max_compaction_lag_ms < _FOREVER and segment.first_timestamp > 0:
                earliest_ms = min(earliest_ms, segment.first_timestamp)
            dirty_bytes += segment.size
        chosen.append(segment)
        end_offset = following.base_offset
    is_overdue = earliest_ms < now_ms - config.max_compaction_lag_ms
    return Cleanable(log, chosen, end_offset, first_dirty, clean_bytes, dirty_bytes, is_overdue)


def job_for(found: Cleanable, now_ms: int, config: Settings, secret: bytes) -> CleaningJob:
    """One round over all that may be cleaned of a log."""
    log = found.log
    ends = [segment.base_offset for segment in found.segments[1:]] + [found.end_offset]
    producers = log.producers.entries.values()
    return CleaningJob(
        directory=log.directory,
        config=log.config,
        segments=tuple(
            SegmentFile(segment.base_offset, end_offset, segment.size)
            for segment, end_offset in zip(found.segments, ends)
        ),
        first_dirty_offset=found.first_dirty_offset,
        aborted=tuple(log.aborted_transactions(0, found.end_offset)),
        remembered_offsets=frozenset(batch.last_offset for entry in producers for batch in entry.batches),
        remembered_epochs={entry.producer_id: entry.epoch for entry in producers if not entry.batches},
        now_ms=now_ms,
        dedupe_buffer_bytes=config["log.cleaner.dedupe.buffer.size"],
        dedupe_load_factor=config["log.cleaner.io.buffer.load.factor"],
        io_buffer_bytes=config["log.cleaner.io.buffer.size"],
        secret=secret,
    )


class Totals(NamedTuple):
    """The rounds that were brought to their end so far."""

    rounds: int = 0
    seconds: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0


class Cleaner:
    """Owned by the event loop."""

    def __init__(
        self,
        host: LogHost,
        runner: Runner,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        config: Settings,
        random: Random,
    ) -> None:
        self._host = host
        self._runner = runner
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._config = config
        self._random = random
        self._uncleanable: set[Log] = set()
        self.totals = Totals()

    @property
    def uncleanable_logs(self) -> int:
        """Logs that are damaged, and grow for want of compaction; a restart tries them again."""
        return len(self._uncleanable)

    async def sweep(self) -> None:
        """Clean what is due, the dirtiest log first, until nothing is."""
        try:
            is_progress = True
            while is_progress:
                is_progress = False
                for log in self._due():
                    found = examine(log, self._clock.now_ms())
                    if self._is_current(log) and found.is_due and await self._clean(found):
                        is_progress = True
            await self._executor.submit(self._runner.stop)
        except asyncio.CancelledError:
            self._runner.stop()  # also if that was to be done by a thread: what has not begun is dropped
            raise

    def _due(self) -> list[Log]:
        now_ms = self._clock.now_ms()
        self._uncleanable &= set(self._host.logs.values())
        due = [
            found
            for log in self._host.logs.values()
            if log.config.is_compacted and not log.is_offline and log not in self._uncleanable
            if (found := examine(log, now_ms)).is_due
        ]
        return [found.log for found in sorted(due, key=lambda found: found.dirty_ratio, reverse=True)]

    async def _clean(self, found: Cleanable) -> bool:
        """One round; whether the log is cleaner now."""
        log = found.log
        started = self._clock.monotonic()
        # Below the recovery point that a restart knows, gaps in the offsets are no sign of damage.
        await self._host.checkpoint_log(log)
        sizes = {segment: segment.size for segment in found.segments}
        swapped: list[CleanedGroup] = []
        secret = self._random.randbytes(_SECRET_BYTES)
        groups = self._runner.clean(job_for(found, self._clock.now_ms(), self._config, secret))
        try:
            while (group := await self._executor.submit(next, groups, None)) is not None:
                if not self._is_unchanged(log, sizes, group.base_offsets):
                    break
                old = [segment for segment in sizes if segment.base_offset in group.base_offsets]
                swap.replace_segments(log, old, group.size)
                await self._executor.submit(self._disk.sync_dir, log.directory)
                swapped.append(group)
            else:
                self._done(log, swapped, self._clock.monotonic() - started)
                await self._host.checkpoint_log(log)
                return True
            _log.info("compaction given up, as the log has changed", topic=log.topic, partition=log.partition)
        except CannotClean as error:
            self._uncleanable.add(log)
            _log.error("log cannot be compacted", topic=log.topic, partition=log.partition, problem=error)
        except OSError as error:
            self._failed(log, error)
        except WorkerDied as error:
            _log.warning("compaction failed", topic=log.topic, partition=log.partition, problem=error)
        await self._tidy(log, sizes)
        return False

    def _is_current(self, log: Log) -> bool:
        return self._host.logs.get((log.topic, log.partition)) is log and not log.is_offline

    def _is_unchanged(self, log: Log, sizes: Mapping[Segment, int], base_offsets: Iterable[int]) -> bool:
        """Whether the log still has the segments that a group was made from, as they were then."""
        if not self._is_current(log):
            return False
        present = {segment.base_offset: segment for segment in log.segments if segment is not log.segments.active}
        return all(offset in present and sizes.get(present[offset]) == present[offset].size for offset in base_offsets)

    def _done(self, log: Log, groups: list[CleanedGroup], seconds: float) -> None:
        log.first_dirty_offset = groups[-1].end_offset
        read_bytes, written_bytes = sum(group.old_size for group in groups), sum(group.size for group in groups)
        before = self.totals
        self.totals = Totals(
            before.rounds + 1,
            before.seconds + seconds,
            before.read_bytes + read_bytes,
            before.written_bytes + written_bytes,
        )
        _log.info(
            "log compacted",
            topic=log.topic,
            partition=log.partition,
            first_dirty_offset=log.first_dirty_offset,
            segments=sum(len(group.base_offsets) for group in groups),
            segments_left=len(groups),
            size_bytes=read_bytes,
            size_bytes_left=written_bytes,
            seconds=round(seconds, 3),
        )

    def _failed(self, log: Log, error: OSError) -> None:
        if not self._is_current(log):
            return  # it was deleted, or lost, while its files were read
        if error.errno == errno.ENOSPC:
            _log.error("no space to compact a log", topic=log.topic, partition=log.partition, problem=error)
        else:
            self._host.fail(log, error)

    async def _tidy(self, log: Log, sizes: Iterable[Segment]) -> None:
        if self._is_current(log):
            base_offsets = [segment.base_offset for segment in sizes]
            try:
                await self._executor.submit(swap.remove_cleaned, self._disk, log.directory, base_offsets)
            except OSError as error:
                self._host.fail(log, error)
