"""JoinGroup and SyncGroup: how the members of a classic group come to one generation and to their assignments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from tests.broker.group_client import (
    FIRST_WITH_MEMBER_ID_REQUIRED,
    FIRST_WITH_STATIC_MEMBERS,
    JOIN,
    SYNC,
    Group,
    Member,
    subscription,
)
from tests.broker.servers import start
from tests.peers import Broker, eventually

STATIC = [version for version in JOIN if version >= FIRST_WITH_STATIC_MEMBERS]


@pytest.mark.parametrize("version", JOIN)
def test_a_newcomer_is_given_an_id_and_from_version_4_on_must_come_back_with_it(group: Group, version: int) -> None:
    member = group.member()
    response = member.call(member.join_request(), version)
    assert response.member_id.startswith("test-")
    if version >= FIRST_WITH_MEMBER_ID_REQUIRED:
        assert (response.error_code, response.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert (response.leader, response.members) == ("", [])
        member.member_id = response.member_id
        response = member.call(member.join_request(), version)
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
    assert response.protocol_name == "range"
    assert response.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", JOIN)
def test_the_leader_is_told_of_all_members_and_the_others_of_none(group: Group, version: int) -> None:
    members = [group.member({"range": subscription(name)}) for name in ("first", "second", "third")]
    answers = group.gather(*members, version=version)
    leader = members[0].member_id
    assert {(answer.error_code, answer.generation_id, answer.leader) for answer in answers} == {(0, 3, leader)}
    assert [answer.member_id for answer in answers] == [member.member_id for member in members]
    told = {member.member_id: bytes(member.metadata) for member in answers[0].members}
    assert told == {member.member_id: member.protocols["range"] for member in members}
    assert [answer.members for answer in answers[1:]] == [[], []]
    assert {answer.skip_assignment for answer in answers} == {False}


def test_the_protocol_is_one_that_all_support_and_most_prefer(group: Group) -> None:
    first = group.member({"mine": b"", "sticky": b"s1", "range": b"r1"})
    second = group.member({"range": b"r2", "sticky": b"s2"})
    third = group.member({"range": b"r3", "other": b"", "sticky": b"s3"})
    leader, *_ = answers = group.gather(first, second, third)
    assert {answer.protocol_name for answer in answers} == {"range"}
    assert {bytes(member.metadata) for member in leader.members} == {b"r1", b"r2", b"r3"}


@pytest.mark.parametrize("version", JOIN)
def test_another_protocol_type_or_no_common_protocol_is_refused(group: Group, version: int) -> None:
    group.settle(group.member())
    with_other_type, with_other_protocol = group.member(), group.member({"other": b""})
    with_other_type.protocol_type = "connect"
    for stranger in (with_other_type, with_other_protocol):
        response = stranger.call(stranger.join_request(), version)
        assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert response.generation_id == -1


@pytest.mark.parametrize(("protocol_type", "protocols"), [("consumer", {}), ("", {"range": b""})])
def test_the_first_member_too_must_name_a_protocol(
    group: Group, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    member = group.member()
    member.protocol_type, member.protocols = protocol_type, protocols
    response = member.call(member.join_request(), 3)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", JOIN)
@pytest.mark.parametrize("session_timeout_ms", [0, -1, 5_999, 1_800_001, 2**31 - 1])
def test_a_session_timeout_out_of_bounds_is_refused(group: Group, version: int, session_timeout_ms: int) -> None:
    member = group.member()
    response = member.call(member.join_request(session_timeout_ms=session_timeout_ms), version)
    assert response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert group.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
def test_a_session_timeout_on_the_bound_is_accepted(group: Group, session_timeout_ms: int) -> None:
    member = group.member()
    assert member.join(session_timeout_ms=session_timeout_ms).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", JOIN)
def test_an_id_that_the_group_has_not_given_is_unknown(group: Group, version: int) -> None:
    member = group.member()
    member.member_id = "made-up"
    response = member.call(member.join_request(), version)
    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "made-up")
    group.settle(group.member())
    assert member.call(member.join_request(), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_follower_that_comes_again_unchanged_is_told_the_same_once_more(group: Group) -> None:
    leader, follower = group.member(), group.member()
    group.settle(leader, follower)
    assert follower.join().generation_id == 2
    assert leader.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize("version", JOIN)
def test_a_member_with_another_subscription_begins_a_new_generation(group: Group, version: int) -> None:
    leader, follower = group.member(), group.member()
    group.settle(leader, follower)
    follower.protocols = {"range": subscription("t", "u")}
    answer = follower.begin_join(version)
    eventually(leader.heartbeat, ErrorCode.REBALANCE_IN_PROGRESS)
    assert not follower.has_answer(0.1)
    assert leader.join(version).generation_id == 3
    assert answer().generation_id == 3


# members with a name of their own


@pytest.mark.parametrize("version", STATIC)
def test_a_static_member_joins_without_the_round_trip(group: Group, version: int) -> None:
    member = group.member(instance_id="one")
    response = member.join(version)
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
    assert response.member_id.startswith("one-")
    assert [told.group_instance_id for told in response.members] == ["one"]


@pytest.mark.parametrize("version", STATIC)
def test_a_static_member_that_comes_back_takes_its_place_without_a_rebalance(group: Group, version: int) -> None:
    leader, old = group.member(), group.member(instance_id="one")
    group.settle(leader, old)
    new = group.member(instance_id="one")
    response = new.join(version)
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, old.generation_id)
    assert response.leader == leader.member_id
    assert new.member_id != old.member_id
    assert bytes(new.sync().assignment) == old.member_id.encode()
    assert leader.heartbeat() == ErrorCode.NONE


def test_a_static_leader_that_comes_back_may_skip_the_assignment_where_it_can_be_told(group: Group) -> None:
    leader = group.member(instance_id="one")
    group.settle(leader)
    told = []
    for version in (8, 9):
        new = group.member(instance_id="one")
        response = new.join(version)
        told.append((response.leader == new.member_id, response.skip_assignment, len(response.members)))
    assert told == [(False, False, 0), (True, True, 1)]


@pytest.mark.parametrize("version", STATIC)
def test_the_static_member_that_was_replaced_is_fenced_wherever_it_asks(
    group: Group, version: int, topic_name: str
) -> None:
    old = group.member(instance_id="one")
    group.settle(old)
    assert group.member(instance_id="one").join().error_code == ErrorCode.NONE
    response = old.call(old.join_request(), version)
    assert response.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert old.heartbeat(3) == old.heartbeat(4) == ErrorCode.FENCED_INSTANCE_ID
    for sync_version in (3, 4, 5):
        assert old.sync({}, sync_version).error_code == ErrorCode.FENCED_INSTANCE_ID
    for leave_version in (3, 4, 5):
        assert old.leave(leave_version) == ErrorCode.FENCED_INSTANCE_ID
    topic = group.client.create_topic(name=topic_name)
    for commit_version in (7, 8, 9, 10):
        fenced = old.commit(topic, 1, instance_id="one", version=commit_version)
        assert fenced == ErrorCode.FENCED_INSTANCE_ID


def test_a_member_id_with_the_wrong_instance_is_fenced_and_an_unknown_instance_unknown(group: Group) -> None:
    one, two = group.member(instance_id="one"), group.member(instance_id="two")
    group.settle(one, two)
    one.instance_id = "two"
    assert one.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    one.instance_id = "three"
    assert one.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


# how many


@pytest.fixture(scope="module")
def small_groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"group.max.size": "2", "group.min.session.timeout.ms": "100"}
    with start(tmp_path_factory.mktemp("small") / "own", settings) as broker:
        yield broker


@pytest.mark.parametrize("version", JOIN)
def test_a_full_group_takes_nobody_else(small_groups: Broker, version: int) -> None:
    with Group(small_groups.address) as group:
        members = [group.member(), group.member()]
        group.settle(*members, version=version)
        third = group.member()
        response = third.call(third.join_request(), version)
        if version >= FIRST_WITH_MEMBER_ID_REQUIRED and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            third.member_id = response.member_id
            response = third.call(third.join_request(), version)
        assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert [member.heartbeat() for member in members] == [ErrorCode.NONE, ErrorCode.NONE]


def test_who_gives_no_sign_of_life_is_out_after_its_session(small_groups: Broker) -> None:
    with Group(small_groups.address) as group:
        quiet, lively = group.member(), group.member()
        group.settle(quiet, lively)
        quiet.protocols = lively.protocols = {"range": subscription("t", "u")}
        answers = [member.begin_join(session_timeout_ms=timeout) for member, timeout in ((quiet, 300), (lively, 9000))]
        assert [answer().error_code for answer in answers] == [ErrorCode.NONE, ErrorCode.NONE]
        eventually(lively.heartbeat, ErrorCode.REBALANCE_IN_PROGRESS)
        assert lively.join(session_timeout_ms=9000).members[0].member_id == lively.member_id
        assert quiet.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


# SyncGroup


@pytest.mark.parametrize("version", SYNC)
def test_every_member_gets_the_bytes_that_the_leader_has_for_it(group: Group, version: int) -> None:
    leader, follower, forgotten = group.member(), group.member(), group.member()
    group.gather(leader, follower, forgotten)
    waiting = [member.begin(member.sync_request(), version) for member in (follower, forgotten)]
    assert not follower.has_answer(0.1)
    response = leader.sync({leader.member_id: b"mine", follower.member_id: b"yours", "nobody": b"lost"}, version)
    given = [response, *(answer() for answer in waiting)]
    assert [(answer.error_code, bytes(answer.assignment)) for answer in given] == [
        (0, b"mine"),
        (0, b"yours"),
        (0, b""),
    ]
    if version >= 5:
        assert {(answer.protocol_type, answer.protocol_name) for answer in given} == {("consumer", "range")}
    assert bytes(follower.sync(version=version).assignment) == b"yours"  # who asks again, is told again


def of_another_generation(member: Member) -> None:
    member.generation_id += 1


def of_a_stranger(member: Member) -> None:
    member.member_id = "stranger"


def of_another_group(member: Member) -> None:
    member.group_id += "-not-there"


@pytest.mark.parametrize("version", SYNC)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (of_another_generation, ErrorCode.ILLEGAL_GENERATION),
        (of_a_stranger, ErrorCode.UNKNOWN_MEMBER_ID),
        (of_another_group, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_from_outside_the_generation_is_refused(
    group: Group, version: int, change: Callable[[Member], None], expected: ErrorCode
) -> None:
    member = group.member()
    group.gather(member)
    change(member)
    response = member.sync({}, version)
    assert (response.error_code, bytes(response.assignment)) == (expected, b"")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({}, ErrorCode.NONE),
    ],
)
def test_from_version_5_on_a_sync_names_the_protocol_of_the_generation(
    group: Group, change: dict[str, Any], expected: ErrorCode
) -> None:
    member = group.member()
    group.gather(member)
    request = member.sync_request()
    for name, value in change.items():
        setattr(request, name, value)
    assert member.call(request, 4).error_code == ErrorCode.NONE
    assert member.call(request, 5).error_code == expected


@pytest.mark.parametrize("version", SYNC)
def test_a_sync_is_told_of_the_rebalance_that_has_begun(group: Group, version: int) -> None:
    leader, newcomer = group.member(), group.member()
    group.settle(leader)
    answer = newcomer.begin_join()
    eventually(leader.heartbeat, ErrorCode.REBALANCE_IN_PROGRESS)
    assert leader.sync({}, version).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    leader.join()
    assert answer().error_code == ErrorCode.NONE
