"""The scrub at work in the background of a manager: what it finds, what it mends, and how little it takes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.control import ControlType, EndMarker
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment
from tests.unit.storage.storage_helpers import NOW_MS, append, values
from tests.unit.storage.test_log_manager import managed, on_a_loop

SMALL: dict[str, Any] = {"segment_bytes": 900, "index_interval_bytes": 150}
RECORDS = 40
A_MOMENT_S = 0.1


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # what is waited for happens in threads and files
            await asyncio.sleep(0.005)


def fill(log: Log) -> list[bytes]:
    written = [b"%03d" % number * 10 for number in range(RECORDS)]
    for value in written:
        append(log, value)
    return written


def flip(path: str, position: int = 100) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def indexes_of(segment: Segment) -> list[bytes]:
    return [Path(segment.path(suffix)).read_bytes() for suffix in (".index", ".timeindex")]


async def sealed(log: Log) -> list[Segment]:
    """The segments that are closed, once their indexes are on the disk."""
    closed = list(log.segments)[:-1]
    await until(lambda: all(segment.saved for segment in closed))
    return closed


@pytest.mark.parametrize("number", [2, -1])
@on_a_loop
async def test_a_flipped_bit_is_found_and_told_once_and_the_other_logs_are_looked_at_as_before(
    tmp_path: Path, number: int
) -> None:
    async with managed(tmp_path, barnabas_scrub_interval_ms=1) as run:
        damaged, sound = await run.log(0, **SMALL), await run.log(1, **SMALL)
        fill(damaged)
        written = fill(sound)
        segment = [*(await sealed(damaged)), damaged.segments.active][number]
        await until(lambda: run.manager.scrubber.totals.rounds > 2)
        assert run.damaged == []
        flip(segment.path(".log"))
        await until(lambda: run.damaged)
        read_bytes = run.manager.scrubber.totals.read_bytes
        await until(lambda: run.manager.scrubber.totals.read_bytes > read_bytes)
        assert [(log, segment.path(".log") in problem) for log, problem in run.damaged] == [(damaged, True)]
        assert run.manager.scrubber.totals.damaged_segments == 1
        assert values(sound) == written


@on_a_loop
async def test_a_damaged_index_is_built_again_as_it_was(tmp_path: Path) -> None:
    async with managed(tmp_path, barnabas_scrub_interval_ms=1) as run:
        log = await run.log(0, **SMALL)
        written = fill(log)
        segment = (await sealed(log))[1]
        before = indexes_of(segment)
        flip(segment.path(".index"), 6)
        await until(lambda: run.manager.scrubber.totals.rebuilt_indexes == 1)
        os.remove(segment.path(".timeindex"))
        await until(lambda: run.manager.scrubber.totals.rebuilt_indexes == 2)
        assert indexes_of(segment) == before
        assert values(log) == written
        assert run.damaged == []


@on_a_loop
async def test_files_that_are_cut_or_gone_are_damage(tmp_path: Path) -> None:
    async with managed(tmp_path, barnabas_scrub_interval_ms=1) as run:
        logs = [await run.log(number, **SMALL) for number in range(3)]
        for log in logs:
            fill(log)
        first, second, third = logs
        os.truncate((await sealed(first))[1].path(".log"), 10)
        os.truncate(second.segments.active.path(".log"), 1)
        os.remove((await sealed(third))[0].path(".log"))
        await until(lambda: len(run.damaged) == 3)
        assert {log for log, _ in run.damaged} == set(logs)
        assert run.lost == []


@on_a_loop
async def test_a_scrub_keeps_to_its_rate(tmp_path: Path) -> None:
    async with managed(tmp_path, barnabas_scrub_bytes_per_second=10_000) as run:
        log = await run.log(0, **SMALL)
        fill(log)
        await sealed(log)
        size = log.size_bytes
        started = time.monotonic()
        await run.manager.scrubber.sweep()
        assert time.monotonic() - started > size / 10_000
        assert run.manager.scrubber.totals.read_bytes == size


@on_a_loop
async def test_without_an_interval_nothing_is_read(tmp_path: Path) -> None:
    async with managed(tmp_path, barnabas_scrub_interval_ms=-1) as run:
        fill(await run.log(0, **SMALL))
        await asyncio.sleep(A_MOMENT_S)
        assert run.manager.scrubber.totals.rounds == 0


@on_a_loop
async def test_a_place_that_somebody_could_not_use_is_looked_at_at_once_also_where_the_log_is_written_to(
    tmp_path: Path,
) -> None:
    async with managed(tmp_path) as run:
        sound, damaged, misled = [await run.log(number, **SMALL) for number in range(3)]
        for log in (sound, damaged, misled):
            fill(log)
        flip(damaged.segments.active.path(".log"))
        segment = (await sealed(misled))[1]
        flip(segment.path(".index"), 7)
        misled.indexes_rebuilt(segment)
        scrubber = run.manager.scrubber
        for _ in range(2):
            scrubber.suspect(sound, 5)
            scrubber.suspect(damaged, damaged.segments.active.base_offset)
            scrubber.suspect(misled, misled.segments.floor(segment.base_offset).indexes.offset.entries()[0].offset)
            await until(lambda: run.damaged and scrubber.totals.rebuilt_indexes)
        assert [log for log, _ in run.damaged] == [damaged]
        await asyncio.sleep(A_MOMENT_S)
        assert (scrubber.totals.damaged_segments, scrubber.totals.rebuilt_indexes) == (1, 1)


@on_a_loop
async def test_a_transaction_index_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    async with managed(tmp_path) as run:
        log = await run.log(0, **SMALL)
        append(log, b"x", producer=(5, 0, 0), transactional=True)
        log.append_end_marker(EndMarker(ControlType.ABORT, 0), 5, 0, 0, NOW_MS)
        fill(log)
        segment = (await sealed(log))[0]
        os.truncate(segment.path(".txnindex"), 3)
        log.indexes_rebuilt(segment)
        with pytest.raises(KafkaError) as caught:
            log.aborted_transactions(0, 1)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        run.manager.scrubber.suspect(log, 0)
        await until(lambda: run.damaged)


@on_a_loop
async def test_what_is_deleted_while_it_is_read_is_no_damage(tmp_path: Path) -> None:
    async with managed(tmp_path, barnabas_scrub_bytes_per_second=1000) as run:
        log = await run.log(0, **SMALL)
        fill(log)
        await sealed(log)
        round_of_it = asyncio.create_task(run.manager.scrubber.sweep())
        await until(lambda: run.manager.scrubber.totals.read_bytes)
        await run.manager.delete(log)
        await round_of_it
        assert (run.damaged, run.lost) == ([], [])
