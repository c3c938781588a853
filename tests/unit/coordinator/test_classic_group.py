"""The rules of the classic group protocol, one by one; what always holds is in `test_classic_group_machine`."""

from __future__ import annotations

import pytest

from barnabas.coordinator.classic_group import NEW_MEMBER_JOIN_TIMEOUT_MS, ClassicGroupConfig
from barnabas.coordinator.classic_state import ClassicState
from barnabas.coordinator.timers import TimerKey
from barnabas.core.errors import ErrorCode
from tests.unit.coordinator.classic_groups import (
    CONFIG,
    DELAY_MS,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    Bench,
    subscription,
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicState


@pytest.fixture
def bench() -> Bench:
    return Bench()


# The way in


def test_a_new_member_is_given_an_id_and_has_to_come_back_with_it(bench: Bench) -> None:
    reply = bench.replies[bench.send_join(version=4)]
    assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert reply.member_id.startswith("client-")
    assert len(reply.member_id) == len("client-") + 36
    assert bench.group.state is EMPTY

    join = bench.send_join(reply.member_id, version=4)
    assert bench.group.state is PREPARING
    bench.advance(DELAY_MS)
    assert bench.replies[join].member_id == reply.member_id


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_new_member_joins_without_the_round_trip(bench: Bench, version: int) -> None:
    join = bench.send_join(version=version)
    assert bench.waiting == {join}
    bench.advance(DELAY_MS)
    assert bench.error(join) == ErrorCode.NONE


def test_in_version_0_the_session_timeout_is_the_rebalance_timeout_too(bench: Bench) -> None:
    bench.send_join(version=0, session_ms=7_000)
    assert [member.rebalance_timeout_ms for member in bench.group.members] == [7_000]


def test_an_id_that_the_group_never_gave_is_unknown(bench: Bench) -> None:
    bench.stable(1)
    assert bench.error(bench.send_join("client-of-another-group")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_is_no_use_once_its_session_is_over(bench: Bench) -> None:
    member_id = bench.member_id()
    bench.advance(SESSION_MS)
    assert bench.error(bench.send_join(member_id)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert not bench.group.members.pending


def test_a_pending_id_does_not_turn_into_a_static_member(bench: Bench) -> None:
    assert bench.error(bench.send_join(bench.member_id(), "i1")) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session_ms", [CONFIG.min_session_timeout_ms - 1, CONFIG.max_session_timeout_ms + 1, -1])
def test_a_session_timeout_out_of_bounds_is_refused_and_makes_no_group(bench: Bench, session_ms: int) -> None:
    assert bench.error(bench.send_join(session_ms=session_ms)) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert not bench.log
    assert not bench.group.is_recorded


@pytest.mark.parametrize("session_ms", [CONFIG.min_session_timeout_ms, CONFIG.max_session_timeout_ms])
def test_the_bounds_of_the_session_timeout_are_allowed(bench: Bench, session_ms: int) -> None:
    bench.member_id(session_ms=session_ms)


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", {})])
def test_who_names_no_protocol_cannot_join(bench: Bench, protocol_type: str, protocols: dict[str, bytes]) -> None:
    join = bench.send_join(protocol_type=protocol_type, protocols=protocols)
    assert bench.error(join) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_who_has_another_protocol_type_or_no_common_protocol_cannot_join(bench: Bench) -> None:
    bench.stable(1)
    assert bench.error(bench.send_join(protocol_type="connect")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.error(bench.send_join(protocols={"sticky": b""})) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.group.state is STABLE


def test_an_empty_group_takes_members_of_another_type(bench: Bench) -> None:
    [member_id] = bench.stable(1)
    bench.leave((member_id, None))
    assert bench.group.protocol_type == "consumer"
    bench.stable(1, protocol_type="connect", protocols={"default": b"x"})
    assert bench.group.protocol_type == "connect"


# A generation


def test_the_leader_is_told_all_members_and_the_others_none(bench: Bench) -> None:
    ids = [bench.member_id() for _ in range(3)]
    joins = [bench.send_join(ids[n], protocols={"range": bytes([n])}) for n in range(3)]
    bench.advance(3 * DELAY_MS)
    leader, *followers = (bench.replies[join] for join in joins)
    assert leader.leader == leader.member_id == ids[0]
    assert [(member.member_id, member.metadata) for member in leader.members] == [
        (ids[n], bytes([n])) for n in range(3)
    ]
    for reply, member_id in zip(followers, ids[1:]):
        assert (reply.leader, reply.member_id, reply.members) == (ids[0], member_id, [])
    for reply in (leader, *followers):
        assert (reply.error_code, reply.generation_id) == (ErrorCode.NONE, 1)
        assert (reply.protocol_type, reply.protocol_name, reply.skip_assignment) == ("consumer", "range", False)
    assert bench.group.state is COMPLETING


def test_the_most_preferred_of_the_protocols_that_all_support_is_chosen(bench: Bench) -> None:
    ids = [bench.member_id(protocols=dict.fromkeys("abc", b"")) for _ in range(3)]
    joins = [
        bench.send_join(member_id, protocols=dict.fromkeys(names, b""))
        for member_id, names in zip(ids, ["acb", "bca", "bc"])  # a is not everybody's; of b and c, b has two votes
    ]
    bench.advance(3 * DELAY_MS)
    assert {bench.replies[join].protocol_name for join in joins} == {"b"}


def test_every_member_gets_the_leaders_bytes_for_it_and_no_others(bench: Bench) -> None:
    ids = [bench.member_id() for _ in range(3)]
    for member_id in ids:
        bench.send_join(member_id)
    bench.advance(3 * DELAY_MS)
    early = bench.send_sync(ids[1], 1)
    assert bench.waiting == {early}
    leader = bench.send_sync(
        ids[0], 1, {ids[0]: b"zero", ids[1]: b"one", "stranger": b"x"}, protocol_type="consumer", protocol_name="range"
    )
    late = bench.send_sync(ids[2], 1)
    assert bench.replies[leader].assignment == b"zero"
    assert bench.replies[early].assignment == b"one"
    assert bench.replies[late].assignment == b""  # the leader had nothing for it
    assert {bench.replies[token].protocol_name for token in (leader, early, late)} == {"range"}
    assert bench.group.state is STABLE


def test_a_sync_of_the_wrong_member_generation_or_protocol_is_refused(bench: Bench) -> None:
    [member_id] = bench.stable(1)
    assert bench.error(bench.send_sync("nobody", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.error(bench.send_sync(member_id, 0)) == ErrorCode.ILLEGAL_GENERATION
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.error(bench.send_sync(member_id, 1, protocol_type="connect")) == inconsistent
    assert bench.error(bench.send_sync(member_id, 1, protocol_name="sticky")) == inconsistent
    assert bench.error(bench.send_sync(member_id, 1)) == ErrorCode.NONE


def test_a_sync_during_the_next_join_is_told_of_the_rebalance(bench: Bench) -> None:
    ids = bench.stable(2)
    bench.send_join(ids[0])
    assert bench.group.state is PREPARING
    assert bench.error(bench.send_sync(ids[1], 1)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_waiting_syncs_are_told_of_a_new_rebalance(bench: Bench) -> None:
    ids = [bench.member_id() for _ in range(2)]
    for member_id in ids:
        bench.send_join(member_id)
    bench.advance(2 * DELAY_MS)
    sync = bench.send_sync(ids[1], 1)
    bench.send_join(bench.member_id())
    assert bench.error(sync) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_repeated_request_takes_the_place_of_the_one_that_waits(bench: Bench) -> None:
    ids = [bench.member_id() for _ in range(2)]
    first, again = bench.send_join(ids[0]), bench.send_join(ids[0])
    assert bench.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    bench.send_join(ids[1])
    bench.advance(2 * DELAY_MS)
    assert bench.error(again) == ErrorCode.NONE
    first, again = bench.send_sync(ids[1], 1), bench.send_sync(ids[1], 1)
    assert bench.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    bench.send_sync(ids[0], 1, {ids[1]: b"one"})
    assert bench.replies[again].assignment == b"one"


def test_a_lost_answer_to_a_join_is_given_again(bench: Bench) -> None:
    ids = [bench.member_id() for _ in range(2)]
    joins = [bench.send_join(member_id) for member_id in ids]
    bench.advance(2 * DELAY_MS)
    for member_id, join in zip(ids, joins):
        assert bench.replies[bench.send_join(member_id)] == bench.replies[join]
    assert (bench.group.state, bench.group.generation_id) == (COMPLETING, 1)


def test_a_follower_that_joins_a_stable_group_again_as_it_was_changes_nothing(bench: Bench) -> None:
    ids = bench.stable(2)
    reply = bench.replies[bench.send_join(ids[1])]
    assert (reply.error_code, reply.generation_id, reply.members) == (ErrorCode.NONE, 1, [])
    assert bench.replies[bench.send_sync(ids[1], 1)].assignment == b"to " + ids[1].encode()
    assert bench.group.state is STABLE


def test_the_leader_can_have_a_rebalance_and_so_can_a_member_that_changed(bench: Bench) -> None:
    ids = bench.stable(2)
    join = bench.send_join(ids[0])
    assert bench.group.state is PREPARING
    joins = [join, bench.send_join(ids[1])]
    assert bench.group.generation_id == 2
    bench.settle(*joins)
    join = bench.send_join(ids[1], protocols={"range": subscription("bills")})
    assert bench.group.state is PREPARING
    joins = [bench.send_join(ids[0]), join]
    bench.settle(*joins)
    assert bench.group.generation_id == 3
    assert bench.group.subscribed_topics == frozenset({"orders", "bills"})


def test_a_change_while_the_leader_assigns_begins_the_rebalance_again(bench: Bench) -> None:
    ids = [bench.member_id() for _ in range(2)]
    for member_id in ids:
        bench.send_join(member_id)
    bench.advance(2 * DELAY_MS)
    bench.send_join(ids[1], protocols={"range": b"other"})
    assert bench.group.state is PREPARING
    assert bench.error(bench.send_sync(ids[0], 1)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_assignments_of_a_generation_that_was_given_up_are_forgotten(bench: Bench) -> None:
    ids = bench.stable(2)
    for member_id in ids:
        bench.send_join(member_id)
    assert bench.group.state is COMPLETING
    assert [bool(member.assignment) for member in bench.group.members] == [True, True]
    bench.send_join(ids[1], protocols={"range": b"other"})
    assert [bool(member.assignment) for member in bench.group.members] == [False, False]


# How long things take


def test_the_first_rebalance_waits_for_more_members_and_longer_while_they_come(bench: Bench) -> None:
    first = bench.send_join(bench.member_id())
    bench.advance(DELAY_MS - 1)
    second = bench.send_join(bench.member_id())
    bench.advance(1)
    assert bench.waiting == {first, second}
    bench.advance(DELAY_MS - 1)
    assert bench.waiting == {first, second}
    bench.advance(1)
    assert not bench.waiting
    assert len(bench.group.members) == 2


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout(bench: Bench) -> None:
    joined = 0
    while bench.group.state is not COMPLETING:
        bench.send_join(bench.member_id(rebalance_ms=10_000), rebalance_ms=10_000)
        joined += 1
        bench.advance(1_000)
    assert joined == 10


def test_without_a_delay_the_first_rebalance_is_over_at_once() -> None:
    bench = Bench(ClassicGroupConfig(initial_rebalance_delay_ms=0))
    join = bench.send_join(bench.member_id())
    bench.advance(0)
    assert bench.error(join) == ErrorCode.NONE


def test_a_rebalance_is_over_when_all_members_have_joined(bench: Bench) -> None:
    ids = bench.stable(2)
    joins = [bench.send_join(bench.member_id()), bench.send_join(ids[1])]
    assert bench.waiting == set(joins)
    joins.append(bench.send_join(ids[0]))
    assert {bench.replies[join].generation_id for join in joins} == {2}


def test_a_rebalance_waits_for_a_pending_member(bench: Bench) -> None:
    ids = bench.stable(1)
    pending = bench.member_id()
    join = bench.send_join(ids[0])
    assert bench.waiting == {join}
    bench.send_join(pending)
    assert bench.error(join) == ErrorCode.NONE


def test_a_rebalance_goes_on_when_a_pending_member_is_given_up(bench: Bench) -> None:
    ids = bench.stable(1)
    bench.member_id()
    bench.advance(SESSION_MS // 2)
    assert bench.heartbeat(ids[0], 1) == ErrorCode.NONE
    join = bench.send_join(ids[0])
    bench.advance(SESSION_MS // 2)
    assert bench.error(join) == ErrorCode.NONE


def test_who_does_not_join_within_the_rebalance_timeout_is_out(bench: Bench) -> None:
    ids = bench.stable(2)
    join = bench.send_join(ids[0])
    for _ in range(REBALANCE_MS // 5_000):
        assert bench.waiting == {join}
        assert bench.heartbeat(ids[1], 1) == ErrorCode.REBALANCE_IN_PROGRESS
        bench.advance(5_000)
    assert bench.replies[join].generation_id == 2
    assert bench.heartbeat(ids[1], 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_another_member_leads_when_the_leader_has_not_joined(bench: Bench) -> None:
    ids = bench.stable(2)
    join = bench.send_join(ids[1], protocols={"range": b"new"})
    bench.advance(REBALANCE_MS)
    assert bench.replies[join].leader == ids[1]
    assert [member.member_id for member in bench.replies[join].members] == [ids[1]]


def test_the_longest_rebalance_timeout_counts(bench: Bench) -> None:
    ids = [bench.member_id() for _ in range(2)]
    joins = [bench.send_join(member_id, rebalance_ms=ms) for member_id, ms in zip(ids, [20_000, 30_000])]
    bench.advance(2 * DELAY_MS)
    bench.settle(*joins)
    join = bench.send_join(ids[0], rebalance_ms=20_000)
    for _ in range(29):
        bench.advance(1_000)
        bench.heartbeat(ids[1], 1)
    assert bench.waiting == {join}
    bench.advance(1_000)
    assert not bench.waiting


def test_a_member_without_a_sign_of_life_is_out_after_its_session(bench: Bench) -> None:
    ids = bench.stable(2)
    bench.advance(SESSION_MS - 1)
    assert bench.heartbeat(ids[0], 1) == ErrorCode.NONE
    bench.advance(1)
    assert bench.group.state is PREPARING
    assert bench.heartbeat(ids[0], 1) == ErrorCode.REBALANCE_IN_PROGRESS
    join = bench.send_join(ids[0])
    assert bench.replies[join].generation_id == 2


def test_a_commit_is_a_sign_of_life(bench: Bench) -> None:
    [member_id] = bench.stable(1)
    for _ in range(3):
        bench.advance(SESSION_MS - 1)
        bench.group.committed(member_id, bench.now)
    assert bench.group.state is STABLE
    bench.advance(SESSION_MS)
    assert bench.group.state is EMPTY


def test_who_waits_in_a_join_needs_no_heartbeat(bench: Bench) -> None:
    ids = bench.stable(2, session_ms=6_000)
    join = bench.send_join(ids[0], session_ms=6_000)
    for _ in range(10):
        bench.advance(5_000)
        bench.heartbeat(ids[1], 1)
    assert bench.waiting == {join}
    assert ids[0] in bench.group.members


def test_the_session_of_who_waited_in_a_sync_begins_with_its_answer(bench: Bench) -> None:
    ids = [bench.member_id() for _ in range(2)]
    for member_id in ids:
        bench.send_join(member_id)
    bench.advance(2 * DELAY_MS)
    sync = bench.send_sync(ids[1], 1)
    for _ in range(3):
        bench.advance(SESSION_MS // 2)
        assert bench.heartbeat(ids[0], 1) == ErrorCode.NONE
    bench.send_sync(ids[0], 1)
    assert bench.error(sync) == ErrorCode.NONE
    bench.advance(SESSION_MS - 1)
    assert bench.heartbeat(ids[0], 1) == ErrorCode.NONE
    assert bench.group.state is STABLE
    bench.advance(1)
    assert [member.member_id for member in bench.group.members] == [ids[0]]


def test_a_new_member_whose_client_is_gone_does_not_wait_for_ever(bench: Bench) -> None:
    ids = bench.stable(1, rebalance_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    join = bench.send_join(bench.member_id())
    while join in bench.waiting:
        assert bench.clock_ms < 2 * NEW_MEMBER_JOIN_TIMEOUT_MS
        bench.advance(5_000)
        bench.heartbeat(ids[0], 1)
    assert bench.error(join) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.replies[join].member_id == ""


def test_who_does_not_sync_within_the_rebalance_timeout_is_out(bench: Bench) -> None:
    ids = [bench.member_id() for _ in range(3)]
    for member_id in ids:
        bench.send_join(member_id)
    bench.advance(3 * DELAY_MS)
    sync = bench.send_sync(ids[1], 1)
    for _ in range(REBALANCE_MS // 5_000):
        assert bench.waiting == {sync}
        for member_id in (ids[0], ids[2]):
            assert bench.heartbeat(member_id, 1) == ErrorCode.NONE
        bench.advance(5_000)
    assert bench.error(sync) == ErrorCode.REBALANCE_IN_PROGRESS
    assert [member.member_id for member in bench.group.members] == [ids[1]]


def test_a_follower_that_does_not_sync_in_a_stable_group_is_out_too(bench: Bench) -> None:
    ids = [bench.member_id() for _ in range(2)]
    for member_id in ids:
        bench.send_join(member_id)
    bench.advance(2 * DELAY_MS)
    bench.send_sync(ids[0], 1)
    assert bench.group.state is STABLE
    for _ in range(REBALANCE_MS // 5_000):
        for member_id in ids:
            assert bench.heartbeat(member_id, 1) == ErrorCode.NONE
        bench.advance(5_000)
    assert bench.heartbeat(ids[1], 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_timer_that_was_set_anew_since_it_was_due_is_no_timeout(bench: Bench) -> None:
    [member_id] = bench.stable(1)
    key = TimerKey("g", "session", member_id)
    assert key in bench.timers
    bench.apply(bench.group.expire(key, bench.now))
    assert bench.group.state is STABLE


# Heartbeats and farewells


def test_a_heartbeat_is_refused_of_a_stranger_and_of_another_generation(bench: Bench) -> None:
    assert bench.heartbeat("nobody", 0) == ErrorCode.UNKNOWN_MEMBER_ID
    [member_id] = bench.stable(1)
    assert bench.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(member_id, 0) == ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat(member_id, 2) == ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat(member_id, 1) == ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
def test_the_last_member_leaves_an_empty_group_of_the_next_generation(bench: Bench, version: int) -> None:
    [member_id] = bench.stable(1)
    reply = bench.leave((member_id, None), version=version)
    assert reply.error_code == ErrorCode.NONE
    assert [member.error_code for member in reply.members] == ([ErrorCode.NONE] if version >= 3 else [])
    assert (bench.group.state, bench.group.generation_id) == (EMPTY, 2)
    recorded = bench.recorded()
    assert (recorded.generation, recorded.protocol_type, recorded.protocol) == (2, "consumer", None)
    assert (recorded.leader, recorded.members) == (None, [])


def test_an_unknown_member_cannot_leave(bench: Bench) -> None:
    bench.stable(1)
    assert bench.leave(("nobody", None), version=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    reply = bench.leave(("nobody", None), ("", "no-instance"), ("", None))
    assert reply.error_code == ErrorCode.NONE
    assert [member.error_code for member in reply.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 3
    assert bench.group.state is STABLE


def test_several_members_leave_at_once_each_with_its_own_answer(bench: Bench) -> None:
    ids = bench.stable_static("i1", "i2", "i3", "i4")
    reply = bench.leave(("", "i1"), (ids[1], "i2"), (ids[3], "i3"), ("nobody", None))
    assert [(member.member_id, member.group_instance_id, member.error_code) for member in reply.members] == [
        ("", "i1", ErrorCode.NONE),
        (ids[1], "i2", ErrorCode.NONE),
        (ids[3], "i3", ErrorCode.FENCED_INSTANCE_ID),
        ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert [member.group_instance_id for member in bench.group.members] == ["i3", "i4"]
    assert bench.group.state is PREPARING


def test_a_pending_member_can_leave(bench: Bench) -> None:
    ids = bench.stable(1)
    pending = bench.member_id()
    join = bench.send_join(ids[0])
    assert bench.leave((pending, None)).members[0].error_code == ErrorCode.NONE
    assert bench.error(join) == ErrorCode.NONE


def test_who_leaves_while_it_waits_is_answered(bench: Bench) -> None:
    ids = bench.stable(2)
    join = bench.send_join(ids[1], protocols={"range": b"new"})
    bench.leave((ids[1], None))
    assert bench.error(join) == ErrorCode.UNKNOWN_MEMBER_ID
    bench.settle(bench.send_join(ids[0]))
    new = bench.member_id()
    joins = [bench.send_join(ids[0]), bench.send_join(new)]
    assert not bench.waiting
    sync = bench.send_sync(new, bench.group.generation_id)
    bench.leave((new, None))
    assert bench.error(sync) == ErrorCode.UNKNOWN_MEMBER_ID
    assert joins


# Limits of size


def test_a_full_group_takes_no_more_members() -> None:
    bench = Bench(ClassicGroupConfig(initial_rebalance_delay_ms=DELAY_MS, max_size=2))
    ids = bench.stable(2)
    join = bench.send_join()
    assert (bench.error(join), bench.replies[join].member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert bench.error(bench.send_join(ids[1])) == ErrorCode.NONE
    assert bench.group.state is STABLE


def test_more_may_be_pending_than_fit_and_the_last_of_them_are_refused() -> None:
    bench = Bench(ClassicGroupConfig(initial_rebalance_delay_ms=DELAY_MS, max_size=2))
    ids = [bench.member_id() for _ in range(3)]
    joins = [bench.send_join(member_id) for member_id in ids]
    assert bench.error(joins[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    bench.advance(2 * DELAY_MS)
    bench.settle(*joins[:2])


def test_a_group_that_is_too_large_when_loaded_rebalances_and_the_last_stay_out() -> None:
    bench = Bench()
    ids = bench.stable(3)
    bench.config = ClassicGroupConfig(initial_rebalance_delay_ms=DELAY_MS, max_size=2)
    other = bench.reload()
    assert other.group.state is PREPARING
    joins = [other.send_join(member_id) for member_id in ids]
    assert other.error(joins[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    other.advance(REBALANCE_MS)
    other.settle(*joins[:2])


def test_an_assignment_that_no_record_can_hold_fails_and_the_group_begins_again() -> None:
    bench = Bench(ClassicGroupConfig(initial_rebalance_delay_ms=DELAY_MS, max_record_bytes=1_000))
    ids = [bench.member_id() for _ in range(2)]
    for member_id in ids:
        bench.send_join(member_id)
    bench.advance(2 * DELAY_MS)
    records = len(bench.log)
    syncs = [bench.send_sync(ids[1], 1), bench.send_sync(ids[0], 1, {ids[0]: bytes(1_000)})]
    assert [bench.error(sync) for sync in syncs] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert (bench.group.state, len(bench.log)) == (PREPARING, records)
    bench.settle(*[bench.send_join(member_id) for member_id in ids])
