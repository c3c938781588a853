"""Looking for bits that have flipped on the disk: every segment is read through, again and again, slowly.

A round reads all logs, in an order that chance decides, so that rounds that are broken off leave none out for good. It
keeps to `barnabas.scrub.bytes.per.second`, and to a small part of a thread's time. The segment that is written to is
read as far as it was written when its turn came.

Somebody who could not use what was read from a log makes it *suspect*, and that place is looked at right away.

A wrong index is built again. Of wrong records the log's host is told; what becomes of that replica is not decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple, Protocol

from barnabas.core import logs
from barnabas.core.errors import KafkaError
from barnabas.core.seams import Clock, Disk, Executor
from barnabas.storage.batch_scan import valid_batches
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.flush import FlushJob
from barnabas.storage.log import Log
from barnabas.storage.log_slice import LogSlice
from barnabas.storage.segment import Segment
from barnabas.storage.segment_check import Finding, SegmentCheck

INTERVAL = "barnabas.scrub.interval.ms"
RATE = "barnabas.scrub.bytes.per.second"

_FIRST_PAUSE_S = 60.0  # a broker that starts has better things to do
_LONGEST_PAUSE_S = 365 * 86_400.0  # no timer takes much more
_REST_PER_WORK = 9  # of a thread's time, which is in part the event loop's, a tenth
_LONGEST_REST_S = 0.1  # a thread that waits for a busy processor has not worked for so long
_GLANCE_BYTES = 1024 * 1024  # what a follower is sent at once
_CALM_S = 10.0  # a log that was suspected in vain is not suspected again for so long

_log = logs.get_logger(__name__)


class Settings(Protocol):
    """The broker's configuration, by name."""

    def __getitem__(self, name: str) -> Any: ...


class LogHost(Protocol):
    """What the scrubber needs of the manager of the logs."""

    @property
    def logs(self) -> Mapping[TopicPartition, Log]: ...

    def fail(self, log: Log, error: OSError) -> object: ...


class ScrubTotals(NamedTuple):
    """What was done so far."""

    rounds: int = 0
    read_bytes: int = 0
    damaged_segments: int = 0
    rebuilt_indexes: int = 0


