"""The cleaner at work in the background of a manager, in its own process too; and what may go wrong meanwhile."""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.core.clock import SystemClock
from barnabas.storage import cleaner_process
from barnabas.storage.cleaner import Cleaner, InlineRunner, WorkerDied
from barnabas.storage.cleaner_process import ChildRunner
from barnabas.storage.cleaning import CannotClean, CleanedGroup, CleaningJob
from barnabas.storage.disk import RealDisk
from barnabas.storage.log import Log
from barnabas.storage.segment import base_name
from tests.unit.storage.cleaner_helpers import COMPACTED, job_of
from tests.unit.storage.storage_helpers import append, new_log, read_all
from tests.unit.storage.test_log_manager import Managed, managed, on_a_loop

TWICE = 2


async def _until(condition: Callable[[], object]) -> None:
    async def wait() -> None:
        while not condition():  # noqa: ASYNC110  # what is waited for happens in threads and files
            await asyncio.sleep(0.005)

    await asyncio.wait_for(wait(), 20)


def _fill(log: Log, keys: int = 5, count: int = 60) -> None:
    for number in range(count):
        append(log, b"%d" % number * 20, key=b"%d" % (number % keys))
    log.roll(log.log_end_offset, 0)


def _values(log: Log) -> list[bytes | None]:
    return [record.value for record in read_all(log)]


def _leftovers(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.suffix in (".cleaned", ".swap")]


def _damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


@on_a_loop
async def test_logs_are_compacted_as_they_get_dirty_and_it_is_written_down(tmp_path: Path) -> None:
    async with managed(tmp_path, log_cleaner_backoff_ms=10) as run:
        compacted, plain = await run.log(0, **COMPACTED), await run.log(1, segment_bytes=1000)
        _fill(compacted)
        _fill(plain)
        await _until(lambda: compacted.first_dirty_offset == 60)
        assert _values(compacted) == [b"%d" % number * 20 for number in range(55, 60)]
        assert len(_values(plain)) == 60
        path = tmp_path / "cleaner-offset-checkpoint"
        await _until(lambda: path.exists() and path.read_text() == "0\n1\ntopic 0 60\n")
        append(compacted, b"x", key=b"0")
        run.crash()
    async with managed(tmp_path) as run:
        log = await run.log(0, **COMPACTED)
        assert (log.first_dirty_offset, len(_values(log))) == (60, 6)
    async with managed(tmp_path) as run:  # one that nobody asked for keeps its offset
        assert (await run.log(1)).first_dirty_offset == 0
    assert path.read_text() == "0\n1\ntopic 0 60\n"


@on_a_loop
async def test_a_cleaner_that_is_switched_off_does_nothing(tmp_path: Path) -> None:
    async with managed(tmp_path, log_cleaner_backoff_ms=1, log_cleaner_enable=False) as run:
        log = await run.log(**COMPACTED)
        _fill(log)
        await asyncio.sleep(0.1)
        assert len(_values(log)) == 60


