"""Consumer groups: which there are, who is in them, and how to be rid of them.

They are of different types (classic, KIP-848's, share groups), and brokers describe each by another API. A caller need
not know the type. Those of Kafka Streams have tasks instead of partitions: `admin.streams_groups` describes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum
from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.metadata import TopicPartition
from barnabas.client.outcomes import alone, refusal, settled
from barnabas.client.routes import BROKERS, GROUPS, ask, ask_one, ask_singly, serving_brokers
from barnabas.coordinator.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
)
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.k15_describe_groups import DescribedGroupMember, DescribeGroupsRequest
from barnabas.wire.messages.k16_list_groups import ListGroupsRequest
from barnabas.wire.messages.k42_delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest, Member
from barnabas.wire.messages.k77_share_group_describe import Member as ShareMember
from barnabas.wire.messages.k77_share_group_describe import ShareGroupDescribeRequest
from barnabas.wire.primitives import DecodeError

_NOT_SERVED = frozenset({ErrorCode.UNSUPPORTED_VERSION})
_OF_ANOTHER_TYPE = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""What a broker answers about a group that is not of the type of the question."""
_SPEAKS_KIP_848 = frozenset({1, -1})
"""The member types of those that do; a broker of before KIP-1099 tells none, which is -1."""


class GroupState(StrEnum):
    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    NOT_READY = "NotReady"
    DEAD = "Dead"

    @classmethod
    def _missing_(cls, value: object) -> GroupState:
        return cls.UNKNOWN


class GroupType(StrEnum):
    UNKNOWN = "unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"

    @classmethod
    def _missing_(cls, value: object) -> GroupType:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    state: GroupState
    type: GroupType
    protocol_type: str
    """`consumer` for groups of consumers; empty for a group that only keeps offsets."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    rack: str | None
    topics: tuple[str, ...]
    """What it has subscribed to, by name; `pattern` is the same by RE2."""
    pattern: str | None
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]
    """What it will have when the group has settled: another than `assignment` only in KIP-848's protocol."""
    epoch: int | None
    """The member's own; the classic protocol has none."""
    protocol: GroupType


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    type: GroupType
    state: GroupState
    protocol_type: str
    assignor: str
    epoch: int | None
    """The group's; the classic protocol tells none."""
    assignment_epoch: int | None
    members: tuple[GroupMember, ...]


class Groups:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(
        self,
        *,
        states: Iterable[GroupState] = (),
        types: Iterable[GroupType] = (),
        protocol_types: Iterable[str] = (),
    ) -> list[GroupListing]:
        """The groups of all brokers by id, or those in one of these states, of these types, of these protocols."""
        wanted_protocols = set(protocol_types)
        request = ListGroupsRequest([str(state) for state in states], [str(kind) for kind in types])
        brokers = await serving_brokers(self._client)
        answers = await ask_singly(self._client, BROKERS, brokers, lambda _: request, _read_listings)
        found = (listing for listings in settled(answers).values() for listing in listings)
        unique = {g.group_id: g for g in found if not wanted_protocols or g.protocol_type in wanted_protocols}
        return [unique[group] for group in sorted(unique)]

    async def describe(self, group: str) -> GroupDescription:
        """A group of any of these types with its members; GROUP_ID_NOT_FOUND if there is none."""
        return (await alone(self.describe_many([group])))[group]

    async def describe_many(self, groups: Iterable[str]) -> dict[str, GroupDescription]:
        wanted = left = list(groups)
        answers: dict[str, GroupDescription | KafkaError] = {}
        for request, read in _WAYS_TO_DESCRIBE:
            found = await ask(self._client, GROUPS, left, request, read)
            answers |= {g: answer for g, answer in found.items() if g not in answers or not _is(answer, _NOT_SERVED)}
            left = [group for group in left if _is(answers[group], _OF_ANOTHER_TYPE)]
        return settled({group: answers[group] for group in wanted})

    async def delete(self, group: str) -> None:
        """Delete a group with its offsets; NON_EMPTY_GROUP while it has members."""
        await alone(self.delete_many([group]))

    async def delete_many(self, groups: Iterable[str]) -> None:
        settled(await ask(self._client, GROUPS, groups, DeleteGroupsRequest, _read_deletions))

    async def remove_members(
        self,
        group: str,
        *,
        members: Iterable[str] = (),
        instances: Iterable[str] = (),
        reason: str = "removed by an administrator",
    ) -> None:
        """Remove members by their id, or static ones by their instance id; the group goes on without them."""
        identities = [MemberIdentity(member, None, reason) for member in members]
        identities += [MemberIdentity("", instance, reason) for instance in instances]
        request = LeaveGroupRequest(group, "", identities)
        settled(await ask_one(self._client, GROUPS, group, request, _read_removals))

    async def remove_all_members(self, group: str, *, reason: str = "removed by an administrator") -> None:
        """Remove whoever is in the group now."""
        found = (await self.describe(group)).members
        await self.remove_members(
            group,
            members=[each.member_id for each in found if each.group_instance_id is None],
            instances=[each.group_instance_id for each in found if each.group_instance_id is not None],
            reason=reason,
        )


