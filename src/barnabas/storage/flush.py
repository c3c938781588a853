"""Syncing a log to the disk, in three steps of which only the middle one blocks.

    prepare (loop)   what has to be on disk: segment files, the indexes of sealed segments, snapshots, leader epochs
    run (thread)     write and sync them
    complete (loop)  the recovery point moves to where the log ended when it was prepared

The data go first: a crash in between leaves a log whose tail is scanned again. Because that scan always takes in the
whole segment of the recovery point, the indexes of the segment that is written to need not be synced with it.
"""

from __future__ import annotations

import os
from asyncio import Future
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.core.seams import Clock, Disk, Executor, File

if TYPE_CHECKING:
    from barnabas.storage.log import Log
    from barnabas.storage.segment import Segment


class FlushJob(NamedTuple):
    end_offset: int
    truncations: int
    files: list[File]
    sealed: list[Segment]
    writes: list[tuple[str, bytes]]
    directories: list[str]

    def run(self, disk: Disk) -> None:
        for file in self.files:
            file.sync()
        directories = set(self.directories)
        for path, data in self.writes:  # as Disk.replace does it, but with one sync of the directory for all
            file = disk.open(f"{path}.tmp", create=True)
            file.truncate(0)
            file.append(data)
            file.sync()
            file.close()
            disk.rename(f"{path}.tmp", path)
            directories.add(os.path.dirname(path))
        for directory in sorted(directories):
            disk.sync_dir(directory)


class FsyncTimes:
    """How often and for how long flushes kept a thread, in buckets as Prometheus wants them."""

    BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

    __slots__ = ("buckets", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.buckets = [0] * len(self.BOUNDS)
        """For each bound, how many took at most that long."""

    def observe(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        for slot, bound in enumerate(self.BOUNDS):
            self.buckets[slot] += seconds <= bound


class Flusher:
    """Flushes of one log: one at a time, and all who ask while one is under way share the next."""

    __slots__ = ("_clock", "_disk", "_executor", "_log", "_on_error", "_running", "_times", "_waiting")

    def __init__(
        self,
        log: Log,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        times: FsyncTimes,
        on_error: Callable[[Log, OSError], Exception],
    ) -> None:
        self._log = log
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._times = times
        self._on_error = on_error
        self._running: list[Future[int]] = []
        self._waiting: list[Future[int]] = []

    @property
    def is_idle(self) -> bool:
        return not self._running

    def flush(self, future: Future[int]) -> None:
        """Resolve `future` with an offset that is at least the log's present end, once all below it is synced."""
        if self._running:
            self._waiting.append(future)
        else:
            self._start([future])

    def _start(self, waiters: list[Future[int]]) -> None:
        self._running = waiters
        started = self._clock.monotonic()
        try:
            job = self._log.prepare_flush()
        except OSError as error:
            self._fail(error)
            return
        run = self._executor.submit(job.run, self._disk)
        run.add_done_callback(lambda done: self._finish(job, started, done))

    def _finish(self, job: FlushJob, started: float, done: Future[None]) -> None:
        if done.cancelled():
            for waiter in self._running + self._waiting:
                waiter.cancel()
            return
        error = done.exception()
        if error is None:
            self._times.observe(self._clock.monotonic() - started)
            self._log.complete_flush(job)
            self._settle(lambda waiter: waiter.set_result(self._log.flushed_offset))
        elif isinstance(error, OSError):
            self._fail(error)
        else:
            self._settle(lambda waiter: waiter.set_exception(error))

    def _fail(self, error: OSError) -> None:
        reported = self._on_error(self._log, error)
        self._waiting, self._running = [], self._running + self._waiting
        self._settle(lambda waiter: waiter.set_exception(reported))

    def _settle(self, settle: Callable[[Future[int]], None]) -> None:
        finished, self._running = self._running, []
        for waiter in finished:
            if not waiter.done():
                settle(waiter)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._start(waiting)
