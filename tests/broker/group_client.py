"""Groups request by request: members on connections of their own, and what is asked of a group from outside.

A JoinGroup or SyncGroup may wait for other members, so these are begun and ended apart: what begins one gives a
function that waits for its answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.wire.messages.k15_describe_groups import DescribeGroupsRequest
from tests.broker.wire_client import Client
from tests.peers import eventually

JOIN, SYNC, HEARTBEAT, LEAVE = range(10), range(6), range(5), range(6)
COMMIT, FETCH = range(2, 11), range(1, 11)
FIRST_WITH_MEMBER_ID_REQUIRED = 4
FIRST_WITH_STATIC_MEMBERS = 5
FIRST_BY_TOPIC_ID = 10
FIRST_WITH_SEVERAL_GROUPS = 8
NEW_GROUP, TRANSACTION, SHARE = 0, 1, 2
Answer = Callable[[], Any]


def subscription(*topics: str) -> bytes:
    """What the consumers of a classic group hand each other: version 0, the topics, no user data."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return bytes(2) + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


class Member(Client):
    """A member of a classic group, as far as it knows."""

    def __init__(
        self, address: str, group_id: str, protocols: Mapping[str, bytes] | None = None, instance_id: str | None = None
    ) -> None:
        super().__init__(address)
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.protocol_type = "consumer"
        self.protocols = dict(protocols or {"range": subscription("t")})

    def begin(self, request: Any, version: int) -> Answer:
        return partial(self.receive, request, version, self.send(request, version))

    # joining

    def join_request(self, *, session_timeout_ms: int = 30_000, rebalance_timeout_ms: int = 30_000) -> JoinGroupRequest:
        return JoinGroupRequest(
            self.group_id,
            session_timeout_ms,
            rebalance_timeout_ms,
            self.member_id,
            self.instance_id,
            self.protocol_type,
            [JoinGroupRequestProtocol(*protocol) for protocol in self.protocols.items()],
        )

    def begin_join(self, version: int = JOIN[-1], **timeouts: int) -> Answer:
        """Ask to join, with an id of its own where the version demands one."""
        if not self.member_id and version >= FIRST_WITH_MEMBER_ID_REQUIRED and self.instance_id is None:
            refusal = self.call(self.join_request(**timeouts), version)
            assert refusal.error_code == ErrorCode.MEMBER_ID_REQUIRED
            self.member_id = refusal.member_id
        answer = self.begin(self.join_request(**timeouts), version)

        def joined() -> Any:
            response = answer()
            if response.error_code == ErrorCode.NONE:
                self.member_id, self.generation_id = response.member_id, response.generation_id
            return response

        return joined

    def join(self, version: int = JOIN[-1], **timeouts: int) -> Any:
        return self.begin_join(version, **timeouts)()

    # being a member

    def sync_request(self, assignments: Mapping[str, bytes] | None = None) -> SyncGroupRequest:
        return SyncGroupRequest(
            self.group_id,
            self.generation_id,
            self.member_id,
            self.instance_id,
            self.protocol_type,
            next(iter(self.protocols)),
            [SyncGroupRequestAssignment(*assignment) for assignment in (assignments or {}).items()],
        )

    def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = SYNC[-1]) -> Any:
        return self.call(self.sync_request(assignments), version)

    def heartbeat(self, version: int = HEARTBEAT[-1]) -> ErrorCode:
        beat = HeartbeatRequest(self.group_id, self.generation_id, self.member_id, self.instance_id)
        return ErrorCode(self.call(beat, version).error_code)

    def leave(self, version: int = LEAVE[-1]) -> ErrorCode:
        request = LeaveGroupRequest(self.group_id, self.member_id, [MemberIdentity(self.member_id, self.instance_id)])
        response = self.call(request, version)
        return ErrorCode(response.error_code or (response.members[0].error_code if version >= 3 else 0))

    def commit(self, topic: str, offset: int, **more: Any) -> ErrorCode:
        as_member: dict[str, Any] = {"generation_id": self.generation_id, "member_id": self.member_id}
        return commit(self, self.group_id, topic, offset, **(as_member | more))


