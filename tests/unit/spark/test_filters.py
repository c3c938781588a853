"""What filters leave to be read: never less than the rows that pass them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from barnabas.spark.filters import cut_ranges, since_ms
from barnabas.spark.ranges import OffsetRange

TIME = datetime(2026, 11, 16, 10, 0, 0, 1_500, tzinfo=UTC)
TIME_MS = 1_794_823_200_001
RANGES = [OffsetRange("a", 0, 10, 20), OffsetRange("a", 1, 0, 100), OffsetRange("b", 0, 15, 16)]


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], [(10, 20), (0, 100), (15, 16)]),
        ([EqualTo(("offset",), 15)], [(15, 16), (15, 16), (15, 16)]),
        ([EqualNullSafe(("offset",), 12)], [(12, 13), (12, 13)]),
        ([GreaterThan(("offset",), 15)], [(16, 20), (16, 100)]),
        ([GreaterThanOrEqual(("offset",), 15), LessThan(("offset",), 17)], [(15, 17), (15, 17), (15, 16)]),
        ([LessThanOrEqual(("offset",), 0)], [(0, 1)]),
        ([In(("offset",), (12, 14))], [(12, 15), (12, 15)]),
        ([EqualTo(("partition",), 1)], [(0, 100)]),
        ([In(("partition",), (1, 7))], [(0, 100)]),
        ([LessThan(("partition",), 1)], [(10, 20), (15, 16)]),
        ([EqualTo(("topic",), "b")], [(15, 16)]),
        ([EqualTo(("topic",), "a"), EqualTo(("partition",), 0), GreaterThan(("offset",), 100)], []),
    ],
)
def test_ranges_are_cut_by_offset_partition_and_topic(filters: list[Filter], left: list[tuple[int, int]]) -> None:
    assert [(given.start, given.end) for given in cut_ranges(RANGES, filters)] == left


@pytest.mark.parametrize(
    "given",
    [
        Not(EqualTo(("offset",), 15)),
        IsNotNull(("offset",)),
        EqualNullSafe(("offset",), None),
        In(("offset",), (3, None)),
        In(("offset",), ()),
        EqualTo(("headers", "offset"), 15),
        StringStartsWith(("topic",), "zzz"),
        EqualTo(("timestamp",), TIME),
        EqualTo(("value",), 3),
    ],
)
def test_other_filters_cut_nothing(given: Filter) -> None:
    assert cut_ranges(RANGES, [given]) == RANGES


@pytest.mark.parametrize("kind", [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual])
def test_a_lower_bound_of_time_is_the_first_millisecond_that_may_pass(kind: type[EqualTo]) -> None:
    assert since_ms([kind(("timestamp",), TIME)]) == TIME_MS + 1
    assert since_ms([kind(("timestamp",), TIME.replace(microsecond=1_000))]) == TIME_MS


def test_the_latest_of_the_lower_bounds_counts() -> None:
    later = TIME.replace(hour=11, microsecond=0)
    assert since_ms([GreaterThan(("timestamp",), TIME), In(("timestamp",), (later, TIME))]) == TIME_MS + 1
    assert since_ms([GreaterThan(("timestamp",), TIME), EqualTo(("timestamp",), later)]) == TIME_MS - 1 + 3_600_000


@pytest.mark.parametrize(
    "given",
    [
        LessThan(("timestamp",), TIME),
        LessThanOrEqual(("timestamp",), TIME),
        Not(GreaterThan(("timestamp",), TIME)),
        GreaterThan(("timestamp",), TIME.replace(tzinfo=None)),
        GreaterThan(("offset",), 3),
        EqualNullSafe(("timestamp",), None),
    ],
)
def test_upper_bounds_of_time_say_nothing(given: Filter) -> None:
    assert since_ms([given]) is None