@on_a_loop
async def test_a_process_of_its_own_does_the_work_and_ends_when_there_is_none(tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Watched(ChildRunner):
        def clean(self, job: CleaningJob) -> Iterator[CleanedGroup]:
            for group in super().clean(job):
                assert self._child is not None
                started.append(self._child)
                yield group

    async with managed(tmp_path, cleaning=Watched(), log_cleaner_backoff_ms=10) as run:
        logs = [await run.log(partition, **COMPACTED) for partition in range(3)]
        for log in logs:
            _fill(log)
        await _until(lambda: all(log.first_dirty_offset == 60 for log in logs))
        await _until(lambda: all(child.returncode is not None for child in started))
        assert started[0].pid != os.getpid()
        assert [len(_values(log)) for log in logs] == [5, 5, 5]


@on_a_loop
async def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    class Murdered(ChildRunner):
        deaths = 0

        def clean(self, job: CleaningJob) -> Iterator[CleanedGroup]:
            groups = super().clean(job)
            yield next(groups)
            if self.deaths < TWICE:
                self.deaths += 1
                assert self._child is not None
                self._child.send_signal(signal.SIGKILL)
                self._child.wait(10)
            yield from groups

    runner = Murdered()
    async with managed(tmp_path, cleaning=runner, log_cleaner_backoff_ms=10) as run:
        log = await run.log(**COMPACTED)
        _fill(log, count=200)
        await _until(lambda: log.first_dirty_offset == 200)
        assert runner.deaths == TWICE
        assert len(_values(log)) == 5


@on_a_loop
async def test_a_manager_that_closes_ends_the_process(tmp_path: Path) -> None:
    class Slow(ChildRunner):
        child: subprocess.Popen[bytes] | None = None

        def clean(self, job: CleaningJob) -> Iterator[CleanedGroup]:
            self.child = self._child = cleaner_process._start()
            yield from ()
            assert self._child.stdout is not None
            self._child.stdout.read(1)  # waits as for an answer that takes for ever
            raise WorkerDied("as expected")

    runner = Slow()
    async with managed(tmp_path, cleaning=runner, log_cleaner_backoff_ms=10) as run:
        _fill(await run.log(**COMPACTED))
        await _until(lambda: runner.child)
    assert runner.child is not None
    assert runner.child.returncode == -signal.SIGKILL


@on_a_loop
async def test_a_process_that_a_thread_was_to_end_is_ended_when_the_thread_never_gets_to_it(tmp_path: Path) -> None:
    class Counted(ChildRunner):
        stops = 0

        def stop(self) -> None:
            self.stops += 1

    class BusyThreads:
        def submit(self, *_: object) -> asyncio.Future[Any]:
            return asyncio.get_running_loop().create_future()

    runner, nothing_due, settings = Counted(), cast(Any, SimpleNamespace(logs={})), cast(Any, None)
    cleaner = Cleaner(nothing_due, runner, RealDisk(), SystemClock(), BusyThreads(), settings, Random(1))
    sweep = asyncio.create_task(cleaner.sweep())
    await asyncio.sleep(0)
    sweep.cancel()
    await asyncio.wait([sweep])
    assert runner.stops == 1


def test_the_process_ends_with_its_broker(tmp_path: Path) -> None:
    """Its input ends when the broker is gone, however it went; even in the middle of a job."""
    log = new_log(tmp_path, **COMPACTED)
    _fill(log)
    job = job_of(log)
    script = (
        "import os, pickle, sys\n"
        "from barnabas.storage import cleaner_process\n"
        "child = cleaner_process._start()\n"
        "pickle.dump(pickle.load(sys.stdin.buffer), child.stdin); child.stdin.flush()\n"
        "pickle.load(child.stdout)\n"
        "print(child.pid, flush=True); os._exit(1)\n"
    )

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps(job),
        stdout=subprocess.PIPE,
        env=environment,
        timeout=30,
        check=False,
    )
    pid = int(done.stdout)
    for _ in range(1000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            return  # dead, and waits for whoever has adopted it
        asyncio.run(asyncio.sleep(0.01))
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the process outlives its broker")


class Interrupted(InlineRunner):
    """Does something else after each group."""

    def __init__(self) -> None:
        super().__init__(RealDisk())
        self.then: Callable[[], object] = lambda: None

    def clean(self, job: CleaningJob) -> Iterator[CleanedGroup]:
        for group in super().clean(job):
            self.then()
            yield group


async def _sweep_dirty(run: Managed, log: Log) -> None:
    _fill(log, count=200)
    await run.manager.flush(log)
    await asyncio.wait_for(run.manager.cleaner.sweep(), 20)


def _raise(error: Exception) -> None:
    raise error


@on_a_loop
async def test_a_round_is_given_up_when_its_log_changes_below_it(tmp_path: Path) -> None:
    runner = Interrupted()
    async with managed(tmp_path, cleaning=runner) as run:
        log = await run.log(**COMPACTED)
        # the loop waits for the executor meanwhile, so this is as if retention or a truncation had come in between
        runner.then = lambda: log.segments.remove([list(log.segments)[1]])
        await _sweep_dirty(run, log)
        assert log.first_dirty_offset == 0
        assert _leftovers(tmp_path) == []


@on_a_loop
async def test_a_log_that_is_deleted_meanwhile_is_left_alone(tmp_path: Path) -> None:
    runner = Interrupted()
    async with managed(tmp_path, cleaning=runner) as run:
        log = await run.log(**COMPACTED)

        def delete() -> None:
            del run.manager.logs[log.topic, log.partition]
            raise FileNotFoundError(errno.ENOENT, "the directory was renamed")

        runner.then = delete
        await _sweep_dirty(run, log)
        assert not run.lost
        run.manager.logs[log.topic, log.partition] = log


@on_a_loop
async def test_a_full_disk_only_postpones_compaction(tmp_path: Path) -> None:
    runner = Interrupted()
    async with managed(tmp_path, cleaning=runner) as run:
        log = await run.log(**COMPACTED)
        runner.then = lambda: _raise(OSError(errno.ENOSPC, "No space left on device"))
        await _sweep_dirty(run, log)
        assert (run.lost, log.first_dirty_offset) == ([], 0)
        assert _leftovers(tmp_path) == []
        runner.then = lambda: None
        await run.manager.cleaner.sweep()
        assert log.first_dirty_offset == 200


@on_a_loop
async def test_a_disk_that_fails_takes_its_directory_offline(tmp_path: Path) -> None:
    runner = Interrupted()
    async with managed(tmp_path, cleaning=runner) as run:
        log = await run.log(**COMPACTED)
        runner.then = lambda: _raise(OSError(errno.EIO, "Input/output error"))
        await _sweep_dirty(run, log)
        assert run.lost == [log]


@on_a_loop
async def test_a_damaged_log_is_told_once_and_the_others_are_cleaned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with managed(tmp_path) as run:
        bad, good = await run.log(0, **COMPACTED), await run.log(1, **COMPACTED)
        for log in (bad, good):
            _fill(log)
            await run.manager.flush(log)
        _damage(Path(bad.directory, f"{base_name(0)}.log"))
        for _ in range(TWICE):
            await asyncio.wait_for(run.manager.cleaner.sweep(), 20)
        assert (bad.first_dirty_offset, good.first_dirty_offset) == (0, 60)
        told = [message for message in caplog.messages if "cannot be compacted" in message]
        assert len(told) == 1
        assert len(_values(good)) == 5
        assert (run.manager.cleaner.uncleanable_logs, run.manager.cleaner.totals.rounds) == (1, 1)
        run.crash()


def test_what_the_process_could_not_do_is_told_as_if_it_were_done_here(tmp_path: Path) -> None:
    log = new_log(tmp_path, **COMPACTED)
    _fill(log)
    job = job_of(log)
    runner = ChildRunner()
    path = tmp_path / f"{base_name(0)}.log"
    data = path.read_bytes()
    _damage(path)
    with pytest.raises(CannotClean, match="wrong CRC"):
        list(runner.clean(job))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        list(runner.clean(job))
    path.write_bytes(data)
    assert list(runner.clean(job))
    runner.stop()
    runner.stop()
