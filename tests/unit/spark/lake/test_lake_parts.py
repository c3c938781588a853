"""The small pure parts of a lake: intervals, hours, names, columns, tasks, groups of files, comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.lake.audit import Counts, comparable, compare, file_problems, sums_of_manifest
from barnabas.spark.lake.commit import LatePolicy
from barnabas.spark.lake.compact_plan import HourPlan, WrittenGroup, compact_entry, group_names, plan_hours
from barnabas.spark.lake.errors import LakeError, WrongSchema
from barnabas.spark.lake.evolution import Evolution, evolved
from barnabas.spark.lake.formats import FileFormat, check_format
from barnabas.spark.lake.hours import (
    FIRST_HOUR,
    HOUR_MS,
    LAST_HOUR,
    HourDirectories,
    PartitionProgress,
    complete_until,
    hour_text,
)
from barnabas.spark.lake.intervals import hulls, merged, missing
from barnabas.spark.lake.manifest import DataFile, Entry, Origin, State
from barnabas.spark.lake.names import PartName, batch_name, file_name, ranges_name
from barnabas.spark.lake.sink import LakeSettings
from barnabas.spark.lake.tasks import Task, plan_tasks, run_tasks
from barnabas.spark.pipeline.sinks import Written
from barnabas.spark.ranges import OffsetRange
from tests.unit.spark.lake.model_files import ModelFiles
from tests.unit.spark.lake.model_load import TABLE

intervals = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda pair: (pair[0], sum(pair))), max_size=8
)


def offsets(pairs: Any) -> set[int]:
    return {offset for start, end in pairs for offset in range(start, end)}


@given(intervals, st.tuples(st.integers(0, 30), st.integers(30, 60)))
def test_merged_intervals_hold_the_same_offsets_and_missing_ones_the_others(
    pairs: list[tuple[int, int]], wanted: tuple[int, int]
) -> None:
    there = merged(pairs)
    assert offsets(there) == offsets(pairs)
    assert all(end < start for (_, end), (start, _) in pairwise(there))
    assert offsets(missing(wanted, there)) == offsets([wanted]) - offsets(pairs)


def test_the_hull_of_ranges_is_one_for_each_partition() -> None:
    one, two = OffsetRange("t", 0, 5, 9), OffsetRange("t", 1, 0, 1)
    assert hulls([OffsetRange("t", 0, 20, 30), two, one]) == [OffsetRange("t", 0, 5, 30), two]


def test_the_directory_of_an_hour_is_in_utc_and_rows_without_a_time_have_one_too() -> None:
    places = HourDirectories()
    assert places.of(1_700_000_000_000 // HOUR_MS) == "date=2023-11-14/hour=22"
    assert places.of(None) == "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"
    assert HourDirectories("day", "h").of(-1) == "day=1969-12-31/h=23"
    assert places.of(FIRST_HOUR) == "date=0001-01-02/hour=00"
    assert hour_text(LAST_HOUR) == "9999-12-31T00"


AT_END = PartitionProgress(True, None)


@pytest.mark.parametrize(
    ("partitions", "lateness_ms", "expected"),
    [
        ([], 0, None),
        ([AT_END], 0, 100),
        ([AT_END], HOUR_MS // 2, 99),
        ([AT_END, PartitionProgress(False, 50 * HOUR_MS)], 0, 50),
        ([AT_END, PartitionProgress(False, None)], 0, None),
        ([PartitionProgress(False, 500 * HOUR_MS)], 0, 100),
    ],
    ids=["no partition", "at end", "lateness", "slowest partition", "unknown", "a time in the future"],
)
def test_an_hour_is_complete_when_no_partition_can_bring_rows_for_it(
    partitions: list[PartitionProgress], lateness_ms: int, expected: int | None
) -> None:
    assert complete_until(partitions, 100 * HOUR_MS + 1000, lateness_ms) == expected


def test_names_are_made_of_offsets_and_never_hidden() -> None:
    one = OffsetRange("clicks", 3, 5, 70)
    assert ranges_name([one]) == "clicks-3-00000000000000000005-00000000000000000070"
    assert ranges_name([replace(one, topic="_hidden")]).startswith("topic_hidden-3-")
    other = replace(one, partition=4)
    assert ranges_name([one, other]) == ranges_name([other, one]) != ranges_name([one, replace(other, end=71)])
    assert ranges_name([one, other]).startswith("clicks-3-and-1-more-")
    assert batch_name("q", 7) != batch_name("p", 7)
    assert [file_name("a", index, ".orc") for index in (0, 1)] == ["a.orc", "a-1.orc"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("part-00012-0f3b2a.c003.snappy.parquet", PartName(12, 3, ".snappy.parquet")),
        ("part-00000-0f3b2a-11-c000.json.gz", PartName(0, 0, ".json.gz")),
    ],
)
def test_the_names_that_spark_gives_are_understood(name: str, expected: PartName) -> None:
    assert PartName.parse(name) == expected
    with pytest.raises(ValueError, match="not a name that Spark gives"):
        PartName.parse(f"x{name}")


def schema(**columns: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": False, "metadata": {"a": 1}} for name, kind in columns.items()]
    return {"type": "struct", "fields": fields}


def types(given: Any) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in given["fields"]}


def array(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": False}


def test_columns_are_added_at_the_end_and_everything_may_be_null() -> None:
    lake = evolved(None, schema(a="long", s=schema(x="string")), Evolution.ADD)
    assert all(field["nullable"] and not field["metadata"] for field in lake["fields"])
    after = evolved(lake, schema(b="date", s=schema(y="long")), Evolution.ADD)
    assert list(types(after)) == ["a", "s", "b"]
    assert list(types(types(after)["s"])) == ["x", "y"]
    assert evolved(after, schema(a="integer"), Evolution.ADD) == after


@pytest.mark.parametrize(
    ("before", "after", "policy", "expected"),
    [
        ("integer", "long", Evolution.WIDEN, "long"),
        ("decimal(5,2)", "decimal(8,3)", Evolution.WIDEN, "decimal(8,3)"),
        ("decimal(8,3)", "decimal(5,2)", Evolution.ADD, "decimal(8,3)"),
        ("integer", "long", Evolution.ADD, "is long, and integer in the lake; evolution=widen"),
        ("long", "double", Evolution.WIDEN, "is double, and long in the lake"),
        ("decimal(8,3)", "decimal(8,5)", Evolution.WIDEN, r"is decimal\(8,5\), and"),
        ("string", {"type": "struct", "fields": []}, Evolution.WIDEN, "is struct, and string in the lake"),
        (array("integer"), array("string"), Evolution.ADD, r"column 'c\[\]' is string"),
    ],
)
def test_a_type_may_grow_by_policy_and_never_change(before: Any, after: Any, policy: Evolution, expected: str) -> None:
    lake = evolved(None, schema(c=before), policy)
    if expected in (before, after):
        assert types(evolved(lake, schema(c=after), policy)) == {"c": expected}
    else:
        with pytest.raises(WrongSchema, match=expected):
            evolved(lake, schema(c=after), policy)


def test_strict_columns_and_names_that_differ_by_case_are_refused() -> None:
    lake = evolved(None, schema(a="long", b="long"), Evolution.STRICT)
    with pytest.raises(WrongSchema, match="column 'b' of the lake is missing"):
        evolved(lake, schema(a="long"), Evolution.STRICT)
    with pytest.raises(WrongSchema, match="column 'c' is not in the lake"):
        evolved(lake, schema(a="long", b="long", c="long"), Evolution.STRICT)
    with pytest.raises(WrongSchema, match="'A' differs from 'a' of the lake by case only"):
        evolved(lake, schema(A="long", b="long"), Evolution.ADD)


def test_csv_is_told_beforehand_what_it_cannot_hold() -> None:
    check_format(FileFormat.JSON, schema(value="binary"))
    with pytest.raises(WrongSchema, match="column 'value' is binary, which csv cannot hold"):
        check_format(FileFormat.CSV, schema(value="binary"))


def test_tasks_are_cut_at_the_same_offsets_wherever_a_load_begins() -> None:
    whole = plan_tasks([OffsetRange("t", 0, 0, 35)], 10)
    assert [(task.start, task.end) for (task,) in whole] == [(0, 10), (10, 20), (20, 30), (30, 35)]
    rest = plan_tasks([OffsetRange("t", 0, 10, 35)], 10)
    assert rest == whole[1:]


def test_small_pieces_of_one_topic_share_a_task_and_no_partition_is_twice_in_one() -> None:
    small = [OffsetRange("t", partition, 0, 4) for partition in range(3)]
    other = OffsetRange("u", 0, 0, 1)
    assert plan_tasks([*small, other], 10) == [tuple(small[:2]), (small[2],), (other,)]
    apart = [OffsetRange("t", 0, 0, 2), OffsetRange("t", 0, 5, 7)]
    assert plan_tasks(apart, 10) == [(apart[0],), (apart[1],)]


def test_a_task_that_fails_stops_no_other_and_a_stop_only_those_that_do_not_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks = [(OffsetRange("t", partition, 0, 4),) for partition in range(5)]
    written: list[int] = []

    def write(rows: int, task: Task) -> Written:
        if rows == 2:
            raise LakeError("no room")
        written.append(rows)
        return Written(rows)

    def run(is_stopped: Callable[[], bool]) -> int:
        return run_tasks(
            tasks,
            lambda task: task[0].partition,
            write,
            parallel=2,
            is_stopped=is_stopped,
            on_done=lambda *done: None,
        )

    with pytest.raises(LakeError, match="no room"):
        run(lambda: False)
    assert "t-2 [0, 4) failed, and is left for the next run" in caplog.text
    assert sorted(written) == [0, 1, 3, 4]
    written.clear()
    assert run(lambda: len(written) > 0) <= 1
    assert 1 <= len(written) <= 2


def data_file(name: str, size: int, *origins: Origin, hour: int = 5) -> DataFile:
    return DataFile(f"date=1970-01-01/hour=05/{name}", hour, sum(one.rows for one in origins), size, origins)


def test_neighbours_are_compacted_up_to_the_size_that_is_wanted_and_keep_their_offsets() -> None:
    files = [
        data_file(f"f{index}", 40, Origin(OffsetRange("clicks", 0, index * 10, index * 10 + 10), 3))
        for index in range(5)
    ]
    state = State(table=TABLE, files={file.path: file for file in files}, complete_until=6)
    (plan,) = plan_hours(state, 100)
    assert [len(group) for group in plan.groups] == [2, 2, 1]
    written = [WrittenGroup(".parquet", sum(file.rows for file in group), 70) for group in plan.groups]
    after = state.after(compact_entry(state, plan, written, "_staging/c"))
    assert [file.origins for file in after.files_by_hour()[5]] == [
        (Origin(OffsetRange("clicks", 0, 0, 20), 6),),
        (Origin(OffsetRange("clicks", 0, 20, 40), 6),),
        (Origin(OffsetRange("clicks", 0, 40, 50), 3),),
    ]
    assert plan_hours(after, 100) == []
    assert plan_hours(replace(state, complete_until=5), 100) == []


def test_compacted_files_of_the_same_offsets_have_names_of_their_own() -> None:
    origin = Origin(OffsetRange("clicks", 0, 0, 10), 1)
    plan = HourPlan(5, ((data_file("a", 1, origin),), (data_file("b", 1, origin),), (data_file("c", 1),)))
    names = group_names(plan, [".orc"] * 3)
    assert len(set(names)) == 3
    assert names[2].startswith("files-")


def counts(**hours: int) -> Counts:
    return Counter({("t", 0, int(hour[1:])): count for hour, count in hours.items()})


def test_the_audit_tells_hours_apart_and_allows_for_rows_that_policy_has_dropped() -> None:
    whole = [OffsetRange("t", 0, 0, 30)]
    rows = list(compare(counts(h1=10, h2=10), counts(h1=10, h2=9), {}, whole))
    assert [(row["hour"], row["ok"]) for row in rows] == [("1970-01-01T01", True), ("1970-01-01T02", False)]
    dropped = {("t", 0): 1}
    rows = list(compare(counts(h1=10, h2=10), counts(h1=10, h2=9), dropped, whole))
    assert [(row["hour"], row["ok"]) for row in rows][2:] == [("all", True)]
    rows = list(compare(counts(h1=10, h2=10), counts(h1=9, h2=9), dropped, whole))
    assert [row["ok"] for row in rows] == [True, True, False]
    (doubled,) = compare(counts(h1=10), counts(h1=11), {}, whole)
    assert not doubled["ok"]


def test_only_offsets_that_the_topic_still_has_are_compared() -> None:
    state = State().after(Entry(1, "load", ranges=(OffsetRange("t", 0, 0, 50), OffsetRange("t", 0, 60, 80))))
    assert comparable(state, {("t", 0): (20, 70)}) == [OffsetRange("t", 0, 20, 50), OffsetRange("t", 0, 60, 70)]
    assert comparable(state, {}) == []
    lost = data_file("a", 1, Origin(OffsetRange("t", 0, 0, 50), 9))
    with pytest.raises(LakeError, match=r"offsets of .* that the topic has lost"):
        sums_of_manifest([lost], [OffsetRange("t", 0, 20, 50)])
    assert sums_of_manifest([lost], [OffsetRange("t", 0, 0, 50)]) == {("t", 0, None): 9}


def test_files_that_are_missing_cut_or_foreign_are_named() -> None:
    files = ModelFiles()
    known = [data_file(name, 4) for name in ("cut", "gone", "whole", "moving")]
    state = State(table=TABLE, files={file.path: file for file in known})
    place = "date=1970-01-01/hour=05"
    files.files |= {f"{place}/whole": b"1234", f"{place}/cut": b"12", f"{place}/foreign": b"", f"{place}/_SUCCESS": b""}
    problems = dict(file_problems(files, state, {f"{place}/moving": "_staging/x"}))
    assert list(problems) == [f"{place}/cut", f"{place}/gone", f"{place}/foreign"]


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="lateness='soon' is wrong"):
        LakeSettings("/lake", lateness="soon")
    with pytest.raises(ValueError, match="target_bytes at least 1"):
        LakeSettings("/lake", target_bytes=0)


def test_the_guide_tells_of_every_setting() -> None:
    guide = (Path(__file__).parents[4] / "docs" / "guide" / "lake.md").read_text()
    for setting in fields(LakeSettings):
        assert f"`{setting.name}`" in guide, setting.name
    for choice in (*LatePolicy, *Evolution, *FileFormat):
        assert f"`{choice}`" in guide, choice
