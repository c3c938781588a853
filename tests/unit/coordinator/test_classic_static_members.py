"""Static members of classic groups (KIP-345): who comes back takes its place, and its former self is fenced."""

from __future__ import annotations

import pytest

from barnabas.coordinator.classic_group import ClassicGroupConfig
from barnabas.coordinator.classic_state import ClassicState
from barnabas.core.errors import ErrorCode
from tests.unit.coordinator.classic_groups import (
    DELAY_MS,
    REBALANCE_MS,
    Bench,
    subscription,
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicState


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_static_member_joins_without_the_round_trip_and_is_named_after_its_instance(bench: Bench) -> None:
    join = bench.send_join(instance="i1")
    bench.advance(DELAY_MS)
    assert bench.replies[join].member_id.startswith("i1-")
    assert [member.group_instance_id for member in bench.replies[join].members] == ["i1"]


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_follower_that_comes_back_takes_its_place_without_a_rebalance(bench: Bench, version: int) -> None:
    ids = bench.stable_static("i1", "i2")
    records = len(bench.log)
    reply = bench.replies[bench.send_join(instance="i2", version=version)]
    assert (reply.error_code, reply.generation_id, reply.leader) == (ErrorCode.NONE, 1, ids[0])
    assert (reply.members, reply.skip_assignment) == ([], False)
    assert reply.member_id != ids[1]
    assert bench.group.state is STABLE
    assert len(bench.log) == records + 1
    assert {member.member_id for member in bench.recorded().members} == {ids[0], reply.member_id}
    sync = bench.replies[bench.send_sync(reply.member_id, 1, instance="i2")]
    assert sync.assignment == b"to " + ids[1].encode()


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment(bench: Bench) -> None:
    ids = bench.stable_static("i1", "i2")
    reply = bench.replies[bench.send_join(instance="i1")]
    assert reply.leader == reply.member_id != ids[0]
    assert [member.member_id for member in reply.members] == [ids[1], reply.member_id]
    assert reply.skip_assignment
    assert bench.recorded().leader == reply.member_id


@pytest.mark.parametrize("version", [5, 8])
def test_before_version_9_a_leader_that_comes_back_is_not_told_that_it_leads(bench: Bench, version: int) -> None:
    ids = bench.stable_static("i1", "i2")
    reply = bench.replies[bench.send_join(instance="i1", version=version)]
    assert (reply.leader, reply.members, reply.skip_assignment) == (ids[0], [], False)


def test_the_former_self_of_a_static_member_is_fenced(bench: Bench) -> None:
    [old] = bench.stable_static("i1")
    bench.send_join(instance="i1")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert bench.heartbeat(old, 1, "i1") == fenced
    assert bench.commit(old, 1, "i1") == fenced
    assert bench.commit(old, 1, "i1", transactional=True) == fenced
    assert bench.error(bench.send_sync(old, 1, instance="i1")) == fenced
    assert bench.error(bench.send_join(old, "i1")) == fenced
    assert bench.leave((old, "i1")).members[0].error_code == fenced
    assert bench.heartbeat(old, 1) == ErrorCode.UNKNOWN_MEMBER_ID  # it does not say who it was
    assert bench.group.state is STABLE


def test_the_waiting_requests_of_the_former_self_are_fenced(bench: Bench) -> None:
    first = bench.send_join(instance="i1")
    again = bench.send_join(instance="i1")
    assert bench.error(first) == ErrorCode.FENCED_INSTANCE_ID
    leader = bench.send_join(instance="i0")
    bench.advance(2 * DELAY_MS)
    assert bench.error(again) == bench.error(leader) == ErrorCode.NONE
    ids = [bench.replies[token].member_id for token in (again, leader)]
    follower = "i0" if bench.group.members.leader_id == ids[0] else "i1"
    sync = bench.send_sync(ids[1] if follower == "i0" else ids[0], 1, instance=follower)
    bench.send_join(instance=follower)
    assert bench.error(sync) == ErrorCode.FENCED_INSTANCE_ID
    assert bench.group.state is PREPARING  # the leader holds an id that is no more


def test_a_static_member_that_comes_back_without_the_chosen_protocol_causes_a_rebalance(bench: Bench) -> None:
    both = {"range": b"r", "sticky": b"s"}
    ids = bench.stable_static("i1", "i2", protocols=both)
    join = bench.send_join(instance="i2", protocols={"sticky": b"s"})
    assert bench.group.state is PREPARING
    joins = [join, bench.send_join(ids[0], "i1", both)]
    assert {bench.replies[token].protocol_name for token in joins} == {"sticky"}


def test_a_static_member_with_other_topics_is_recorded_with_them(bench: Bench) -> None:
    bench.stable_static("i1", "i2")
    bench.send_join(instance="i2", protocols={"range": subscription("bills")})
    assert bench.group.state is STABLE
    assert bench.group.subscribed_topics == frozenset({"orders", "bills"})
    assert bench.reload().group.subscribed_topics == frozenset({"orders", "bills"})


def test_a_static_member_that_no_record_can_hold_does_not_replace_its_former_self() -> None:
    bench = Bench(ClassicGroupConfig(initial_rebalance_delay_ms=DELAY_MS, max_record_bytes=1_000))
    ids = bench.stable_static("i1", "i2")
    records = len(bench.log)
    join = bench.send_join(instance="i1", protocols={"range": bytes(1_000)})
    assert (bench.error(join), bench.replies[join].member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert len(bench.log) == records
    assert bench.group.members.leader_id == ids[0]
    assert bench.heartbeat(ids[0], 1, "i1") == ErrorCode.NONE
    assert bench.replies[bench.send_sync(ids[0], 1, instance="i1")].assignment == b"to " + ids[0].encode()


def test_a_static_member_that_is_away_stays_in_the_group_through_a_rebalance(bench: Bench) -> None:
    ids = bench.stable_static("i1", "i2", session_ms=1_800_000)
    join = bench.send_join(ids[0], "i1", session_ms=1_800_000)
    bench.advance(REBALANCE_MS)
    assert {member.group_instance_id for member in bench.replies[join].members} == {"i1", "i2"}
    bench.send_sync(ids[0], 2, {ids[1]: b"later"}, instance="i1")
    assert bench.group.state is STABLE
    reply = bench.replies[bench.send_join(instance="i2", session_ms=1_800_000)]
    assert reply.generation_id == 2
    assert bench.replies[bench.send_sync(reply.member_id, 2, instance="i2")].assignment == b"later"
    bench.advance(REBALANCE_MS)  # and nobody waits for the sync of its former self
    assert bench.group.state is STABLE


def test_when_all_static_members_are_away_the_rebalance_waits_for_their_sessions(bench: Bench) -> None:
    bench.stable_static("i1", "i2", session_ms=300_000)
    for member in bench.group.members:
        member.rebalance_timeout_ms = 0
    bench.apply(bench.group.rebalance(bench.now))
    bench.advance(299_999)
    assert (bench.group.state, len(bench.group.members)) == (PREPARING, 2)
    bench.advance(1)
    assert (bench.group.state, bench.group.generation_id) == (EMPTY, 2)


def test_an_unknown_instance_with_a_member_id_is_unknown(bench: Bench) -> None:
    [member_id] = bench.stable(1)
    assert bench.error(bench.send_join(member_id, "i1")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(member_id, 1, "i1") == ErrorCode.UNKNOWN_MEMBER_ID
