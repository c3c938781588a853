"""Where replicas go: balanced, distinct, spread over racks, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cluster.placement import place, ring


def test_partition_i_is_led_by_broker_i_and_followed_by_the_next_ones_around_the_ring() -> None:
    racks: dict[int, str | None] = dict.fromkeys((10, 20, 30, 40))
    placed = place(racks, range(4), 3, Random(0), first_leader=10)
    assert placed == [[10, 20, 30], [20, 30, 40], [30, 40, 10], [40, 10, 20]]


def test_followers_shift_with_each_turn_so_that_a_failing_broker_is_replaced_by_many() -> None:
    racks: dict[int, str | None] = dict.fromkeys(range(4))
    placed = place(racks, range(12), 2, Random(0), first_leader=0)
    assert [replicas[1] for replicas in placed if replicas[0] == 0] == [1, 2, 3]


def test_added_partitions_go_on_where_the_topic_left_off() -> None:
    racks: dict[int, str | None] = dict.fromkeys(range(5))
    whole = place(racks, range(13), 3, Random(3))
    assert place(racks, range(7, 13), 3, Random(9), first_leader=whole[0][0]) == whole[7:]


def test_racks_take_turns_in_the_ring() -> None:
    assert ring({1: "a", 2: "a", 3: "b", 4: "b", 5: "b", 6: "c"}) == [1, 3, 6, 2, 4, 5]
    assert ring({2: "a", 1: None, 3: "b"}) == [1, 2, 3]


@settings(max_examples=200, deadline=None)
@given(data=st.data(), count=st.integers(1, 8), partitions=st.integers(1, 40), seed=st.integers(0, 9))
def test_any_placement_is_distinct_balanced_and_spread(
    data: st.DataObject, count: int, partitions: int, seed: int
) -> None:
    names = data.draw(st.none() | st.lists(st.sampled_from("abc"), min_size=count, max_size=count))
    racks = {10 * broker: names[broker] if names else None for broker in range(count)}
    factor = data.draw(st.integers(1, count))
    placed = place(racks, range(partitions), factor, Random(seed))
    assert placed == place(racks, range(partitions), factor, Random(seed))
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker] for broker in racks) <= 1
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= racks.keys()
        if names:
            assert len({racks[broker] for broker in replicas}) == min(factor, len(set(names)))
