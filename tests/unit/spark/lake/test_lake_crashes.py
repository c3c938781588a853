"""A driver that dies, or a disk that fails, between any two steps: nothing is lost, doubled or half visible."""

from __future__ import annotations

import json

import pytest

from barnabas.spark.lake.commit import LatePolicy
from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.lake import Lake, LakePolicy
from barnabas.spark.lake.names import MARKER
from barnabas.spark.ranges import OffsetRange
from tests.unit.spark.lake.model_files import Crash, ModelFiles
from tests.unit.spark.lake.model_load import ALL_ROWS, ENDS, TABLE, load, rows_in_manifest, rows_seen, run


def steps_of(late: LatePolicy, *, compact: bool) -> int:
    files = ModelFiles()
    run(files, late, compact=compact)
    return files.steps


def crashed_at(step: int, late: LatePolicy, *, compact: bool) -> ModelFiles:
    files = ModelFiles()
    files.crash_at = step
    with pytest.raises(Crash):
        run(files, late, compact=compact)
    files.crash_at = None
    return files


def without_versions(files: ModelFiles) -> dict[str, bytes]:
    """Data files as they are; of markers, only where they are."""
    return {
        name: b"" if name.endswith(MARKER) else data
        for name, data in files.files.items()
        if not name.startswith("_manifest/")
    }


def opened(files: ModelFiles) -> Lake:
    lake = Lake(files, LakePolicy(TABLE), checkpoint_every=3)
    lake.open()
    return lake


@pytest.mark.parametrize("late", LatePolicy)
def test_a_rerun_after_a_crash_at_any_step_leaves_the_files_of_an_undisturbed_run(late: LatePolicy) -> None:
    undisturbed = ModelFiles()
    run(undisturbed, late)
    for step in range(1, undisturbed.steps + 1):
        files = crashed_at(step, late, compact=False)
        run(files, late)
        assert without_versions(files) == without_versions(undisturbed), step


@pytest.mark.parametrize("compact", [False, True])
def test_a_crash_while_a_crash_is_repaired_changes_nothing(compact: bool) -> None:
    for step in range(1, steps_of(LatePolicy.ACCEPT, compact=compact) + 1, 11):
        for further in range(1, 40, 5):
            files = crashed_at(step, LatePolicy.ACCEPT, compact=compact)
            before = files.steps
            files.crash_at = before + further
            try:
                run(files, compact=compact)
            except Crash:
                files.crash_at = None
                run(files, compact=compact)
            assert rows_seen(files) == ALL_ROWS, (step, further)


def test_plain_readers_see_no_row_twice_and_none_that_is_not_committed_at_any_step() -> None:
    for step in range(1, steps_of(LatePolicy.ACCEPT, compact=False) + 1):
        files = crashed_at(step, LatePolicy.ACCEPT, compact=False)
        seen = rows_seen(files)
        lake = opened(files)
        assert max(seen.values(), default=1) == 1, step
        assert seen <= rows_in_manifest(lake, files), step
        assert rows_seen(files) == rows_in_manifest(lake, files), step


def test_plain_readers_see_no_row_twice_while_hours_are_compacted() -> None:
    for step in range(1, steps_of(LatePolicy.ACCEPT, compact=True) + 1):
        files = crashed_at(step, LatePolicy.ACCEPT, compact=True)
        seen = rows_seen(files)
        assert max(seen.values(), default=1) == 1, step
        run(files, compact=True)
        assert rows_seen(files) == ALL_ROWS, step


def test_the_marker_of_an_hour_tells_what_is_in_its_directory_at_any_step() -> None:
    for step in range(1, steps_of(LatePolicy.ACCEPT, compact=True) + 1):
        files = crashed_at(step, LatePolicy.ACCEPT, compact=True)
        for path in [name for name in files.files if name.startswith("date=") and name.endswith(MARKER)]:
            said = json.loads(files.read(path))
            there = [data for name, data in files.visible().items() if name.startswith(path.removesuffix(MARKER))]
            rows = sum(data.count(b"\n") for data in there)
            assert (said["files"], said["rows"]) == (len(there), rows), (step, path)


@pytest.mark.parametrize("late", [LatePolicy.ASIDE, LatePolicy.DROP])
def test_late_rows_are_never_in_the_way_of_plain_readers(late: LatePolicy) -> None:
    files = ModelFiles()
    lake = run(files, late)
    aside = {path for path, file in lake.state().files.items() if file.is_late}
    dropped = sum(lake.state().dropped.values())
    missing = ALL_ROWS - rows_seen(files)
    assert missing.total() == 4
    assert rows_seen(files) <= ALL_ROWS
    if late is LatePolicy.ASIDE:
        assert all(path.startswith("_late/date=") for path in aside)
        assert rows_in_manifest(lake, files) == ALL_ROWS
    else:
        assert dropped == 4
        assert not aside


def test_a_disk_that_is_full_at_any_step_is_an_error_and_the_next_run_goes_on() -> None:
    for step in range(1, steps_of(LatePolicy.ACCEPT, compact=True) + 1):
        files = ModelFiles()
        files.crash_at, files.failure = step, LakeError("cannot write model:/lake/x: No space left on device")
        with pytest.raises(LakeError, match="No space left"):
            run(files, compact=True)
        files.crash_at = None
        run(files, compact=True)
        assert rows_seen(files) == ALL_ROWS, step


def test_a_write_that_failed_may_be_repeated_by_the_same_driver() -> None:
    """Whether the entry was committed is read again, not remembered."""
    for step in range(1, steps_of(LatePolicy.ACCEPT, compact=False) + 1):
        files = ModelFiles()
        lake = run_with_one_failure(files, step)
        assert rows_seen(files) == ALL_ROWS, step
        assert rows_in_manifest(lake, files) == ALL_ROWS, step


def run_with_one_failure(files: ModelFiles, step: int) -> Lake:
    lake = Lake(files, LakePolicy(TABLE), checkpoint_every=3)
    files.crash_at, files.failure = step, LakeError("the data node is away")
    while True:
        try:
            lake.open()
            for partition, end in ENDS.items():
                wanted = lake.state().missing([OffsetRange(*partition, 0, end)])
                if wanted:
                    load(lake, files, list(wanted))
        except LakeError:
            files.crash_at = None
        else:
            return lake
