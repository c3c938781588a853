"""Plans that spread replicas: complete, distinct, over racks, even, with few moves, and the same in every run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cluster.balance import Place, balance
from barnabas.cluster.placement import place

Replicas = dict[Place, tuple[int, ...]]


def placed(brokers: Sequence[int], partitions: int, factor: int, topic: str = "t", seed: int = 0) -> Replicas:
    """A topic as the controller would place it."""
    chosen = place(dict.fromkeys(brokers), range(partitions), factor, Random(seed))
    return {Place(topic, number): tuple(replicas) for number, replicas in enumerate(chosen)}


def after(before: Mapping[Place, Sequence[int]], plan: Replicas) -> Replicas:
    return {partition: tuple(replicas) for partition, replicas in before.items()} | plan


def loads(assignment: Mapping[Place, Sequence[int]], brokers: Sequence[int]) -> list[int]:
    counted = Counter(broker for replicas in assignment.values() for broker in replicas)
    return [counted[broker] for broker in brokers]


def leaders(assignment: Mapping[Place, Sequence[int]], brokers: Sequence[int]) -> list[int]:
    counted = Counter(replicas[0] for replicas in assignment.values())
    return [counted[broker] for broker in brokers]


def moves(before: Mapping[Place, Sequence[int]], plan: Replicas) -> int:
    return sum(len(set(replicas) - set(before[partition])) for partition, replicas in plan.items())


def difference(counts: Sequence[int]) -> int:
    return max(counts) - min(counts)


def test_what_is_even_stays() -> None:
    assert balance(placed((1, 2, 3), 12, 3), dict.fromkeys((1, 2, 3))) == {}


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    before = placed((1, 2, 3), 12, 2)
    plan = balance(before, dict.fromkeys((1, 2, 3, 4)))
    assert moves(before, plan) == 6
    assert loads(after(before, plan), (1, 2, 3, 4)) == [6, 6, 6, 6]
    assert leaders(after(before, plan), (1, 2, 3, 4)) == [3, 3, 3, 3]


def test_a_new_broker_gets_a_share_of_every_topic() -> None:
    before = {**placed((1, 2), 8, 1, "a"), **placed((1, 2), 8, 1, "b"), **placed((1, 2), 8, 1, "c")}
    planned = after(before, balance(before, dict.fromkeys((1, 2, 3))))
    for topic in "abc":
        of_topic = {partition: replicas for partition, replicas in planned.items() if partition.topic == topic}
        assert difference(loads(of_topic, (1, 2, 3))) <= 2


def test_a_drained_broker_is_empty_and_only_its_replicas_move() -> None:
    before = placed((1, 2, 3, 4), 12, 2)
    plan = balance(before, dict.fromkeys((1, 2, 3)))
    assert loads(after(before, plan), (1, 2, 3, 4)) == [8, 8, 8, 0]
    assert moves(before, plan) == 6


def test_more_replicas_are_added_behind_those_that_are_there() -> None:
    before = placed((1, 2, 3), 6, 1)
    plan = balance(before, dict.fromkeys((1, 2, 3)), {"t": 3})
    assert all(replicas[0] == before[partition][0] for partition, replicas in plan.items())
    assert {frozenset(replicas) for replicas in plan.values()} == {frozenset({1, 2, 3})}


def test_fewer_replicas_keep_the_leaders_and_move_nothing() -> None:
    before = placed((1, 2, 3), 6, 3)
    plan = balance(before, dict.fromkeys((1, 2, 3)), {"t": 2})
    assert [replicas[0] for replicas in plan.values()] == [replicas[0] for replicas in before.values()]
    assert moves(before, plan) == 0
    assert loads(after(before, plan), (1, 2, 3)) == [4, 4, 4]


def test_only_the_named_topic_changes_its_number_of_replicas() -> None:
    before = {**placed((1, 2, 3), 3, 1, "a"), **placed((1, 2, 3), 3, 1, "b")}
    plan = balance(before, dict.fromkeys((1, 2, 3)), {"a": 2})
    assert {partition.topic for partition in plan} == {"a"}


def test_topics_that_stay_count_all_the_same() -> None:
    before = {**placed((1, 2), 6, 1, "here"), **{Place("a", number): (1,) for number in range(4)}, Place("b", 0): (4,)}
    plan = balance(before, dict.fromkeys((1, 2, 3)), only={"a"})
    assert {partition.topic for partition in plan} == {"a"}
    assert loads(after(before, plan), (1, 2, 3, 4)) == [4, 3, 3, 1]


def test_replicas_that_share_a_rack_part() -> None:
    before = {Place("t", 0): (1, 2), Place("t", 1): (3, 4)}
    plan = balance(before, {1: "a", 2: "a", 3: "b", 4: "b"})
    racks = [{broker in (1, 2) for broker in replicas} for replicas in after(before, plan).values()]
    assert racks == [{True, False}, {True, False}]
    assert moves(before, plan) == 2


def test_too_few_brokers_are_named() -> None:
    with pytest.raises(ValueError, match="t cannot have 3 replicas on 2 brokers"):
        balance(placed((1, 2), 2, 2), dict.fromkeys((1, 2)), {"t": 3})
    with pytest.raises(ValueError, match="t cannot have 2 replicas on 1 brokers"):
        balance(placed((1, 2), 2, 2), {1: None})


@pytest.mark.proof
def test_ten_thousand_partitions_are_planned_in_seconds() -> None:
    before = {}
    for number in range(1000):
        before.update(placed((1, 2, 3), 10, 3, f"topic-{number}", number))
    started = time.process_time()
    plan = balance(before, dict.fromkeys((1, 2, 3, 4)))
    assert time.process_time() - started < 10
    assert loads(after(before, plan), (1, 2, 3, 4)) == [7500] * 4
    assert moves(before, plan) == 7500


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Replicas, list[int], list[int]]:
    """Any assignment of topics, each with its own number of replicas, and the brokers before and after."""
    brokers = list(range(1, draw(st.integers(2, 7)) + 1))
    assignment: Replicas = {}
    for topic in "abc"[: draw(st.integers(1, 3))]:
        factor = draw(st.integers(1, min(3, len(brokers))))
        for number in range(draw(st.integers(1, 8))):
            chosen = draw(st.permutations(brokers))[:factor]
            assignment[Place(topic, number)] = tuple(chosen)
    most = max(map(len, assignment.values()))
    kept = draw(st.lists(st.sampled_from(brokers), min_size=0, unique=True))
    added = [8, 9][: draw(st.integers(0, 2))]
    wanted = sorted({*kept, *added})
    return assignment, brokers, wanted if len(wanted) >= most else brokers + added


@settings(max_examples=200, deadline=None)
@given(clusters())
def test_any_plan_without_racks_is_even_and_moves_no_more_than_it_must(
    cluster: tuple[Replicas, list[int], list[int]],
) -> None:
    before, _, wanted = cluster
    plan = balance(before, dict.fromkeys(wanted))
    planned = after(before, plan)
    for partition, replicas in planned.items():
        assert len(set(replicas)) == len(replicas) == len(before[partition])
        assert set(replicas) <= set(wanted)
    counts = loads(planned, wanted)
    assert difference(counts) <= 1
    assert plan == balance(dict(reversed(before.items())), dict.fromkeys(wanted))
    assert balance(planned, dict.fromkeys(wanted)) == {}
    # What has to move: all that is on other brokers, and what the fullest ones have beyond their share.
    kept = sorted(loads(before, wanted), reverse=True)
    displaced = sum(map(len, before.values())) - sum(kept)
    excess = sum(max(0, have - share) for have, share in zip(kept, sorted(counts, reverse=True)))
    detours = len(wanted) if displaced else 0
    assert displaced + excess <= moves(before, plan) <= displaced + excess + detours


@settings(max_examples=200, deadline=None)
@given(data=st.data(), rack_count=st.integers(1, 4), rack_size=st.integers(1, 3), partitions=st.integers(1, 20))
def test_any_plan_with_racks_uses_them_all_and_is_even_where_they_are_alike(
    data: st.DataObject, rack_count: int, rack_size: int, partitions: int
) -> None:
    racks = {10 * rack + broker: "abcd"[rack] for rack in range(rack_count) for broker in range(rack_size)}
    factor = data.draw(st.integers(1, min(3, len(racks))))
    before = {
        Place("t", number): tuple(data.draw(st.permutations(sorted(racks)))[:factor]) for number in range(partitions)
    }
    plan = balance(before, racks)
    planned = after(before, plan)
    for replicas in planned.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, rack_count)
    assert difference(loads(planned, list(racks))) <= 1
    assert difference(leaders(planned, list(racks))) <= 1
    assert balance(planned, racks) == {}


@settings(max_examples=100, deadline=None)
@given(data=st.data(), count=st.integers(2, 6), partitions=st.integers(1, 15))
def test_racks_of_any_size_are_respected_when_a_topic_grows(data: st.DataObject, count: int, partitions: int) -> None:
    racks = {broker: data.draw(st.sampled_from("ab")) for broker in range(count)}
    before = {Place("t", number): (data.draw(st.sampled_from(range(count))),) for number in range(partitions)}
    factor = data.draw(st.integers(1, min(3, count)))
    planned = after(before, balance(before, racks, {"t": factor}))
    for replicas in planned.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))
