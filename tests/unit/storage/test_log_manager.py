"""The manager: several directories, clean and unclean stops, shared flushes, failing disks, background work."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from barnabas.core.clock import SystemClock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.storage.cleaner import Runner
from barnabas.storage.disk import DiskFile, RealDisk
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.manager import LogManager
from tests.unit.storage.storage_helpers import NOW_MS, TOPIC_ID, append, batch, values

T = TypeVar("T")
HOUR_MS = 3_600_000
INTERVALS = {
    "barnabas.scrub.interval.ms": HOUR_MS,
    "barnabas.scrub.bytes.per.second": 1 << 30,
    "log.cleaner.enable": True,
    "log.cleaner.backoff.ms": HOUR_MS,
    "log.cleaner.dedupe.buffer.size": 1 << 20,
    "log.cleaner.io.buffer.load.factor": 0.9,
    "log.cleaner.io.buffer.size": 4096,
    "log.retention.check.interval.ms": HOUR_MS,
    "log.flush.scheduler.interval.ms": 2**63 - 1,
    "log.flush.offset.checkpoint.interval.ms": HOUR_MS,
    "log.flush.start.offset.checkpoint.interval.ms": HOUR_MS,
    "replica.high.watermark.checkpoint.interval.ms": HOUR_MS,
    "producer.id.expiration.check.interval.ms": HOUR_MS,
    "producer.id.expiration.ms": HOUR_MS,
}


def on_a_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


class Settings:
    def __init__(self, directories: tuple[Path, ...], changes: Mapping[str, int]) -> None:
        self.log_dirs = tuple(map(str, directories))
        self._values = {**INTERVALS, **changes}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]


class Threads:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(4)

    def submit(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def close(self) -> None:
        self._pool.shutdown()


class Counts:
    def __init__(self) -> None:
        self.fsyncs = 0
        self.scanned_bytes = 0
        self.dropped_bytes = 0

    def fsync(self, seconds: float) -> None:
        self.fsyncs += 1

    def recovered(self, scanned_bytes: int, dropped_bytes: int, seconds: float) -> None:
        self.scanned_bytes += scanned_bytes
        self.dropped_bytes += dropped_bytes


class Managed:
    """A manager that a test may crash: then nothing is closed, as when the process dies."""

    def __init__(
        self, directories: tuple[Path, ...], disk: RealDisk, changes: Mapping[str, int], cleaning: Runner | None = None
    ) -> None:
        self.threads = Threads()
        self.counts = Counts()
        self.lost: list[Log] = []
        self.damaged: list[tuple[Log, str]] = []
        self.manager = LogManager(
            disk,
            SystemClock(),
            self.threads,
            Settings(directories, changes),
            random.Random(1),
            self.counts,
            self.lost.extend,
            cleaning,
            self._found_damage,
        )
        self.crashed = False

    def _found_damage(self, log: Log, problem: str) -> None:
        log.damage = problem
        self.damaged.append((log, problem))

    async def log(self, partition: int = 0, topic: str = "topic", topic_id: bytes = TOPIC_ID, **config: Any) -> Log:
        return await self.manager.get_or_create(topic, partition, topic_id, LogConfig(**config))

    def crash(self) -> None:
        self.crashed = True
        for directory in self.manager.directories:
            directory.release()


@asynccontextmanager
async def managed(
    *directories: Path, disk: RealDisk | None = None, cleaning: Runner | None = None, **changes: int
) -> AsyncIterator[Managed]:
    renamed = {key.replace("_", "."): value for key, value in changes.items()}
    run = Managed(directories, disk or RealDisk(), renamed, cleaning)
    await run.manager.open(1, "cluster")
    run.manager.start_background_work()
    try:
        yield run
    finally:
        if not run.crashed:
            await run.manager.close()
        run.threads.close()


@on_a_loop
async def test_logs_come_back_after_a_clean_stop_without_a_scan(tmp_path: Path) -> None:
    async with managed(tmp_path) as run:
        for partition in range(3):
            append(await run.log(partition), b"%d" % partition)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n3\ntopic 0 1\ntopic 1 1\ntopic 2 1\n"
    async with managed(tmp_path) as run:
        for partition in range(3):
            log = await run.log(partition)
            assert (values(log), log.high_watermark) == ([b"%d" % partition], 1)
        assert run.counts.scanned_bytes == 0
        assert not (tmp_path / ".kafka_cleanshutdown").exists()


@on_a_loop
async def test_an_unclean_stop_is_recovered_and_told(tmp_path: Path) -> None:
    async with managed(tmp_path) as run:
        log = await run.log()
        for number in range(5):
            append(log, b"%d" % number)
        run.crash()
    path = tmp_path / "topic-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-3])
    async with managed(tmp_path) as run:
        assert values(await run.log()) == [b"0", b"1", b"2", b"3"]
        assert run.counts.dropped_bytes > 0


@on_a_loop
async def test_a_directory_serves_one_broker_and_one_cluster(tmp_path: Path) -> None:
    async with managed(tmp_path):
        other = Managed((tmp_path,), RealDisk(), {})
        with pytest.raises(KafkaError, match="in use"):
            await other.manager.open(1, "cluster")
        other.threads.close()
    for broker_id, cluster_id in ((2, "cluster"), (1, "another")):
        other = Managed((tmp_path,), RealDisk(), {})
        with pytest.raises(KafkaError, match=r"meta\.properties") as refused:
            await other.manager.open(broker_id, cluster_id)
        assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        other.manager.directories[0].release()
        other.threads.close()


@on_a_loop
async def test_new_logs_go_to_the_emptiest_directory_and_are_found_there(tmp_path: Path) -> None:
    directories = (tmp_path / "a", tmp_path / "b")
    async with managed(*directories) as run:
        for partition in range(4):
            append(await run.log(partition), b"%d" % partition)
        places = {partition: (await run.log(partition)).parent_directory for partition in range(4)}
        assert sorted(places.values()) == [str(directories[0])] * 2 + [str(directories[1])] * 2
    async with managed(*directories) as run:
        for partition in range(4):
            log = await run.log(partition)
            assert (log.parent_directory, values(log)) == (places[partition], [b"%d" % partition])


@on_a_loop
async def test_many_logs_are_made_at_once_and_what_was_there_is_kept(tmp_path: Path) -> None:
    directories = (tmp_path / "a", tmp_path / "b")
    async with managed(*directories) as run:
        append(await run.log(7), b"kept")
    async with managed(*directories) as run:
        await run.manager.create_many("topic", range(250), TOPIC_ID, LogConfig())
        assert len(run.manager.logs) == 249  # the one that was found is opened, not made
        assert values(await run.log(7)) == [b"kept"]
        held = Counter(Path(log.parent_directory) for log in run.manager.logs.values())
        assert abs(held[directories[0]] - held[directories[1]]) <= 2
        assert [(await run.log(partition)).log_end_offset for partition in (0, 249)] == [0, 0]


class FailingDisk(RealDisk):
    """Syncs fail below one path, from a moment on."""

    __slots__ = ("broken",)

    def __init__(self) -> None:
        self.broken = ""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        file = super().open(path, create=create)
        disk = self

        class FailingFile(DiskFile):
            def sync(self) -> None:
                if disk.broken and path.startswith(disk.broken):
                    raise OSError(5, "Input/output error", path)

        failing = FailingFile(path, os.dup(file.fileno()))
        file.close()
        return failing


@on_a_loop
async def test_a_failing_directory_goes_offline_and_leaves_the_others(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with managed(tmp_path / "a", tmp_path / "b", disk=disk) as run:
        logs = [await run.log(partition) for partition in range(4)]
        disk.broken = str(tmp_path / "a")
        for log in logs:
            append(log)
        bad = [log for log in logs if log.parent_directory == disk.broken]
        good = [log for log in logs if log not in bad]
        with pytest.raises(OSError, match="Input/output"):
            await run.manager.flush(bad[0])
        assert [log.is_offline for log in bad + good] == [True, True, False, False]
        assert run.lost == bad
        assert [directory.is_offline for directory in run.manager.directories] == [True, False]
        assert await run.manager.flush(good[0]) == 1
        append(good[1])
        assert (await run.log(9)).parent_directory == str(tmp_path / "b")  # a new one, for all were taken up
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()


@on_a_loop
async def test_concurrent_waiters_share_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    async with managed(tmp_path) as run:
        log = await run.log(flush_messages=1)
        monkeypatch.setattr("barnabas.storage.disk._sync_descriptor", lambda descriptor: gate.wait(10))
        promises = []
        for _ in range(10):
            append(log)
            promises.append(run.manager.flush(log))
        assert len(set(promises)) == 2
        assert log.flushed_offset == 0
        gate.set()
        assert await asyncio.wait_for(asyncio.gather(*promises), 10) == [1] + [10] * 9
        assert (run.counts.fsyncs, log.flushed_offset) == (2, 10)


@on_a_loop
async def test_a_sealed_segment_is_flushed_in_the_background(tmp_path: Path) -> None:
    async with managed(tmp_path) as run:
        log = await run.log(segment_bytes=500)
        for _ in range(5):
            append(log, bytes(300))
        await asyncio.wait_for(_until(lambda: log.recovery_point == 5), 10)
        assert (tmp_path / "topic-0" / f"{3:020d}.timeindex").exists()
        assert (tmp_path / "topic-0" / f"{4:020d}.snapshot").exists()
        assert not (tmp_path / "topic-0" / f"{4:020d}.index").exists()


@on_a_loop
async def test_flush_ms_is_honoured(tmp_path: Path) -> None:
    async with managed(tmp_path, log_flush_scheduler_interval_ms=10) as run:
        log, lazy = await run.log(0, flush_ms=20), await run.log(1)
        append(log)
        append(lazy)
        await asyncio.wait_for(_until(lambda: log.flushed_offset == 1), 10)
        assert lazy.flushed_offset == 0


async def _until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  # what is waited for happens in threads and files
        await asyncio.sleep(0.005)


def _found(directory: Path, pattern: str) -> list[Path]:
    return list(directory.glob(pattern))


@on_a_loop
async def test_retention_runs_in_the_background_and_files_are_renamed_first(tmp_path: Path) -> None:
    async with managed(tmp_path, log_retention_check_interval_ms=10) as run:
        log = await run.log(segment_bytes=500, retention_bytes=1000, file_delete_delay_ms=2000)
        for _ in range(10):
            append(log, bytes(300))
        await asyncio.wait_for(_until(lambda: log.log_start_offset > 0), 10)
        names = [path.name for path in (tmp_path / "topic-0").iterdir()]
        assert f"{0:020d}.log.deleted" in names
        assert f"{0:020d}.log" not in names
        assert log.size_bytes <= 1400
        await asyncio.wait_for(_until(lambda: not _found(tmp_path, "*/*.deleted")), 10)
        assert len(values(log)) == 10 - log.log_start_offset


@on_a_loop
async def test_deleted_records_stay_deleted_after_a_crash(tmp_path: Path) -> None:
    async with managed(tmp_path) as run:
        log = await run.log()
        for _ in range(10):
            append(log)
        log.advance_log_start_offset(7)
        with pytest.raises(KafkaError) as refused:
            log.advance_log_start_offset(11)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        await run.manager.checkpoint()
        run.crash()
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\ntopic 0 7\n"
    async with managed(tmp_path) as run:
        log = await run.log()
        assert (log.log_start_offset, log.log_end_offset) == (7, 10)


@on_a_loop
async def test_deleted_records_stay_deleted_when_a_power_cut_brings_their_segments_back(tmp_path: Path) -> None:
    async with managed(tmp_path, log_retention_check_interval_ms=10) as run:
        log = await run.log(segment_bytes=500, retention_ms=-1, file_delete_delay_ms=60_000)
        for _ in range(10):
            append(log, bytes(300))
        start = log.segments.active.base_offset
        log.advance_log_start_offset(start)
        await asyncio.wait_for(_until(lambda: log.segments.first.base_offset == start), 10)
        await run.manager.checkpoint()
        run.crash()
    for renamed in _found(tmp_path, "*/*.deleted"):
        renamed.rename(renamed.with_suffix(""))
    async with managed(tmp_path) as run:
        log = await run.log(retention_ms=-1)
        assert (log.log_start_offset, log.log_end_offset) == (start, 10)


@on_a_loop
async def test_a_deleted_log_is_renamed_then_removed(tmp_path: Path) -> None:
    async with managed(tmp_path) as run:
        log = await run.log(file_delete_delay_ms=100)
        append(log)
        found = log.read(0, 1000, 1, True)
        await run.manager.delete(log)
        assert not (tmp_path / "topic-0").exists()
        assert len(_found(tmp_path, "topic-0.*-delete")) == 1
        again = await run.log(topic_id=bytes(16))
        assert again.log_end_offset == 0
        await asyncio.wait_for(_until(lambda: not _found(tmp_path, "*-delete")), 10)
        assert len(found.read()) == len(batch())


@on_a_loop
async def test_a_log_of_an_older_topic_of_the_same_name_is_not_taken(tmp_path: Path) -> None:
    async with managed(tmp_path) as run:
        append(await run.log())
        await run.manager.delete(await run.log(1))
    async with managed(tmp_path) as run:
        assert not _found(tmp_path, "*-delete")
        log = await run.log(topic_id=b"another topic id")
        assert log.log_end_offset == 0
        (stray,) = _found(tmp_path, "topic-0.*-stray")
        assert (stray / "00000000000000000000.log").stat().st_size == len(batch())
    async with managed(tmp_path) as run:
        assert stray.exists()


@on_a_loop
async def test_a_log_of_no_partition_here_is_set_aside(tmp_path: Path) -> None:
    async with managed(tmp_path) as run:
        append(await run.log(0))
        append(await run.log(1))
    async with managed(tmp_path) as run:
        await run.log(0)
        await run.manager.set_strays_aside()
        assert len(_found(tmp_path, "topic-1.*-stray")) == 1
        assert (await run.log(1)).log_end_offset == 0
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text().splitlines()[2:] == ["topic 0 1", "topic 1 0"]


@on_a_loop
async def test_offsets_of_logs_that_nobody_asked_for_stay_in_the_checkpoints(tmp_path: Path) -> None:
    async with managed(tmp_path) as run:
        append(await run.log(0))
        append(await run.log(1))
    async with managed(tmp_path) as run:
        append(await run.log(0))
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\ntopic 1 1\ntopic 0 2\n"


@on_a_loop
async def test_silent_producers_expire(tmp_path: Path) -> None:
    async with managed(tmp_path, producer_id_expiration_check_interval_ms=10) as run:
        log = await run.log()
        append(log, producer=(5, 0, 0), timestamp_ms=NOW_MS)
        await asyncio.wait_for(_until(lambda: not log.producers.entries), 10)


@pytest.mark.proof
@on_a_loop
async def test_a_thousand_partitions_open_in_two_seconds(tmp_path: Path) -> None:
    async with managed(tmp_path) as run:
        for partition in range(1000):
            append(await run.log(partition), b"x")
    started = time.monotonic()
    async with managed(tmp_path) as run:
        for partition in range(1000):
            await run.log(partition)
        assert time.monotonic() - started < 2
        assert run.counts.scanned_bytes == 0


@on_a_loop
async def test_a_broker_does_without_checkpoints_that_are_damaged(tmp_path: Path) -> None:
    async with managed(tmp_path) as run:
        append(await run.log(), b"x")
    for name in ("recovery-point", "replication"):
        path = tmp_path / f"{name}-offset-checkpoint"
        path.write_bytes(b"\xff" + path.read_bytes()[1:])
    async with managed(tmp_path) as run:
        log = await run.log()
        assert (values(log), log.log_start_offset, log.is_short) == ([b"x"], 0, False)
        await run.manager.checkpoint()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\ntopic 0 1\n"


@on_a_loop
async def test_a_log_that_is_gone_when_the_broker_starts_is_known_to_be_short(tmp_path: Path) -> None:
    run = Managed((tmp_path,), RealDisk(), {})
    await run.manager.open(1, "cluster")
    assert (await run.log(0)).is_short
    await run.manager.create_many("topic", [1], TOPIC_ID, LogConfig())
    assert (await run.log(1)).is_short
    run.manager.start_background_work()
    assert not (await run.log(2)).is_short, "a new partition"
    await run.manager.close()
    run.threads.close()


@on_a_loop
async def test_a_log_that_is_replaced_is_kept_beside_the_new_one(tmp_path: Path) -> None:
    async with managed(tmp_path) as run:
        old = await run.log(file_delete_delay_ms=0)
        append(old, b"x")
        path = await run.manager.replace(old)
        assert path is not None
        assert (Path(path) / f"{0:020d}.log").stat().st_size == old.segments.active.size
        new = await run.log(file_delete_delay_ms=0)
        assert new is not old
        assert (new.log_end_offset, new.directory) == (0, old.directory)
        run.manager.remove_tree_later(path, new.config)
        while os.path.exists(path):  # noqa: ASYNC110, ASYNC240  # removed by a thread
            await asyncio.sleep(0.005)
