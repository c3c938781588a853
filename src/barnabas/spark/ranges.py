"""Ranges of offsets, and how they are cut into the tasks of a read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
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


def ranges_between(start: Mapping[tuple[str, int], int], end: Mapping[tuple[str, int], int]) -> tuple[OffsetRange, ...]:
    """From start to end in every partition that has both, in the order of partitions."""
    return tuple(OffsetRange(*where, start[where], last) for where, last in sorted(end.items()) if where in start)


def split_ranges(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """The same offsets in pieces of at most `max_records`, at least `min_partitions` of them if there are enough.

    Without either, a range is one piece. Empty ranges are left out.
    """
    pieces = sorted(given for given in ranges if given.size > 0)
    if max_records is not None:
        pieces = [piece for given in pieces for piece in _cut(given, -(-given.size // max_records))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    counts = _counts([given.size for given in pieces], min_partitions)
    return [piece for given, count in zip(pieces, counts) for piece in _cut(given, count)]


def _counts(sizes: list[int], total: int) -> list[int]:
    """Into how many pieces to cut each, so that there are `total`: always the one whose pieces are largest."""
    counts = [1] * len(sizes)
    heap: list[tuple[float, int]] = [(-size, index) for index, size in enumerate(sizes)]
    heapify(heap)
    for _ in range(min(total, sum(sizes)) - len(sizes)):
        index = heap[0][1]
        counts[index] += 1
        heapreplace(heap, (-sizes[index] / counts[index], index))
    return counts


def _cut(given: OffsetRange, count: int) -> list[OffsetRange]:
    """Pieces whose sizes differ by one at most."""
    bounds = [given.start + given.size * index // count for index in range(count + 1)]
    return [replace(given, start=start, end=end) for start, end in pairwise(bounds)]