def _read_listings(response: Any) -> list[GroupListing]:
    if response.error_code:
        raise refused(response.error_code, "cannot list groups")
    return [
        GroupListing(found.group_id, GroupState(found.group_state), GroupType(found.group_type), found.protocol_type)
        for found in response.groups
    ]


def _is(answer: object, codes: frozenset[ErrorCode]) -> bool:
    return isinstance(answer, KafkaError) and answer.code in codes


def _read_consumer_groups(response: Any) -> dict[str, GroupDescription | KafkaError]:
    return {found.group_id: _modern_group(found, GroupType.CONSUMER, _consumer_member) for found in response.groups}


def _read_share_groups(response: Any) -> dict[str, GroupDescription | KafkaError]:
    return {found.group_id: _modern_group(found, GroupType.SHARE, _share_member) for found in response.groups}


def _modern_group(
    found: Any, type: GroupType, member_of: Callable[[Any], GroupMember]
) -> GroupDescription | KafkaError:
    if found.error_code:
        return refused(found.error_code, f"cannot describe group {found.group_id!r}", found.error_message)
    return GroupDescription(
        found.group_id,
        type,
        GroupState(found.group_state),
        str(type),
        found.assignor_name,
        found.group_epoch,
        found.assignment_epoch,
        tuple(member_of(member) for member in found.members),
    )


def _share_member(member: ShareMember) -> GroupMember:
    assignment = _partitions(member.assignment)
    return GroupMember(
        member.member_id,
        None,
        member.client_id,
        member.client_host,
        member.rack_id,
        tuple(member.subscribed_topic_names),
        None,
        assignment,
        assignment,
        member.member_epoch,
        GroupType.SHARE,
    )


def _consumer_member(member: Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rack_id,
        tuple(member.subscribed_topic_names),
        member.subscribed_topic_regex or None,
        _partitions(member.assignment),
        _partitions(member.target_assignment),
        member.member_epoch,
        GroupType.CONSUMER if member.member_type in _SPEAKS_KIP_848 else GroupType.CLASSIC,
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, index)
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )


def _read_classic_groups(response: Any) -> dict[str, GroupDescription | KafkaError]:
    return {found.group_id: _classic_group(found) for found in response.groups}


def _classic_group(found: Any) -> GroupDescription | KafkaError:
    if found.error_code:
        return refused(found.error_code, f"cannot describe group {found.group_id!r}", found.error_message)
    if found.group_state == GroupState.DEAD:  # so a broker of before KIP-1043 says that there is none
        return refused(ErrorCode.GROUP_ID_NOT_FOUND, f"cannot describe group {found.group_id!r}", "it does not exist")
    return GroupDescription(
        found.group_id,
        GroupType.CLASSIC,
        GroupState(found.group_state),
        found.protocol_type,
        found.protocol_data,
        None,
        None,
        tuple(_classic_member(member, found.protocol_type) for member in found.members),
    )


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> GroupMember:
    topics, rack, assignment = _consumers_words(member) if protocol_type == PROTOCOL_TYPE else ((), None, ())
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        rack,
        topics,
        None,
        assignment,
        assignment,
        None,
        GroupType.CLASSIC,
    )


def _consumers_words(member: DescribedGroupMember) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    """Topics, rack and assignment out of the bytes that only consumers understand; a joining member has none yet."""
    subscription, assignment = ConsumerProtocolSubscription(), ConsumerProtocolAssignment()
    with suppress(DecodeError):
        subscription = decode_subscription(member.member_metadata)
        assignment = decode_assignment(member.member_assignment)
    assigned = sorted(
        TopicPartition(topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions
    )
    return tuple(subscription.topics), subscription.rack_id, tuple(assigned)


def _read_deletions(response: Any) -> dict[str, KafkaError | None]:
    return {
        found.group_id: refusal(found.error_code, f"cannot delete group {found.group_id!r}")
        for found in response.results
    }


def _read_removals(response: Any) -> dict[str, KafkaError | None]:
    if response.error_code:
        raise refused(response.error_code, "cannot remove members")
    return {
        name: refusal(found.error_code, f"cannot remove member {name!r}")
        for found in response.members
        for name in (found.group_instance_id or found.member_id,)
    }


_WAYS_TO_DESCRIBE = (
    (ConsumerGroupDescribeRequest, _read_consumer_groups),
    (DescribeGroupsRequest, _read_classic_groups),
    (ShareGroupDescribeRequest, _read_share_groups),
)
"""Tried one after the other, for the groups that are of no earlier type."""
