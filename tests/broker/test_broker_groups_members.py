"""Heartbeat and LeaveGroup: members of a classic group stay, and go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from tests.broker.group_client import HEARTBEAT, LEAVE, Group, Member
from tests.peers import eventually

LEAVE_TOGETHER = [version for version in LEAVE if version >= 3]


def unchanged(member: Member) -> None:
    """A member as it is."""


def of_an_older_generation(member: Member) -> None:
    member.generation_id -= 1


def of_a_later_generation(member: Member) -> None:
    member.generation_id += 1


def of_a_stranger(member: Member) -> None:
    member.member_id = "stranger"


def of_nobody(member: Member) -> None:
    member.member_id = ""


def of_a_group_that_is_not_there(member: Member) -> None:
    member.group_id += "-not-there"


@pytest.mark.parametrize("version", HEARTBEAT)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (unchanged, ErrorCode.NONE),
        (of_an_older_generation, ErrorCode.ILLEGAL_GENERATION),
        (of_a_later_generation, ErrorCode.ILLEGAL_GENERATION),
        (of_a_stranger, ErrorCode.UNKNOWN_MEMBER_ID),
        (of_nobody, ErrorCode.UNKNOWN_MEMBER_ID),
        (of_a_group_that_is_not_there, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_heartbeat_is_the_members_of_this_generation(
    group: Group, version: int, change: Callable[[Member], None], expected: ErrorCode
) -> None:
    member = group.member()
    group.settle(member)
    change(member)
    assert member.heartbeat(version) == expected


@pytest.mark.parametrize("version", HEARTBEAT)
def test_a_heartbeat_tells_of_a_rebalance_until_the_member_joins_again(group: Group, version: int) -> None:
    old, new = group.member(), group.member()
    group.settle(old)
    answer = new.begin_join()
    eventually(lambda: old.heartbeat(version), ErrorCode.REBALANCE_IN_PROGRESS)
    old.join()
    answer()
    assert old.heartbeat(version) == new.heartbeat(version) == ErrorCode.NONE


# LeaveGroup


@pytest.mark.parametrize("version", LEAVE)
def test_who_leaves_is_out_and_the_others_rebalance(group: Group, version: int) -> None:
    going, staying = group.member(), group.member()
    group.settle(going, staying)
    assert going.leave(version) == ErrorCode.NONE
    assert going.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert staying.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    response = staying.join()
    assert (response.generation_id, response.leader) == (3, staying.member_id)


@pytest.mark.parametrize("version", LEAVE)
def test_the_last_to_leave_leaves_an_empty_group(group: Group, version: int) -> None:
    member = group.member()
    group.settle(member)
    assert member.leave(version) == ErrorCode.NONE
    described = group.describe()
    assert (described.error_code, described.group_state, described.members) == (ErrorCode.NONE, "Empty", [])
    assert member.leave(version) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", LEAVE)
@pytest.mark.parametrize("change", [of_a_stranger, of_a_group_that_is_not_there])
def test_only_members_can_leave(group: Group, version: int, change: Callable[[Member], None]) -> None:
    member = group.member()
    group.settle(member)
    change(member)
    assert member.leave(version) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", LEAVE)
def test_who_has_an_id_and_has_not_joined_can_leave(group: Group, version: int) -> None:
    staying, pending = group.member(), group.member()
    group.settle(staying)
    pending.member_id = pending.call(pending.join_request(), 4).member_id
    assert pending.leave(version) == ErrorCode.NONE
    assert pending.join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert staying.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", LEAVE_TOGETHER)
def test_several_leave_at_once_each_with_an_answer_of_its_own(group: Group, version: int) -> None:
    plain, static, renamed = group.member(), group.member(instance_id="one"), group.member(instance_id="two")
    staying = group.member()
    group.settle(staying, plain, static, renamed)
    leaving = [
        MemberIdentity(plain.member_id),
        MemberIdentity("", "one"),  # as an administrator has it, who knows only the name
        MemberIdentity("old-id", "two"),
        MemberIdentity("stranger"),
        MemberIdentity("", "three"),
    ]
    response = group.client.call(LeaveGroupRequest(group.id, "", leaving), version)
    assert response.error_code == ErrorCode.NONE
    answers = {(each.member_id, each.group_instance_id): ErrorCode(each.error_code) for each in response.members}
    assert answers == {
        (plain.member_id, None): ErrorCode.NONE,
        ("", "one"): ErrorCode.NONE,
        ("old-id", "two"): ErrorCode.FENCED_INSTANCE_ID,
        ("stranger", None): ErrorCode.UNKNOWN_MEMBER_ID,
        ("", "three"): ErrorCode.UNKNOWN_MEMBER_ID,
    }
    assert staying.heartbeat() == renamed.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert plain.heartbeat() == static.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", LEAVE_TOGETHER)
def test_nobody_can_leave(group: Group, version: int) -> None:
    member = group.member()
    group.settle(member)
    response = group.client.call(LeaveGroupRequest(group.id, "", []), version)
    assert (response.error_code, response.members) == (ErrorCode.NONE, [])
    assert member.heartbeat() == ErrorCode.NONE


def test_who_waits_in_a_join_is_answered_when_it_is_removed(group: Group) -> None:
    staying, waiting = group.member(), group.member()
    group.settle(staying)
    answer = waiting.begin_join()
    eventually(staying.heartbeat, ErrorCode.REBALANCE_IN_PROGRESS)
    removed = group.client.call(LeaveGroupRequest(group.id, "", [MemberIdentity(waiting.member_id)]))
    assert removed.members[0].error_code == ErrorCode.NONE
    assert answer().error_code == ErrorCode.UNKNOWN_MEMBER_ID
