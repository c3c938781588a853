"""Two runs on one lake, as on HDFS from two machines, where no lock keeps them apart: one stops, and no row is lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from barnabas.spark.lake.errors import LakeError, ManifestDamaged, ManifestMoved
from barnabas.spark.lake.lake import Lake, LakePolicy
from barnabas.spark.ranges import OffsetRange
from tests.unit.spark.lake.model_files import ModelFiles
from tests.unit.spark.lake.model_load import ALL_ROWS, TABLE, compact_all, load, rows_in_manifest, rows_seen, run

SEEDS = 300
SHARE_OF_CHANGES = 0.05
THREE = [OffsetRange("clicks", 0, 0, 3)]


def opened(files: ModelFiles) -> Lake:
    lake = Lake(files, LakePolicy(TABLE), checkpoint_every=3)
    lake.open()
    return lake


class Turns:
    """Two threads of which one runs at a time; before any call of a file system the other may get its turn."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._changed = threading.Condition()
        self._turn = 0
        self._ended: set[int] = set()
        self._me = threading.local()

    def run(self, number: int, work: Callable[[], object]) -> None:
        self._me.number = number
        self._wait()
        try:
            work()
        finally:
            self._ended.add(number)
            self._pass_on(1 - number)

    def before_call(self) -> None:
        number = getattr(self._me, "number", None)
        if number is not None and self._chance.random() < SHARE_OF_CHANGES and 1 - number not in self._ended:
            self._pass_on(1 - number)
            self._wait()

    def _pass_on(self, number: int) -> None:
        with self._changed:
            self._turn = number
            self._changed.notify_all()

    def _wait(self) -> None:
        with self._changed:
            assert self._changed.wait_for(
                lambda: self._turn == self._me.number or 1 - self._me.number in self._ended, 60
            )


def test_two_loads_that_take_turns_at_any_call_lose_no_row_and_double_none() -> None:
    for seed in range(SEEDS):
        files, turns = ModelFiles(), Turns(seed)
        files.before_call = turns.before_call
        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(turns.run, number, partial(try_twice, files)) for number in (0, 1)]:
                done.result()
        run(files)
        assert rows_seen(files) == ALL_ROWS, seed
        assert rows_in_manifest(opened(files), files) == ALL_ROWS, seed


def try_twice(files: ModelFiles) -> None:
    for _ in range(2):
        with suppress(LakeError):
            run(files)


def test_a_run_that_comes_in_before_any_call_of_a_load_or_compaction_costs_no_row_and_doubles_none() -> None:
    alone = ModelFiles()
    run(alone, compact=True)
    for call in range(1, alone.calls + 1):
        files = ModelFiles()
        files.before_call = partial(come_in, files, call)
        with suppress(LakeError):
            run(files, compact=True)
        assert rows_seen(files) == ALL_ROWS, call
        assert rows_in_manifest(opened(files), files) == ALL_ROWS, call


def come_in(files: ModelFiles, call: int) -> None:
    if files.calls == call:
        files.before_call = lambda: None
        run(files, compact=True)


def test_the_run_that_had_the_lake_before_is_refused_for_good() -> None:
    files = ModelFiles()
    before, now = opened(files), opened(files)
    for _ in range(2):
        with pytest.raises(ManifestMoved, match=r"another run has opened model:/lake since"):
            load(before, files, THREE)
    load(now, files, THREE)
    assert rows_seen(files).total() == 3


def test_a_run_that_was_away_for_long_does_not_commit_a_version_that_is_history_by_now() -> None:
    files = ModelFiles()
    away = opened(files)
    run(files)
    oldest = min(name for name in files.files if name.startswith("_manifest/"))
    assert oldest > f"_manifest/{away.state().version + 1:020}"
    with pytest.raises(ManifestMoved, match=r"another run has opened model:/lake since"):
        load(away, files, THREE)
    assert rows_seen(files) == ALL_ROWS


@pytest.mark.parametrize("compact", [False, True])
def test_a_commit_whose_files_have_gone_from_staging_is_no_success(compact: bool) -> None:
    files = ModelFiles()
    lake = run(files) if compact else opened(files)
    append = lake._log.append

    def append_and_lose(*given: object) -> object:
        after = append(*given)  # type: ignore[arg-type]
        for name in [name for name in files.files if name.startswith("_staging/")]:
            del files.files[name]
        return after

    lake._log.append = append_and_lose  # type: ignore[assignment, method-assign]
    remedy = r"is neither there nor in _staging; put it back, or remove \d+\.\* from model:/lake/_manifest"
    with pytest.raises(ManifestDamaged, match=remedy):
        compact_all(lake, files) if compact else load(lake, files, THREE)
    with pytest.raises(ManifestDamaged, match=remedy):
        opened(files)
    newest = max(name for name in files.files if name.startswith("_manifest/"))
    for name in [name for name in files.files if name.partition(".")[0] == newest.partition(".")[0]]:
        del files.files[name]
    run(files)
    assert rows_seen(files) == ALL_ROWS
