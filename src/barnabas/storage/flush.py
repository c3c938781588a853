"""Syncing a log to the disk, in three steps of which only the middle one blocks.

    prepare (loop)   what has to be on disk: segment files, the indexes of sealed segments, snapshots, leader epochs
    run (thread)     write and sync them
    complete (loop)  the recovery point moves to where the log ended when it was prepared

The data go first: a crash in between leaves a log whose tail is scanned again. Because that scan always takes in the
whole segment of the recovery point, the indexes of the segment that is written to need not be synced with it.
"""

from __future__ import annotations

import os
from asyncio import CancelledError, Future, get_running_loop, wait
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


class Flusher:
    """Flushes of one log: one at a time, and all who ask while one is under way share the next."""

    __slots__ = ("_clock", "_executor", "_log", "_next", "_on_error", "_on_fsync", "_running", "flushed_at")

    def __init__(
        self,
        log: Log,
        clock: Clock,
        executor: Executor,
        on_fsync: Callable[[float], None],
        on_error: Callable[[Log, OSError], object],
    ) -> None:
        self._log = log
        self._clock = clock
        self._executor = executor
        self._on_fsync = on_fsync
        self._on_error = on_error
        self._running: Future[int] | None = None
        self._next: Future[int] | None = None
        self.flushed_at = clock.monotonic()
        """When the last flush began."""

    def flush(self) -> Future[int]:
        """Give the offset up to which the log is synced, once that is at least its present end; or an OSError."""
        if self._running is None:
            return self._start(get_running_loop().create_future())
        if self._next is None:
            self._next = get_running_loop().create_future()
        return self._next

    async def idle(self) -> None:
        """Wait until no flush is under way."""
        while self._running is not None:
            await wait([self._next or self._running])

    def _start(self, promise: Future[int]) -> Future[int]:
        self._running = promise
        self.flushed_at = self._clock.monotonic()
        try:
            job = self._log.prepare_flush()
        except OSError as error:
            self._fail(error)
        else:
            run = self._executor.submit(job.run, self._log.disk)
            run.add_done_callback(lambda done: self._finish(job, done))
        return promise

    def _finish(self, job: FlushJob, done: Future[None]) -> None:
        error = CancelledError() if done.cancelled() else done.exception()
        if isinstance(error, OSError):
            self._fail(error)
            return
        promise, self._running = self._running, None
        assert promise is not None
        if error is None:
            self._on_fsync(self._clock.monotonic() - self.flushed_at)
            self._log.complete_flush(job)
        if promise.done():
            pass  # whoever waited has given up
        elif error is None:
            promise.set_result(self._log.flushed_offset)
        elif isinstance(error, CancelledError):
            promise.cancel()
        else:
            promise.set_exception(error)
        following, self._next = self._next, None
        if following is not None:
            self._start(following)

    def _fail(self, error: OSError) -> None:
        promises = (self._running, self._next)
        self._running = self._next = None
        self._on_error(self._log, error)
        for promise in promises:
            if promise is not None and not promise.done():
                promise.set_exception(error)
