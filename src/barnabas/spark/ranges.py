"""Ranges of offsets, and how they are cut into the tasks of a read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def split_ranges(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """The same offsets in pieces of at most `max_records`, and in at least about `min_partitions` pieces.

    Larger ranges are cut into more pieces, in proportion to their size. Empty ranges are left out.
    """
    whole = sorted(given for given in ranges if given.size > 0)
    if max_records is not None:
        whole = [piece for given in whole for piece in _cut(given, -(-given.size // max_records))]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(given.size for given in whole)
    return [piece for given in whole for piece in _cut(given, round(given.size * min_partitions / total))]


def _cut(given: OffsetRange, count: int) -> list[OffsetRange]:
    """Pieces whose sizes differ by one at most."""
    count = max(1, min(count, given.size))
    bounds = [given.start + given.size * index // count for index in range(count + 1)]
    return [replace(given, start=start, end=end) for start, end in pairwise(bounds)]
