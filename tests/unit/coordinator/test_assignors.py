"""The assignors: everything once, evenly, with few moves, and always the same."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.assignors import Assignment, MemberSpec, assign_range, assign_uniform

TOPIC_IDS = [bytes([number]) * 16 for number in range(1, 9)]
A, B, C = TOPIC_IDS[:3]


def member(*topic_ids: bytes, previous: Assignment | None = None, instance_id: str | None = None) -> MemberSpec:
    return MemberSpec(instance_id, frozenset(topic_ids), previous or {})


def loads(assigned: Mapping[str, Assignment]) -> dict[str, int]:
    return {member_id: sum(map(len, mine.values())) for member_id, mine in assigned.items()}


def moves(before: Mapping[str, MemberSpec], after: Mapping[str, Assignment]) -> int:
    """How many partitions were taken from a member that had them."""
    return sum(
        len(partitions - after[member_id].get(topic_id, frozenset()))
        for member_id, spec in before.items()
        for topic_id, partitions in spec.previous.items()
    )


def continued(members: Mapping[str, MemberSpec], assigned: Mapping[str, Assignment]) -> dict[str, MemberSpec]:
    return {member_id: spec._replace(previous=assigned[member_id]) for member_id, spec in members.items()}


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool = False) -> tuple[dict[str, MemberSpec], dict[bytes, int]]:
    """Members, topics, and a history that may be wrong in every way: topics gone, shrunk, assigned twice."""
    counts = draw(st.dictionaries(st.sampled_from(TOPIC_IDS), st.integers(0, 9), min_size=1))
    subscriptions = st.frozensets(st.sampled_from(TOPIC_IDS))
    history = st.dictionaries(st.sampled_from(TOPIC_IDS), st.frozensets(st.integers(0, 9), min_size=1), max_size=4)
    common = draw(subscriptions)
    members = {
        member_id: MemberSpec(None, common if homogeneous else draw(subscriptions), draw(history))
        for member_id in draw(st.lists(st.sampled_from("abcdefghij"), min_size=1, unique=True))
    }
    return members, counts


def check_whole(
    members: Mapping[str, MemberSpec], counts: Mapping[bytes, int], assigned: Mapping[str, Assignment]
) -> None:
    """Every partition that somebody wants has one owner, who wants it."""
    assert assigned.keys() == members.keys()
    owned = [
        (topic_id, partition)
        for member_id, mine in assigned.items()
        for topic_id, partitions in mine.items()
        for partition in partitions
        if topic_id in members[member_id].topic_ids
    ]
    wanted = {topic_id for spec in members.values() for topic_id in spec.topic_ids}
    assert sorted(owned) == sorted(
        (topic_id, partition) for topic_id in wanted for partition in range(counts.get(topic_id, 0))
    )
    assert all(partitions for mine in assigned.values() for partitions in mine.values())


@given(groups())
def test_both_assign_everything_once_to_those_who_want_it(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    for assign in (assign_uniform, assign_range):
        check_whole(*group, assign(*group))


@given(groups())
def test_the_order_in_which_members_are_told_does_not_matter(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    members, counts = group
    backwards = dict(reversed(members.items()))
    for assign in (assign_uniform, assign_range):
        assert assign(backwards, counts) == assign(members, counts)


@given(groups(homogeneous=True))
def test_uniform_is_even_within_one_and_takes_no_more_than_that_needs(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    members, counts = group
    first = assign_uniform(members, counts)
    assert max(loads(first).values()) - min(loads(first).values()) <= 1
    settled = continued(members, first)
    assert assign_uniform(settled, counts) == first

    settled["k"] = member(*next(iter(members.values())).topic_ids)  # one more: it gets its share, nobody else gets any
    after = assign_uniform(settled, counts)
    check_whole(settled, counts, after)
    assert moves(settled, after) == loads(after)["k"] == sum(loads(after).values()) // len(settled)

    left = dict(list(settled.items())[1:])  # one less: only what was its own is dealt out
    after_leave = assign_uniform(continued(left, after), counts)
    assert moves(continued(left, after), after_leave) == 0


@given(groups())
def test_uniform_leaves_no_handover_that_would_make_a_mixed_group_more_even(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    members, counts = group
    assigned = assign_uniform(members, counts)
    load = loads(assigned)
    gets_from: dict[str, set[str]] = {
        taker: {giver for giver, mine in assigned.items() if mine.keys() & spec.topic_ids}
        for taker, spec in members.items()
    }
    for taker in members:
        reached, queue = {taker}, [taker]
        while queue:
            for giver in gets_from[queue.pop()] - reached:
                reached.add(giver)
                queue.append(giver)
        assert max(load[giver] for giver in reached) - load[taker] <= 1
    assert assign_uniform(continued(members, assigned), counts) == assigned


def test_uniform_hands_over_along_a_chain() -> None:
    members = {
        "a": member(A, previous={A: frozenset({0, 1, 2})}),
        "b": member(A, B, previous={B: frozenset({0, 1})}),
        "c": member(B, C, previous={C: frozenset({0})}),
    }
    assert loads(assign_uniform(members, {A: 3, B: 2, C: 1})) == {"a": 2, "b": 2, "c": 2}


def test_uniform_spreads_the_partitions_of_a_topic() -> None:
    assigned = assign_uniform({"a": member(A, B), "b": member(A, B)}, {A: 2, B: 2})
    assert assigned == {
        "a": {A: frozenset({0}), B: frozenset({0})},
        "b": {A: frozenset({1}), B: frozenset({1})},
    }


def test_uniform_of_nobody_is_nothing() -> None:
    assert assign_uniform({}, {A: 3}) == assign_range({}, {A: 3}) == {}


def test_range_deals_in_runs_and_puts_like_with_like() -> None:
    members = {"m2": member(A, B), "m1": member(A, B), "m3": member(A, B)}
    assigned = assign_range(members, {A: 4, B: 4})
    assert assigned == {
        "m1": {A: frozenset({0, 1}), B: frozenset({0, 1})},
        "m2": {A: frozenset({2}), B: frozenset({2})},
        "m3": {A: frozenset({3}), B: frozenset({3})},
    }


def test_range_has_static_members_first_so_that_a_restart_changes_nothing() -> None:
    dynamic, static = member(A), member(A, instance_id="z")
    for member_id in ("m0", "m9"):
        assigned = assign_range({"m5": dynamic, member_id: static}, {A: 3})
        assert assigned == {member_id: {A: frozenset({0, 1})}, "m5": {A: frozenset({2})}}


def test_range_leaves_members_beyond_the_partitions_with_nothing() -> None:
    assert assign_range({"a": member(A), "b": member(A)}, {A: 1}) == {"a": {A: frozenset({0})}, "b": {}}


@pytest.mark.proof
def test_a_thousand_members_and_ten_thousand_partitions_take_about_a_second_at_most() -> None:
    ids = [number.to_bytes(16, "big") for number in range(1, 101)]
    counts = dict.fromkeys(ids, 100)
    everything = frozenset(ids)
    same = {f"m{number}": MemberSpec(None, everything, {}) for number in range(1000)}
    mixed = {
        member_id: MemberSpec(None, frozenset(ids[number % 7 :: 1 + number % 3]), {})
        for number, member_id in enumerate(same)
    }
    started = time.perf_counter()
    for members in (same, mixed):
        assigned = assign_uniform(members, counts)
        check_whole(members, counts, assigned)
        later = continued(members, assigned) | {f"n{number}": member(*ids[:50]) for number in range(50)}
        check_whole(later, counts, assign_uniform(later, counts))
        assign_range(members, counts)
    assert time.perf_counter() - started < 8  # six assignments and four checks, on a busy machine