class Scrubber:
    """Owned by the event loop."""

    def __init__(
        self,
        host: LogHost,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        config: Settings,
        random: Random,
        on_damage: Callable[[Log, str], None],
    ) -> None:
        self._host = host
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._config = config
        self._random = random
        self._on_damage = on_damage
        self._suspects: dict[Log, int] = {}
        self._calm_until: dict[Log, float] = {}
        self._suspicion = asyncio.Event()
        self.totals = ScrubTotals()

    async def run(self) -> None:
        """Round after round, for as long as the broker runs."""
        interval_s = min(self._config[INTERVAL] / 1000, _LONGEST_PAUSE_S)
        pause_s = min(interval_s, _FIRST_PAUSE_S)
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self.sweep()
            except Exception:  # one failure must not end the work for good
                _log.exception("scrub failed")
            pause_s = interval_s

    async def sweep(self) -> None:
        """One round over all logs that nothing is known against."""
        logs_now = list(self._host.logs.values())
        self._random.shuffle(logs_now)
        for log in logs_now:
            for segment in list(log.segments):
                if self._is_sound(log) and segment in log.segments:
                    await self._check(log, segment, is_hurried=False)
        self.totals = self.totals._replace(rounds=self.totals.rounds + 1)

    async def _check(self, log: Log, segment: Segment, *, is_hurried: bool) -> None:
        following = log.segments.after(segment)
        truncations = segment.truncations
        end_offset = following.base_offset if following else log.log_end_offset
        is_growing = following is None or not segment.saved
        check = SegmentCheck(self._disk, segment, end_offset, log.leader_epochs.entries, is_growing=is_growing)
        try:
            while True:
                began = self._clock.monotonic()
                size = await self._executor.submit(check.step)
                if not size:
                    break
                self.totals = self.totals._replace(read_bytes=self.totals.read_bytes + size)
                if not is_hurried:
                    seconds = self._clock.monotonic() - began
                    rest = min(seconds * _REST_PER_WORK, _LONGEST_REST_S)
                    await asyncio.sleep(max(size / self._config[RATE], rest))
        except OSError as error:
            self._failed(log, segment, error)
        finally:
            check.close()
        if check.finding is not None:
            await self._found(log, segment, truncations, check.finding)

    async def _found(self, log: Log, segment: Segment, truncations: int, finding: Finding) -> None:
        if not self._is_sound(log) or segment not in log.segments or segment.truncations != truncations:
            return  # it was deleted, cut or compacted while it was read
        if not finding.is_index:
            self._damaged(log, finding.problem)
            return
        try:
            await self._executor.submit(_build_indexes, self._disk, segment.twin(log.config))
        except OSError as error:
            self._failed(log, segment, error)
            return
        present = log.segments.floor(segment.base_offset)
        log.indexes_rebuilt(present)
        if present is not segment:  # compaction has put another one there meanwhile, with other indexes
            await self._check(log, present, is_hurried=True)
            return
        self.totals = self.totals._replace(rebuilt_indexes=self.totals.rebuilt_indexes + 1)
        _log.warning("damaged index built again", topic=log.topic, partition=log.partition, problem=finding.problem)

    def _damaged(self, log: Log, problem: str) -> None:
        self.totals = self.totals._replace(damaged_segments=self.totals.damaged_segments + 1)
        self._on_damage(log, problem)

    def _failed(self, log: Log, segment: Segment, error: OSError) -> None:
        if not self._is_sound(log) or segment not in log.segments:
            return  # it was deleted meanwhile
        if isinstance(error, FileNotFoundError):
            self._damaged(log, str(error))
        else:
            self._host.fail(log, error)

    def _is_sound(self, log: Log) -> bool:
        """Whether the log is still in use, and nothing is known against it."""
        return self._host.logs.get((log.topic, log.partition)) is log and not log.is_offline and not log.damage

    # suspects

    def suspect(self, log: Log, offset: int) -> None:
        """Somebody could not use what is at an offset."""
        if log not in self._suspects and self._clock.monotonic() >= self._calm_until.get(log, 0.0):
            self._suspects[log] = offset
            self._suspicion.set()

    async def look_at_suspects(self) -> None:
        """For as long as the broker runs."""
        while True:
            await self._suspicion.wait()
            self._suspicion.clear()
            for log, offset in list(self._suspects.items()):
                try:
                    if self._is_sound(log):
                        await self._look_at(log, offset)
                except Exception:  # the next suspect is not to go unseen for it
                    _log.exception("suspected log not checked", topic=log.topic, partition=log.partition)
                del self._suspects[log]
                self._calm_until[log] = self._clock.monotonic() + _CALM_S
            self._calm_until = {log: until for log, until in self._calm_until.items() if self._is_sound(log)}

    async def _look_at(self, log: Log, offset: int) -> None:
        """Most suspicions are unfounded, so the whole segment is read only if there is something wrong at the place."""
        try:
            log.aborted_transactions(offset, log.log_end_offset)
        except KafkaError as error:
            self._damaged(log, str(error))
            return
        try:
            glance = log.read(offset, _GLANCE_BYTES, log.log_end_offset, True)
            if await self._executor.submit(_is_valid, glance):
                return
        except KafkaError as error:
            _log.info("suspected log", topic=log.topic, partition=log.partition, problem=str(error))
        except OSError as error:
            self._failed(log, log.segments.floor(offset), error)
            return
        await self._check(log, log.segments.floor(offset), is_hurried=True)


def _build_indexes(disk: Disk, segment: Segment) -> None:
    segment.rebuild_indexes()
    FlushJob(0, 0, [], [], segment.index_files(), []).run(disk)
    segment.close()


def _is_valid(glance: LogSlice) -> bool:
    """Whether a slice holds nothing but valid batches, and the first of them what was asked for."""
    end = position = glance.position
    for position, header in valid_batches(glance.file, glance.position + glance.size, glance.position):
        if position == glance.position and not header.base_offset <= glance.offset <= header.last_offset:
            return False
        end = position + header.size
    return end == glance.position + glance.size
