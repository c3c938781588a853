"""Ranges of offsets are cut into tasks: nothing is lost, nothing is there twice."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.ranges import OffsetRange, split_ranges

SIZES = st.lists(st.integers(0, 200), min_size=1, max_size=8)


def ranges_of(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", index, 10 * index, 10 * index + size) for index, size in enumerate(sizes)]


def test_a_range_is_one_task_and_an_empty_one_none() -> None:
    assert split_ranges(ranges_of([5, 0, 3])) == [OffsetRange("t", 0, 0, 5), OffsetRange("t", 2, 20, 23)]


@pytest.mark.parametrize(("size", "pieces"), [(100, [34, 33, 33]), (3, [3]), (40, [40])])
def test_no_task_has_more_than_the_most_records(size: int, pieces: list[int]) -> None:
    assert sorted((piece.size for piece in split_ranges(ranges_of([size]), max_records=40)), reverse=True) == pieces


def test_larger_ranges_are_cut_into_more_tasks() -> None:
    pieces = split_ranges(ranges_of([100, 10, 1000]), min_partitions=10)
    assert [sum(piece.partition == index for piece in pieces) for index in range(3)] == [1, 1, 8]


def test_both_bounds_hold_together() -> None:
    pieces = split_ranges(ranges_of([100, 20]), min_partitions=8, max_records=25)
    assert len(pieces) == 8
    assert max(piece.size for piece in pieces) <= 25


@given(SIZES, st.none() | st.integers(1, 60), st.none() | st.integers(1, 50))
def test_tasks_hold_every_offset_once(sizes: list[int], min_partitions: int | None, max_records: int | None) -> None:
    pieces = split_ranges(ranges_of(sizes), min_partitions=min_partitions, max_records=max_records)
    assert len(pieces) >= min(min_partitions or 0, sum(sizes))
    assert all(0 < piece.size <= (max_records or piece.size) for piece in pieces)
    for whole in ranges_of(sizes):
        mine = [piece for piece in pieces if piece.partition == whole.partition]
        assert sum(piece.size for piece in mine) == whole.size
        assert all(one.end == other.start for one, other in pairwise(mine))
        assert not mine or (mine[0].start, mine[-1].end) == (whole.start, whole.end)
