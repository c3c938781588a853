"""The embedded store between real processes: contention, kill -9, a process that hangs, a file that is not ours."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.coordination.embedded import EmbeddedStore
from barnabas.coordination.store import Claim, Done, Refusal, Refused, StoreUnavailable
from barnabas.core.clock import SystemClock

HOLDER = """
import asyncio, sys
from barnabas.coordination.embedded import EmbeddedStore
from barnabas.core.clock import SystemClock

async def main(path, broker_id):
    store = EmbeddedStore(path, broker_id, SystemClock(), claim_timeout_s=1.0)
    await store.open()
    epoch = await store.campaign((await store.claim()).epoch)
    print(epoch, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print(await store.append(epoch, 0, b"holder", [b"from the holder"]), flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""

WRITER = """
import asyncio, sys
from barnabas.coordination.embedded import EmbeddedStore
from barnabas.coordination.store import Done
from barnabas.core.clock import SystemClock

async def main(path, broker_id, count):
    store = EmbeddedStore(path, broker_id, SystemClock(), poll_s=0.005)
    await store.open()
    written = 0
    while written < count:
        epoch = await store.campaign((await store.claim()).epoch)
        if epoch is None:
            await asyncio.sleep(0.001)
            continue
        index = 0
        while batches := await store.read(index):
            index = batches[-1].next_index
        for _ in range(5):
            answer = await store.append(epoch, index, b"%d" % broker_id, [b"%d %d" % (broker_id, written)])
            assert isinstance(answer, Done), answer
            index = answer.next_index
            written += 1
        await store.close()
        store = EmbeddedStore(path, broker_id, SystemClock(), poll_s=0.005)
        await store.open()
    await store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


@contextmanager
def process(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


async def opened(path: Path, broker_id: int, claim_timeout_s: float = 1.0) -> EmbeddedStore:
    store = EmbeddedStore(str(path), broker_id, SystemClock(), poll_s=0.01, claim_timeout_s=claim_timeout_s)
    await store.open()
    return store


def test_a_killed_holder_loses_its_claim_at_once(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    async def main(holder: subprocess.Popen[str]) -> None:
        store = await opened(path, 2, claim_timeout_s=60.0)
        assert await store.claim() == Claim(1, 1)
        assert await store.campaign(1) is None
        await store.watch()
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(5)
        async with asyncio.timeout(5):
            while (await store.claim()).holder is not None:
                await store.watch()
        assert await store.campaign(1) == 2
        assert await store.append(2, 0, b"id", [b"from the successor"]) == Done(1)
        await store.close()

    with process(HOLDER, path, 1) as holder:
        assert line(holder) == "1"
        asyncio.run(main(holder))


def test_a_holder_that_hangs_is_replaced_and_its_append_refused(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    async def main(holder: subprocess.Popen[str]) -> None:
        store = await opened(path, 2)
        os.kill(holder.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(10):
                while (await store.claim()).holder is not None:
                    await store.watch()
            assert await store.campaign(1) == 2
        finally:
            os.kill(holder.pid, signal.SIGCONT)
        assert holder.stdin is not None
        holder.stdin.write("go on\n")
        holder.stdin.flush()
        assert line(holder) == str(Refused(Refusal.STALE_EPOCH))
        assert await store.read(0) == []
        await store.close()

    with process(HOLDER, path, 1) as holder:
        assert line(holder) == "1"
        asyncio.run(main(holder))


def test_two_processes_that_contend_write_one_list_without_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with process(WRITER, path, 1, 40) as one, process(WRITER, path, 2, 40) as two:
        assert one.wait(60) == 0
        assert two.wait(60) == 0

    async def main() -> None:
        store = await opened(path, 3)
        batches = await store.read(0)
        assert isinstance(batches, list)
        assert [batch.index for batch in batches] == list(range(80))
        assert [batch.epoch for batch in batches] == sorted(batch.epoch for batch in batches)
        for broker_id in (1, 2):
            mine = [batch.records[0] for batch in batches if batch.append_id == b"%d" % broker_id]
            assert mine == [b"%d %d" % (broker_id, number) for number in range(40)]
        for epoch in {batch.epoch for batch in batches}:
            assert len({batch.append_id for batch in batches if batch.epoch == epoch}) == 1
        await store.close()

    asyncio.run(main())


def test_a_broker_id_that_is_in_use_is_refused_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        store = await opened(tmp_path / "metadata.db", 7)
        with pytest.raises(StoreUnavailable, match=r"7\.lock is locked: another process runs under this broker id"):
            await opened(tmp_path / "metadata.db", 7)
        await store.close()
        await (await opened(tmp_path / "metadata.db", 7)).close()

    asyncio.run(main())


def test_a_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(ValueError, match="metadata format 99, this version knows 1"):
        asyncio.run(opened(path, 1))


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(b"this is not a database, however long it may be" * 100)
    with pytest.raises(StoreUnavailable, match=r"metadata\.db: file is not a database"):
        asyncio.run(opened(path, 1))


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        asyncio.run(opened(tmp_path / "nowhere" / "metadata.db", 1))
