"""Raw records of which tasks were unsure, kept until the bad ones among them are found.

A load has them at hand, with the offsets that it has read. So dead letters cost no other look at the topics, as long as
the loads of a run have read the same offsets that dead letters are wanted of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from barnabas.spark.lake.intervals import merged, missing
from barnabas.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class _Kept:
    source: str
    ranges: tuple[OffsetRange, ...]
    records: DataFrame | None
    """None if the tasks were sure of all."""
    release: Callable[[], object]


class UnsureRecords:
    """Of one run; its loads may come from several threads."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []
        self._lock = Lock()

    def keep(
        self,
        source: str,
        ranges: Sequence[OffsetRange],
        records: DataFrame | None,
        release: Callable[[], object] = lambda: None,
    ) -> None:
        """Keep those of a load of these offsets; `release` is called when nobody needs them any more."""
        with self._lock:
            is_new = not any(_meets(one, kept) for one in ranges for kept in self._ranges(source))
            if is_new:
                self._kept.append(_Kept(source, tuple(ranges), records, release))
        if not is_new:  # by a load into another sink
            release()

    def among(self, source: str, wanted: Sequence[OffsetRange]) -> list[DataFrame] | None:
        """Those among the offsets wanted, or None if they were not loaded, or only together with others."""
        with self._lock:
            used = [
                kept
                for kept in self._kept
                if kept.source == source and all(any(_lies_in(one, each) for each in wanted) for one in kept.ranges)
            ]
        for each in wanted:
            there = merged((one.start, one.end) for kept in used for one in kept.ranges if _lies_in(one, each))
            if missing((each.start, each.end), there):
                return None
        return [kept.records for kept in used if kept.records is not None]

    def release(self, done: Mapping[tuple[str, int], int] | None = None) -> None:
        """Let go of loads whose offsets are all done; without an argument of all."""
        with self._lock:
            over = [kept for kept in self._kept if done is None or _is_over(kept, done)]
            self._kept = [kept for kept in self._kept if kept not in over]
        for kept in over:
            kept.release()

    def _ranges(self, source: str) -> Iterator[OffsetRange]:
        return (one for kept in self._kept if kept.source == source for one in kept.ranges)


def _meets(one: OffsetRange, other: OffsetRange) -> bool:
    return (one.topic, one.partition) == (other.topic, other.partition) and max(one.start, other.start) < min(
        one.end, other.end
    )


def _lies_in(one: OffsetRange, other: OffsetRange) -> bool:
    return (
        (one.topic, one.partition) == (other.topic, other.partition)
        and other.start <= one.start
        and one.end <= other.end
    )


def _is_over(kept: _Kept, done: Mapping[tuple[str, int], int]) -> bool:
    return all(one.end <= done.get((one.topic, one.partition), -1) for one in kept.ranges)
