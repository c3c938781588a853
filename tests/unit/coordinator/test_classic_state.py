"""What follows from the state of a classic group: commits and expiry of offsets, its record, what others see."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest

from barnabas.coordinator.classic_group import ClassicGroup
from barnabas.coordinator.classic_members import ClassicMember
from barnabas.coordinator.classic_state import TRANSITIONS, ClassicState
from barnabas.coordinator.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from barnabas.coordinator.records import decode_group_record
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.compiler import codec
from barnabas.wire.messages.k11_join_group import JoinGroupResponse
from barnabas.wire.messages.k14_sync_group import SyncGroupResponse
from barnabas.wire.primitives import DecodeError
from tests.unit.coordinator.classic_groups import (
    CONFIG,
    DELAY_MS,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    WALL_MS,
    Bench,
    subscription,
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicState


@pytest.fixture
def bench() -> Bench:
    return Bench()


# Offsets


def test_members_of_the_generation_commit_and_others_do_not(bench: Bench) -> None:
    [member_id] = bench.stable(1)
    for transactional in (False, True):
        assert bench.commit(member_id, 1, transactional=transactional) == ErrorCode.NONE
        assert bench.commit(member_id, 0, transactional=transactional) == ErrorCode.ILLEGAL_GENERATION
        assert bench.commit(member_id, -1, transactional=transactional) == ErrorCode.ILLEGAL_GENERATION
        assert bench.commit("nobody", 1, transactional=transactional) == ErrorCode.UNKNOWN_MEMBER_ID
        assert bench.commit(member_id, 1, "i1", transactional=transactional) == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_says_neither_member_nor_generation_commits_to_an_empty_group_or_in_a_transaction(bench: Bench) -> None:
    assert bench.commit("", -1) == ErrorCode.NONE
    assert bench.commit("anybody", -1) == ErrorCode.NONE
    assert bench.commit("", 0) == ErrorCode.UNKNOWN_MEMBER_ID
    bench.stable(1)
    assert bench.commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.commit("", -1, transactional=True) == ErrorCode.NONE


def test_during_a_rebalance_commits_are_taken_until_the_new_generation_and_then_after_its_sync(bench: Bench) -> None:
    ids = bench.stable(2)
    bench.send_join(ids[0])
    assert bench.commit(ids[1], 1) == ErrorCode.NONE
    bench.send_join(ids[1])
    assert bench.group.state is COMPLETING
    assert bench.commit(ids[1], 1) == ErrorCode.ILLEGAL_GENERATION
    assert bench.commit(ids[1], 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.commit(ids[1], 2, transactional=True) == ErrorCode.NONE


def test_the_topics_of_consumers_are_known(bench: Bench) -> None:
    assert not bench.group.is_subscribed_to("orders")
    ids = bench.stable(1)
    assert bench.group.is_subscribed_to("orders")
    assert not bench.group.is_subscribed_to("bills")
    bench.leave((ids[0], None))
    assert not bench.group.is_subscribed_to("orders")


def test_consumers_that_cannot_be_read_may_be_subscribed_to_anything(bench: Bench) -> None:
    bench.stable(1, protocols={"range": b"\0"})
    assert bench.group.is_subscribed_to("orders")
    assert bench.group.retention_start_ms(5) is None


def test_groups_of_another_type_are_subscribed_to_nothing(bench: Bench) -> None:
    bench.stable(1, protocol_type="connect")
    assert not bench.group.is_subscribed_to("orders")


def refusal(check: Any) -> ErrorCode:
    try:
        check()
    except KafkaError as refused:
        return refused.code
    return ErrorCode.NONE


def test_a_group_with_members_is_not_deleted(bench: Bench) -> None:
    assert refusal(bench.group.validate_delete) == ErrorCode.NONE
    [member_id] = bench.stable(1)
    assert refusal(bench.group.validate_delete) == ErrorCode.NON_EMPTY_GROUP
    bench.leave((member_id, None))
    assert refusal(bench.group.validate_delete) == ErrorCode.NONE


def test_offsets_are_deleted_of_empty_groups_and_of_consumers(bench: Bench) -> None:
    assert refusal(bench.group.validate_offset_delete) == ErrorCode.NONE
    bench.stable(1)
    assert refusal(bench.group.validate_offset_delete) == ErrorCode.NONE
    connect = Bench()
    connect.stable(1, protocol_type="connect")
    assert refusal(connect.group.validate_offset_delete) == ErrorCode.NON_EMPTY_GROUP


def test_retention_counts_from_the_commit_or_from_when_the_group_became_empty(bench: Bench) -> None:
    assert bench.group.retention_start_ms(5) == 5  # nobody ever joined
    ids = bench.stable(1)
    assert bench.group.retention_start_ms(5) == 5  # of topics without subscribers
    bench.leave((ids[0], None))
    assert bench.group.retention_start_ms(5) == WALL_MS + bench.clock_ms
    bench.send_join(bench.member_id())
    assert bench.group.retention_start_ms(5) is None  # in a rebalance nobody knows
    old = GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader=None)
    group = ClassicGroup.restore("g", old, CONFIG, bench.timers, bench.random, bench.now)
    assert group.retention_start_ms(5) == 5  # since when it is empty was not recorded


# What the log holds


def test_a_group_is_recorded_when_it_is_first_heard_of_and_then_with_every_settled_generation(bench: Bench) -> None:
    member_id = bench.member_id()
    assert len(bench.log) == 1
    key, value = decode_group_record(*bench.log[0])
    assert key == GroupMetadataKey(group="g")
    assert value == GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=WALL_MS + bench.clock_ms
    )
    join = bench.send_join(member_id)
    bench.advance(DELAY_MS)
    assert len(bench.log) == 1
    bench.settle(join)
    assert len(bench.log) == 2
    recorded = bench.recorded()
    assert (recorded.protocol_type, recorded.generation, recorded.protocol) == ("consumer", 1, "range")
    assert (recorded.leader, recorded.current_state_timestamp) == (member_id, WALL_MS + bench.clock_ms)
    assert recorded.members == [
        MemberMetadata(
            member_id=member_id,
            group_instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout=REBALANCE_MS,
            session_timeout=SESSION_MS,
            subscription=RANGE["range"],
            assignment=b"to " + member_id.encode(),
        )
    ]
    bench.heartbeat(member_id, 1)
    bench.send_join(member_id)
    assert len(bench.log) == 2


def test_a_loaded_group_goes_on_where_it_was(bench: Bench) -> None:
    ids = bench.stable_static("i1", "i2")
    other = bench.reload()
    assert (other.group.state, other.group.generation_id) == (STABLE, 1)
    assert other.group.members.leader_id == ids[0]
    other.advance(SESSION_MS - 1)
    assert other.heartbeat(ids[0], 1, "i1") == ErrorCode.NONE
    assert other.replies[other.send_sync(ids[1], 1, instance="i2")].assignment == b"to " + ids[1].encode()
    other.advance(1)  # i2 was not heard of since the start
    assert {member.group_instance_id for member in other.group.members} == {"i1"}
    assert other.group.state is PREPARING


def test_a_record_without_a_rebalance_timeout_has_that_of_the_session(bench: Bench) -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        protocol="range",
        leader="gone",
        members=[MemberMetadata(member_id="m", session_timeout=9_000)],
    )
    group = ClassicGroup.restore("g", value, CONFIG, bench.timers, bench.random, bench.now)
    assert [member.rebalance_timeout_ms for member in group.members] == [9_000]
    assert group.members.leader_id == "m"


@pytest.mark.parametrize(
    "value",
    [
        GroupMetadataValue(protocol=None, members=[MemberMetadata(member_id="m")]),
        GroupMetadataValue(protocol="range", members=[MemberMetadata(member_id="m"), MemberMetadata(member_id="m")]),
        GroupMetadataValue(
            protocol="range",
            members=[MemberMetadata(member_id=name, group_instance_id="i") for name in ("m", "n")],
        ),
    ],
    ids=["no protocol", "member twice", "instance twice"],
)
def test_a_record_that_is_no_group_is_refused(bench: Bench, value: GroupMetadataValue) -> None:
    with pytest.raises(DecodeError, match="group 'g' is recorded with"):
        ClassicGroup.restore("g", value, CONFIG, bench.timers, bench.random, bench.now)


def test_a_deleted_group_leaves_a_tombstone_no_timers_and_nobody_waiting(bench: Bench) -> None:
    ids = bench.stable(2)
    bench.member_id()
    bench.send_join(ids[0])
    bench.apply(bench.group.delete(bench.now))
    assert decode_group_record(*bench.log[-1]) == (GroupMetadataKey(group="g"), None)
    assert bench.timers.next_deadline_ms is None
    assert not bench.waiting
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.group.state is DEAD
    assert bench.error(bench.send_join()) == bench.error(bench.send_join(ids[0])) == gone
    assert bench.error(bench.send_sync(ids[0], 1)) == bench.heartbeat(ids[0], 1) == bench.commit(ids[0], 1) == gone
    assert bench.leave((ids[0], None)).error_code == gone
    assert refusal(lambda: bench.group.validate_offset_fetch(None, -1)) == ErrorCode.GROUP_ID_NOT_FOUND
    assert refusal(bench.group.validate_delete) == ErrorCode.GROUP_ID_NOT_FOUND
    assert refusal(bench.group.validate_offset_delete) == ErrorCode.GROUP_ID_NOT_FOUND


def test_members_from_the_consumer_protocol_make_a_stable_group(bench: Bench) -> None:
    members = [
        ClassicMember(name, None, "c", "/h", REBALANCE_MS, SESSION_MS, (("range", subscription(name)),), b"mine")
        for name in ("m1", "m2")
    ]
    bench.group = ClassicGroup.of_members("g", 12, members, CONFIG, bench.timers, bench.random, bench.now)
    bench.apply(bench.group.loaded(bench.now))
    assert bench.heartbeat("m2", 12) == ErrorCode.NONE
    assert bench.group.subscribed_topics == frozenset({"m1", "m2"})
    bench.log.append(bench.group.record())
    assert bench.reload().heartbeat("m1", 12) == ErrorCode.NONE
    bench.apply(bench.group.rebalance(bench.now))
    bench.settle(*[bench.send_join(name, protocols={"range": subscription(name)}) for name in ("m1", "m2")])
    assert bench.group.generation_id == 13


# What others see


def test_a_description_has_the_metadata_only_while_the_group_is_stable(bench: Bench) -> None:
    empty = bench.group.described()
    assert (empty.group_state, empty.protocol_type, empty.protocol_data, empty.members) == ("Empty", "", "", [])
    ids = bench.stable_static("i1")
    stable = bench.group.described()
    assert (stable.group_id, stable.group_state, stable.protocol_type) == ("g", "Stable", "consumer")
    assert stable.protocol_data == "range"
    [member] = stable.members
    assert (member.member_id, member.group_instance_id) == (ids[0], "i1")
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (RANGE["range"], b"to " + ids[0].encode())
    bench.apply(bench.group.rebalance(bench.now))
    preparing = bench.group.described()
    assert (preparing.group_state, preparing.protocol_data) == ("PreparingRebalance", "")
    assert preparing.members[0].member_metadata == b""


def test_a_group_that_nobody_joined_is_simple(bench: Bench) -> None:
    assert (bench.group.is_simple, bench.group.is_empty) == (True, True)
    member_id = bench.member_id()
    assert (bench.group.is_simple, bench.group.is_empty) == (False, True)
    bench.leave((member_id, None))
    assert (bench.group.is_simple, bench.group.is_empty) == (True, True)


def test_every_answer_can_be_written_in_every_version(bench: Bench) -> None:
    bench.stable_static("i1", "i2")
    bench.send_join(instance="i1")
    bench.send_join("nobody")
    bench.send_sync("nobody", 0)
    for response in bench.replies.values():
        for version in range(10 if isinstance(response, JoinGroupResponse) else 6):
            if isinstance(response, JoinGroupResponse | SyncGroupResponse):
                assert codec(type(response), version).encode(response)


# The table


def test_a_group_moves_only_as_the_table_says(bench: Bench) -> None:
    for before, after in itertools.product(ClassicState, repeat=2):
        bench.group.state = before
        expected: Any = contextlib.nullcontext()
        if after not in TRANSITIONS[before]:
            expected = pytest.raises(RuntimeError, match=f"is {before.value}, and cannot become {after.value}")
        with expected:
            bench.group._enter(after, bench.now)
