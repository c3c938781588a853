"""All logs of a broker, over all its `log.dirs`, and the work that goes on behind them.

Logs are opened one by one as the broker learns which partitions it hosts: each with its topic's settings, and
recovered first if the directory was not closed cleanly. Flushes, removals, recovery and checkpoints run in the
executor; what they find out is applied back on the loop, which owns all state here.

A directory whose disk fails goes offline with its logs, and nothing in it is touched again; the others go on.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Protocol

from barnabas.core import ids, logs
from barnabas.core.errors import KafkaError
from barnabas.core.seams import Clock, Disk, Executor
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.cleaner import Cleaner, InlineRunner, Runner
from barnabas.storage.directory import DELETE_SUFFIX, STRAY_SUFFIX, LogDirectory
from barnabas.storage.flush import Flusher
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.recovery import Recovery, create_log, open_log
from barnabas.storage.scrubber import INTERVAL as SCRUB_INTERVAL
from barnabas.storage.scrubber import Scrubber

_LONGEST_SLEEP_S = 3600.0  # some intervals default to 2**63 - 1 ms, which no timer takes
_LONGEST_NAME = 255  # of a file, in most file systems
_MADE_AT_A_TIME = 100  # logs, in one job of the executor
_FLUSH_CHECK_S = 1.0  # how often, at the least, logs are asked whether flush.ms is over

_log = logs.get_logger(__name__)


class Settings(Protocol):
    """The broker's configuration, by Kafka's names."""

    @property
    def log_dirs(self) -> tuple[str, ...]: ...

    def __getitem__(self, name: str) -> Any: ...


class StorageMetrics(Protocol):
    def fsync(self, seconds: float) -> None: ...

    def recovered(self, scanned_bytes: int, dropped_bytes: int, seconds: float) -> None: ...


class LogManager:
    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        config: Settings,
        random: Random,
        metrics: StorageMetrics,
        on_offline: Callable[[list[Log]], None] = lambda logs: None,
        cleaning: Runner | None = None,
        on_damage: Callable[[Log, str], None] = lambda log, problem: None,
    ) -> None:
        """`on_offline` learns which logs a failing disk has taken away, and `on_damage` which one has lost records, and
        how; `cleaning` does the work of compaction.
        """
        self._disk = disk
        self.clock = clock
        self._executor = executor
        self._config = config
        self._random = random
        self._metrics = metrics
        self._on_offline = on_offline
        self.directories = [LogDirectory(disk, path) for path in config.log_dirs]
        self.logs: dict[TopicPartition, Log] = {}
        self._closed_logs: dict[TopicPartition, LogDirectory] = {}  # found on disk, not opened so far
        self.unreadable_logs: dict[TopicPartition, LogDirectory] = {}
        """Found on disk, but too damaged to be opened."""
        self.is_taken_up = False
        """Whether every log that was found when the broker started has been opened, or is nobody's."""
        self._flushers: dict[Log, Flusher] = {}
        self._writing: dict[LogDirectory, asyncio.Lock] = {}
        self._removals: set[asyncio.TimerHandle] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._checkpoints_due: dict[LogDirectory, None] = {}
        self.cleaner = Cleaner(self, cleaning or InlineRunner(disk), disk, clock, executor, config, random)
        self.scrubber = Scrubber(self, disk, clock, executor, config, random, on_damage)

    # life

    async def open(self, broker_id: int, cluster_id: str) -> None:
        """Lock the directories and find the logs in them. One that cannot be read is left offline; not if all are."""
        for directory in self.directories:
            self._writing[directory] = asyncio.Lock()
            try:
                found = await self._executor.submit(directory.open, broker_id, cluster_id, self._random)
            except OSError as error:
                self.take_offline(directory, error)
                continue
            for partition in found:
                first = self._closed_logs.setdefault(partition, directory)
                if first is not directory:
                    _log.error("partition found twice", topic=partition[0], partition=partition[1],
                               used=first.path, ignored=directory.path)  # fmt: skip
        if all(directory.is_offline for directory in self.directories):
            raise OSError(errno.EIO, f"none of log.dirs={','.join(self._config.log_dirs)} can be used")

    def start_background_work(self) -> None:
        """Every log that the broker had when it stopped has been asked for by now."""
        self.is_taken_up = True
        self._every("log.retention.check.interval.ms", self._delete_old_segments)
        if self._config["log.cleaner.enable"]:
            self._every("log.cleaner.backoff.ms", self.cleaner.sweep)
        if self._config[SCRUB_INTERVAL] >= 0:
            self._spawn(self.scrubber.run())
        self._spawn(self.scrubber.look_at_suspects())
        self._every("log.flush.scheduler.interval.ms", self._flush_by_time, at_most_s=_FLUSH_CHECK_S)
        self._every("log.flush.offset.checkpoint.interval.ms", self.checkpoint)
        self._every("log.flush.start.offset.checkpoint.interval.ms", self.checkpoint)
        self._every("replica.high.watermark.checkpoint.interval.ms", self.checkpoint)
        self._every("producer.id.expiration.check.interval.ms", self._expire_producers)

    async def close(self, broker_epoch: int = checkpoints.UNKNOWN_BROKER_EPOCH) -> None:
        """Sync and close every log, and mark the directories that are whole as closed."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for removal in self._removals:
            removal.cancel()
        await asyncio.gather(*map(self._close_log, list(self.logs.values())))
        for directory in self.directories:
            if not directory.is_offline:
                await self._checkpoint_directory(directory)
            if not directory.is_offline:
                try:
                    await self._executor.submit(directory.mark_clean, broker_epoch)
                except OSError as error:
                    self.take_offline(directory, error)
            directory.release()
        self.logs.clear()

    async def _close_log(self, log: Log) -> None:
        try:
            await self._flushers[log].idle()
            if not log.is_offline:
                job = log.prepare_flush(closing=True)
                if job.files or job.writes or job.directories:
                    await self._executor.submit(job.run, self._disk)
                log.complete_flush(job)
                log.release()
        except OSError as error:
            self.fail(log, error)

    # logs

    def get(self, topic: str, partition: int) -> Log | None:
        return self.logs.get((topic, partition))

    async def get_or_create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        """The log of a partition, opened and if need be recovered, or made; OSError if its disk does not allow it."""
        key = (topic, partition)
        log = self.logs.get(key)
        if log is not None:
            return log
        directory = self._closed_logs.pop(key, None)
        if directory is not None:
            log = await self._open(directory, topic, partition, topic_id, config)
        if log is None:
            (directory,) = self._places((partition,))
            (log,) = await self._create(directory, topic, (partition,), topic_id, config)
            log.is_short = not self.is_taken_up  # if it was there once, it is gone with all that was in it
        self._add(log)
        return log

    async def create_many(self, topic: str, partitions: Sequence[int], topic_id: bytes, config: LogConfig) -> None:
        """Make the logs of a topic's new partitions, many at a time; OSError if a disk does not allow it."""
        new = [each for each in partitions if (topic, each) not in self.logs and (topic, each) not in self._closed_logs]
        for directory, indexes in self._places(new).items():
            for start in range(0, len(indexes), _MADE_AT_A_TIME):
                some = indexes[start : start + _MADE_AT_A_TIME]
                for log in await self._create(directory, topic, some, topic_id, config):
                    log.is_short = not self.is_taken_up
                    self._add(log)

    def _add(self, log: Log) -> None:
        self.logs[log.topic, log.partition] = log
        log.tasks = self
        self._flushers[log] = Flusher(log, self.clock, self._executor, self._metrics.fsync, self.fail)

    async def _open(
        self, directory: LogDirectory, topic: str, partition: int, topic_id: bytes, config: LogConfig
    ) -> Log | None:
        """The log that was found; None if it is of another topic of the same name, and then set aside."""
        path = f"{directory.path}/{topic}-{partition}"
        state = directory.state_of((topic, partition))
        disk, random, now_ms = self._disk, self._random, self.clock.now_ms()
        started = self.clock.monotonic()

        def open_or_refuse() -> tuple[Log, Recovery] | None:
            try:
                found_id = checkpoints.read_topic_id(disk, path)
            except checkpoints.CorruptCheckpoint as error:  # it is not synced, so a power cut may have torn it
                _log.warning("topic id damaged; written again", directory=path, problem=error)
                found_id = None
            if found_id is None:
                checkpoints.write_topic_id(disk, path, topic_id)
            elif found_id != topic_id:
                return None
            return open_log(disk, path, topic, partition, topic_id, config, random, now_ms, state)

        try:
            opened = await self._executor.submit(open_or_refuse)
            if opened is None:
                await self._set_aside(path)
        except OSError as error:
            self.take_offline(directory, error)
            raise
        except (KafkaError, ValueError):
            self.unreadable_logs[topic, partition] = directory
            raise
        directory.forget((topic, partition))
        if opened is None:
            return None
        log, recovery = opened
        if recovery.scanned_segments:
            seconds = self.clock.monotonic() - started
            self._metrics.recovered(recovery.scanned_bytes, recovery.dropped_bytes, seconds)
        return log

    async def _create(
        self, directory: LogDirectory, topic: str, partitions: Sequence[int], topic_id: bytes, config: LogConfig
    ) -> list[Log]:
        disk, random, now_ms = self._disk, self._random, self.clock.now_ms()

        def create(partition: int) -> Log:
            path = f"{directory.path}/{topic}-{partition}"
            disk.make_dirs(path)
            checkpoints.write_topic_id(disk, path, topic_id)
            return create_log(disk, path, topic, partition, topic_id, config, random, now_ms)

        try:
            return await self._executor.submit(lambda: list(map(create, partitions)))
        except OSError as error:
            self.take_offline(directory, error)
            raise

    def _places(self, partitions: Sequence[int]) -> dict[LogDirectory, list[int]]:
        """Where new logs go: each to the directory with the fewest. Until all are taken up, a log that was not found
        may lie in one that is offline, and is not made again; after that it is a new one.
        """
        offline = [directory.path for directory in self.directories if directory.is_offline]
        if offline and (not self.is_taken_up or len(offline) == len(self.directories)):
            raise OSError(errno.EIO, f"no log is made while a log directory is offline: {', '.join(offline)}")
        usable = [directory for directory in self.directories if not directory.is_offline]
        load = Counter(log.parent_directory for log in self.logs.values())
        places: dict[LogDirectory, list[int]] = {}
        for partition in partitions:
            place = min(usable, key=lambda directory: load[directory.path])
            load[place.path] += 1
            places.setdefault(place, []).append(partition)
        return places

    async def delete(self, log: Log) -> None:
        """Forget a log; its files are renamed at once, and removed after `file.delete.delay.ms`."""
        path = await self._forget(log, DELETE_SUFFIX)
        if path is not None:
            self.remove_tree_later(path, log.config)

    async def replace(self, log: Log) -> str | None:
        """Forget a log, for a new one to take its place; where its files are kept, None if its disk has failed."""
        return await self._forget(log, STRAY_SUFFIX)

    async def put_away(self, topic: str, partition: int) -> str | None:
        """Let go of a log that was too damaged to be opened; where its files are kept, None if it was not that."""
        directory = self.unreadable_logs.pop((topic, partition), None)
        if directory is None or directory.is_offline:
            return None
        try:
            path = await self._rename(f"{directory.path}/{topic}-{partition}", STRAY_SUFFIX)
        except OSError as error:
            self.take_offline(directory, error)
            return None
        directory.forget((topic, partition))
        return path

    async def _forget(self, log: Log, suffix: str) -> str | None:
        del self.logs[log.topic, log.partition]
        await self._flushers.pop(log).idle()
        if log.is_offline:
            return None
        for segment in log.segments:
            segment.cool()
        try:
            return await self._rename(log.directory, suffix)
        except OSError as error:
            self.take_offline(self._directory_of(log), error)
            return None

    def remove_tree_later(self, path: str, config: LogConfig) -> None:
        self._later(config.file_delete_delay_ms, self._disk.remove_tree, path)

    async def _rename(self, path: str, suffix: str) -> str:
        """Take a directory out of the partitions' names; what it is called then."""
        parent, _, name = path.rpartition("/")
        mark = f".{ids.random_uuid(self._random).hex()}{suffix}"
        renamed = f"{parent}/{name[: _LONGEST_NAME - len(mark)]}{mark}"
        self._disk.rename(path, renamed)
        await self._executor.submit(self._disk.sync_dir, parent)
        return renamed

    # strays

    async def set_strays_aside(self) -> None:
        """Every partition of this broker has asked for its log: the others are of none."""
        for (topic, partition), directory in list(self._closed_logs.items()):
            if directory.is_offline or self._closed_logs.pop((topic, partition), None) is None:
                continue
            try:
                await self._set_aside(f"{directory.path}/{topic}-{partition}")
                directory.forget((topic, partition))
            except OSError as error:
                self.take_offline(directory, error)

    async def _set_aside(self, path: str) -> None:
        """Keep a log whose topic is gone, or is another one now, where nobody takes it for a partition."""
        renamed = await self._rename(path, STRAY_SUFFIX)
        _log.warning("log of no partition here set aside; remove it if it is not needed", was=path, now=renamed)

    # flushing

    def flush(self, log: Log) -> asyncio.Future[int]:
        """Sync all that is in the log now; gives the offset up to which it is synced, or an OSError."""
        return self._flushers[log].flush()

    async def _flush_by_time(self) -> None:
        now = self.clock.monotonic()
        for log, flusher in list(self._flushers.items()):
            due = (now - flusher.flushed_at) * 1000 >= log.config.flush_ms
            if due and log.log_end_offset > log.flushed_offset and not log.is_offline:
                self.segment_sealed(log)

    def segment_sealed(self, log: Log) -> None:
        flush = self._flushers[log].flush()
        flush.add_done_callback(lambda done: done.cancelled() or done.exception())  # `fail` has told of it already

    # checkpoints

    def checkpoint_soon(self, log: Log) -> None:
        self._checkpoints_due[self._directory_of(log)] = None
        self._spawn(self._write_due_checkpoints())

    async def _write_due_checkpoints(self) -> None:
        due, self._checkpoints_due = self._checkpoints_due, {}
        for directory in due:
            await self._checkpoint_directory(directory)

    async def checkpoint(self) -> None:
        """Write the recovery points, high watermarks and log start offsets that have changed."""
        for directory in self.directories:
            await self._checkpoint_directory(directory)

    async def checkpoint_log(self, log: Log) -> None:
        await self._checkpoint_directory(self._directory_of(log))

    async def _checkpoint_directory(self, directory: LogDirectory) -> None:
        async with self._writing[directory]:
            if directory.is_offline:
                return
            write = directory.checkpoint(self._logs_in(directory))
            try:
                await self._executor.submit(write)
            except OSError as error:
                self.take_offline(directory, error)

    # failing

    def fail(self, log: Log, error: OSError) -> list[Log]:
        """Take the directory of a log offline; all the logs that are lost with it."""
        directory = self._directory_of(log)
        self.take_offline(directory, error)
        return self._logs_in(directory)

    def take_offline(self, directory: LogDirectory, error: OSError) -> None:
        if directory.is_offline:
            return
        directory.is_offline = True
        lost = self._logs_in(directory)
        for log in lost:
            log.is_offline = True
        _log.error("log directory failed and is offline", directory=directory.path, problem=error, logs=len(lost))
        self._on_offline(lost)

    def _logs_in(self, directory: LogDirectory) -> list[Log]:
        return [log for log in self.logs.values() if log.parent_directory == directory.path]

    def _directory_of(self, log: Log) -> LogDirectory:
        return next(directory for directory in self.directories if directory.path == log.parent_directory)

    # background

    async def _delete_old_segments(self) -> None:
        for log in list(self.logs.values()):
            if not log.is_offline:
                try:
                    log.delete_old_segments(self.clock.now_ms())
                except OSError as error:
                    self.fail(log, error)
                except KafkaError as error:
                    _log.error("old segments not deleted", topic=log.topic, partition=log.partition, problem=str(error))
                    self.scrubber.suspect(log, log.log_start_offset)
                await asyncio.sleep(0)  # a thousand logs must not hold the loop in one piece

    async def _expire_producers(self) -> None:
        for log in list(self.logs.values()):
            log.producers.remove_expired(self.clock.now_ms(), self._config["producer.id.expiration.ms"])

    def remove_later(self, paths: list[str], delay_ms: int) -> None:
        self._later(delay_ms, self._remove_files, paths)

    def _remove_files(self, paths: list[str]) -> None:
        for path in paths:
            if self._disk.exists(path):
                self._disk.remove(path)

    def _later(self, delay_ms: int, remove: Callable[[Any], None], what: Any) -> None:
        """Remove something in a while, in a thread; what a stop or an error leaves, the next start removes."""

        def begin() -> None:
            self._removals.discard(handle)
            self._spawn(run())

        async def run() -> None:
            try:
                await self._executor.submit(remove, what)
            except OSError as error:
                _log.warning("files could not be removed", what=what, problem=error)

        handle = asyncio.get_running_loop().call_later(delay_ms / 1000, begin)
        self._removals.add(handle)

    def _every(self, key: str, work: Callable[[], Awaitable[None]], at_most_s: float = _LONGEST_SLEEP_S) -> None:
        """Do `work` again and again, as often as a configuration key says."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(min(self._config[key] / 1000, at_most_s))
                try:
                    await work()
                except Exception:  # one failure must not end the work for good
                    _log.exception("background work failed", interval=key)

        self._spawn(repeat())

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
