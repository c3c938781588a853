"""Filters that cut the ranges of a batch read before anything is fetched.

Topic and partition are the same for a whole range, offsets count within it. Of timestamps only *lower* bounds help: the
cluster knows the first record at or after a time, but behind it times may go back and forth. Whatever is cut here,
Spark checks every row again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from barnabas.spark.ranges import OffsetRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST = 2**63 - 1

_HOLDS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, allowed: value in allowed,
}
_BOUNDS: dict[type[Filter], Callable[[Any], tuple[int, int]]] = {
    EqualTo: lambda value: (value, value + 1),
    EqualNullSafe: lambda value: (value, value + 1),
    GreaterThan: lambda value: (value + 1, _LARGEST),
    GreaterThanOrEqual: lambda value: (value, _LARGEST),
    LessThan: lambda value: (0, value),
    LessThanOrEqual: lambda value: (0, value + 1),
    In: lambda values: (min(values), max(values) + 1),
}
"""The first offset that a filter on them lets through, and the first behind those."""

_EARLIEST: dict[type[Filter], Callable[[Any], datetime]] = {
    EqualTo: lambda value: value,
    EqualNullSafe: lambda value: value,
    GreaterThan: lambda value: value,
    GreaterThanOrEqual: lambda value: value,
    In: min,
}


def cut_ranges(ranges: Iterable[OffsetRange], filters: Sequence[Filter]) -> list[OffsetRange]:
    """What filters on topic, partition and offset leave of the ranges."""
    topics, partitions = _of(filters, "topic", str, _HOLDS), _of(filters, "partition", int, _HOLDS)
    bounds = [bounds_of(value) for bounds_of, value in _of(filters, "offset", int, _BOUNDS)]
    first = max((low for low, _ in bounds), default=0)
    end = min((high for _, high in bounds), default=_LARGEST)
    return [
        replace(given, start=max(given.start, first), end=min(given.end, end))
        for given in ranges
        if all(holds(given.topic, value) for holds, value in topics)
        and all(holds(given.partition, value) for holds, value in partitions)
        and max(given.start, first) < min(given.end, end)
    ]


def since_ms(filters: Sequence[Filter]) -> int | None:
    """The milliseconds since 1970 before which no row can pass; None where nothing is said."""
    times = [earliest(value) for earliest, value in _of(filters, "timestamp", datetime, _EARLIEST)]
    aware = [time for time in times if time.tzinfo is not None]
    return -(-(max(aware) - _EPOCH) // timedelta(milliseconds=1)) if aware else None


def _of(filters: Sequence[Filter], column: str, kind: type, table: dict[type[Filter], Any]) -> list[tuple[Any, Any]]:
    """The filters on a column that the table knows, each with its value."""
    return [
        (table[type(given)], given.value)  # type: ignore[attr-defined]
        for given in filters
        if type(given) in table and given.attribute == (column,) and _is(kind, given.value)  # type: ignore[attr-defined]
    ]


def _is(kind: type, value: object) -> bool:
    return isinstance(value, kind) or (
        isinstance(value, tuple | list) and bool(value) and all(isinstance(each, kind) for each in value)
    )
