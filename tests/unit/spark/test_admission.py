"""The share of a micro-batch that each partition gets, and when a small one may wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.admission import Patience, within


def test_a_limit_is_shared_out_in_proportion_to_what_is_there() -> None:
    ends = within(100, {"a": 0, "b": 1000, "c": 7}, {"a": 900, "b": 1100, "c": 7})

    assert ends["a"] + (ends["b"] - 1000) == 100
    assert abs(ends["a"] - 90) <= 1
    assert ends["c"] == 7


def test_all_is_read_where_the_limit_is_not_reached() -> None:
    assert within(100, {"a": 0, "b": 5}, {"a": 50, "b": 55}) == {"a": 50, "b": 55}


def test_a_small_partition_is_not_starved_by_a_large_one() -> None:
    ends = within(10, {"large": 0, "small": 0}, {"large": 1_000_000, "small": 1})

    assert ends == {"large": 9, "small": 1}


def test_more_partitions_than_the_limit_give_one_each() -> None:
    names = "abcdef"

    assert within(2, dict.fromkeys(names, 10), dict.fromkeys(names, 20)) == dict.fromkeys(names, 11)


def test_partitions_with_one_offset_each_give_it_even_above_the_limit() -> None:
    assert within(1, {"a": 0, "b": 0}, {"a": 1, "b": 1}) == {"a": 1, "b": 1}


def test_a_log_that_ends_before_the_start_is_left_as_it_is() -> None:
    assert within(1, {"cut": 100, "a": 0}, {"cut": 95, "a": 50}) == {"cut": 95, "a": 1}


@given(
    limit=st.integers(1, 2000),
    sizes=st.lists(st.integers(0, 1 << 40), min_size=1, max_size=12),
)
def test_a_batch_never_passes_the_end_nor_stands_still_and_keeps_the_limit(limit: int, sizes: list[int]) -> None:
    starts = dict.fromkeys(range(len(sizes)), 3)
    ends = {index: 3 + size for index, size in enumerate(sizes)}
    filled = sum(size > 0 for size in sizes)

    cut = within(limit, starts, ends)

    assert all((starts[index] < cut[index] or sizes[index] == 0) and cut[index] <= ends[index] for index in cut)
    taken = sum(cut[index] - starts[index] for index in cut)
    assert taken == min(sum(sizes), max(limit, filled))


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_batch_waits_for_enough_offsets_but_not_longer_than_the_delay() -> None:
    clock = _Clock()
    patience = Patience(100, 60_000, clock)

    assert patience.is_ready(1), "the first batch of a run does not wait"
    clock.now += 59
    assert not patience.is_ready(99)
    assert patience.is_ready(100)
    clock.now += 59.5
    assert not patience.is_ready(1)
    clock.now += 0.5
    assert patience.is_ready(1)


def test_nothing_new_is_never_a_batch_and_does_not_use_up_the_delay() -> None:
    clock = _Clock()
    patience = Patience(100, 60_000, clock)
    assert patience.is_ready(1)

    clock.now += 61
    assert not patience.is_ready(0)
    assert patience.is_ready(1)


def test_without_a_minimum_nothing_waits() -> None:
    patience = Patience(None, 60_000, _Clock())

    assert patience.is_ready(1)
    assert patience.is_ready(1)
