"""Which offsets of a partition are in the lake: sorted intervals from, up to and not including, that do not touch."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.spark.ranges import OffsetRange

Interval = tuple[int, int]
Intervals = tuple[Interval, ...]


def merged(intervals: Iterable[Interval]) -> Intervals:
    """The same offsets in as few intervals as there can be. An empty one is kept where nothing else tells the place."""
    result: list[Interval] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)


def missing(wanted: Interval, there: Intervals) -> Intervals:
    """The offsets of `wanted` that are not there."""
    result = []
    start, end = wanted
    for first, last in there:
        if start < min(first, end):
            result.append((start, min(first, end)))
        start = max(start, last)
    if start < end:
        result.append((start, end))
    return tuple(result)


def hulls(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """One range for each partition, from the first offset of its own to the last."""
    found: dict[tuple[str, int], OffsetRange] = {}
    for one in sorted(ranges):
        first = found.setdefault((one.topic, one.partition), one)
        found[one.topic, one.partition] = OffsetRange(one.topic, one.partition, first.start, max(first.end, one.end))
    return list(found.values())
