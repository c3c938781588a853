"""Group ids that are none, are as long as can be, or longer; assignments that no record can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.compiler import codec
from barnabas.wire.headers import encode_request_header
from barnabas.wire.messages.k08_offset_commit import OffsetCommitRequest
from barnabas.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest
from barnabas.wire.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.k42_delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.k47_offset_delete import OffsetDeleteRequest
from barnabas.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.wire.primitives import encode_uvarint
from tests.broker.group_client import Group, await_coordinator, commit, fetched
from tests.broker.wire_client import Client, api_of
from tests.peers import Broker

LONGEST = 32767
TOO_LONG = 65536
REQUESTS: dict[str, Callable[[str], Any]] = {
    "OffsetCommit": lambda group_id: OffsetCommitRequest(group_id),
    "OffsetFetch": lambda group_id: OffsetFetchRequest(group_id, [], [OffsetFetchRequestGroup(group_id, topics=[])]),
    "FindCoordinator": lambda group_id: FindCoordinatorRequest(group_id, 0, [group_id]),
    "JoinGroup": lambda group_id: JoinGroupRequest(
        group_id, 30_000, 30_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]
    ),
    "Heartbeat": lambda group_id: HeartbeatRequest(group_id, 1, "m"),
    "LeaveGroup": lambda group_id: LeaveGroupRequest(group_id, "m", [MemberIdentity("m")]),
    "SyncGroup": lambda group_id: SyncGroupRequest(group_id, 1, "m", None, "consumer", "range"),
    "DescribeGroups": lambda group_id: DescribeGroupsRequest([group_id]),
    "DeleteGroups": lambda group_id: DeleteGroupsRequest([group_id]),
    "OffsetDelete": lambda group_id: OffsetDeleteRequest(group_id),
    "ConsumerGroupHeartbeat": lambda group_id: ConsumerGroupHeartbeatRequest(
        group_id, "m", 0, None, None, 30_000, ["t"], topic_partitions=[]
    ),
    "ConsumerGroupDescribe": lambda group_id: ConsumerGroupDescribeRequest([group_id]),
}


def in_all_versions(*names: str) -> list[tuple[str, int]]:
    versions = {name: api_of(REQUESTS[name]("g")) for name in names}
    return [
        (name, version) for name, api in versions.items() for version in range(api.min_version, api.max_version + 1)
    ]


@pytest.mark.parametrize(
    ("name", "version"),
    in_all_versions("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetDelete"),
)
def test_a_group_without_a_name_has_no_members(client: Client, name: str, version: int) -> None:
    await_coordinator(client, "")
    assert client.call(REQUESTS[name](""), version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(2, 11))
def test_a_group_without_a_name_may_have_offsets_as_it_could_of_old(client: Client, version: int) -> None:
    await_coordinator(client, "")
    topic = client.create_topic()
    assert commit(client, "", topic, 5, version=version) == ErrorCode.NONE
    assert fetched(client, "", topic).committed_offset == 5


def test_a_group_id_as_long_as_a_string_can_be_is_one_like_any_other(broker: Broker) -> None:
    with Group(broker.address, "\N{SNOWMAN}" + "x" * (LONGEST - 3)) as group:
        topic = group.client.create_topic()
        assert commit(group.client, group.id, topic, 5) == ErrorCode.NONE
        assert fetched(group.client, group.id, topic).committed_offset == 5
        member = group.member()
        group.settle(member)
        assert group.describe().members[0].member_id == member.member_id
        member.leave()
        assert group.client.call(DeleteGroupsRequest([group.id])).results[0].error_code == ErrorCode.NONE


def encoded(name: str, version: int) -> bytes:
    """A request for the group "mark"."""
    request = REQUESTS[name]("mark")
    return b"".join(codec(type(request), version).encode(request))


FLEXIBLE = [
    (name, version)
    for name, version in in_all_versions(*REQUESTS)
    if encode_uvarint(5) + b"mark" in encoded(name, version)  # elsewhere two bytes tell of no more than is allowed
]


@pytest.mark.parametrize(("name", "version"), FLEXIBLE)
def test_a_group_id_of_64_kib_ends_the_connection_and_no_other(
    client: Client, broker: Broker, name: str, version: int
) -> None:
    body = encoded(name, version).replace(encode_uvarint(5) + b"mark", encode_uvarint(TOO_LONG + 1) + b"x" * TOO_LONG)
    key = api_of(REQUESTS[name]("mark")).key
    with Client(broker.address) as hostile:
        hostile.send_frame(encode_request_header(key, version, 1, "test") + body)
        assert hostile.is_closed_by_broker()
    assert client.call(FindCoordinatorRequest("", 0, [])).coordinators == []


@pytest.mark.parametrize("size", [1_048_588, 20_000_000])
def test_an_assignment_that_no_record_can_hold_fails_and_the_group_goes_on(group: Group, size: int) -> None:
    member = group.member()
    group.gather(member)
    response = member.sync({member.member_id: bytes(size)})
    assert (response.error_code, bytes(response.assignment)) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")
    assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert member.join().generation_id == 2
    assert bytes(member.sync({member.member_id: bytes(1_000_000)}).assignment) == bytes(1_000_000)
    assert group.describe().group_state == "Stable"