class Group:
    """A group of a name that no other test uses, whose coordinator is ready."""

    def __init__(self, address: str, group_id: str | None = None) -> None:
        self.id = f"g-{uuid.uuid4().hex[:12]}" if group_id is None else group_id
        self._address = address
        with ExitStack() as opened:
            self.client = opened.enter_context(Client(address))
            await_coordinator(self.client, self.id)
            self._connections = opened.pop_all()

    def member(self, protocols: Mapping[str, bytes] | None = None, instance_id: str | None = None) -> Member:
        return self._connections.enter_context(Member(self._address, self.id, protocols, instance_id))

    def gather(self, *members: Member, version: int = JOIN[-1]) -> list[Any]:
        """Have them join one after the other, the first as leader; the answers of the last generation."""
        answers: list[Any] = []
        for count, newcomer in enumerate(members, 1):
            pending = [newcomer.begin_join(version)]
            for member in members[: count - 1]:
                eventually(member.heartbeat, ErrorCode.REBALANCE_IN_PROGRESS)
            pending = [*(member.begin_join(version) for member in members[: count - 1]), *pending]
            answers = [answer() for answer in pending]
        return answers

    def settle(self, *members: Member, version: int = JOIN[-1]) -> None:
        """Have them join and sync, each with its own id as assignment."""
        self.gather(*members, version=version)
        leader, *followers = members
        assert leader.sync({member.member_id: member.member_id.encode() for member in members}).error_code == 0
        for follower in followers:
            assert bytes(follower.sync().assignment) == follower.member_id.encode()

    def describe(self, version: int = 6) -> Any:
        (described,) = self.client.call(DescribeGroupsRequest([self.id], False), version).groups
        return described

    def close(self) -> None:
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find_coordinator(client: Client, key: str, key_type: int = NEW_GROUP, version: int = 6) -> Any:
    """The answer for one key, in the form of the version."""
    response = client.call(FindCoordinatorRequest(key, key_type, [key]), version)
    return response if version < 4 else response.coordinators[0]


def await_coordinator(client: Client, group_id: str) -> None:
    """Ask for the coordinator, which makes the topic of offsets, until its part of that is loaded."""
    eventually(lambda: find_coordinator(client, group_id).error_code, ErrorCode.NONE, 20)
    question = OffsetFetchRequest(group_id, [])
    eventually(lambda: client.call(question, 7).error_code, ErrorCode.NONE, 20)


def commit_request(
    group_id: str,
    topics: Sequence[OffsetCommitRequestTopic],
    generation_id: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(group_id, generation_id, member_id, instance_id, retention_ms, list(topics))


def committed_topic(
    client: Client, name: str, *partitions: OffsetCommitRequestPartition, version: int
) -> OffsetCommitRequestTopic:
    topic_id = client.topic_id(name) if version >= FIRST_BY_TOPIC_ID else bytes(16)
    return OffsetCommitRequestTopic(name, topic_id, list(partitions))


def commit(
    client: Client,
    group_id: str,
    topic: str,
    offset: int,
    partition: int = 0,
    *,
    leader_epoch: int = -1,
    metadata: str | None = "",
    version: int = COMMIT[-1],
    **more: Any,
) -> ErrorCode:
    """Commit for one partition, as nobody's member unless told otherwise."""
    place = OffsetCommitRequestPartition(partition, offset, leader_epoch, metadata)
    topics = [committed_topic(client, topic, place, version=version)]
    response = client.call(commit_request(group_id, topics, **more), version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def fetched_group(
    client: Client,
    group_id: str,
    topics: Mapping[str, Sequence[int]] | None,
    *,
    version: int = FETCH[-1],
    require_stable: bool = False,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> Any:
    """OffsetFetch for one group: the response up to version 7, the group's part of it from then on."""
    if version < FIRST_WITH_SEVERAL_GROUPS:
        singles = None if topics is None else [OffsetFetchRequestTopic(name, list(at)) for name, at in topics.items()]
        return client.call(OffsetFetchRequest(group_id, singles, require_stable=require_stable), version)
    asked = None if topics is None else [asked_topic(client, *topic, version=version) for topic in topics.items()]
    group = OffsetFetchRequestGroup(group_id, member_id, member_epoch, asked)
    (found,) = client.call(OffsetFetchRequest(groups=[group], require_stable=require_stable), version).groups
    assert found.group_id == group_id
    return found


def asked_topic(client: Client, name: str, partitions: Sequence[int], *, version: int) -> OffsetFetchRequestTopics:
    topic_id = client.topic_id(name) if version >= FIRST_BY_TOPIC_ID else bytes(16)
    return OffsetFetchRequestTopics(name, topic_id, list(partitions))


def fetched(client: Client, group_id: str, topic: str, partition: int = 0, **more: Any) -> Any:
    """What OffsetFetch tells of one partition."""
    return fetched_group(client, group_id, {topic: [partition]}, **more).topics[0].partitions[0]
