"""What a classic group is at one moment: its state, generation, protocol and members, and what follows from them.

Who may commit, what members are told and others see, what the log holds. Time and events are `classic_group`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from barnabas.coordinator.classic_members import ClassicMember, ClassicMembers
from barnabas.coordinator.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from barnabas.coordinator.group import CommittedPartition, GroupType
from barnabas.coordinator.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.coordinator.records import encode_record
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.messages.k14_sync_group import SyncGroupResponse
from barnabas.wire.messages.k15_describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.wire.primitives import DecodeError


class ClassicState(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicState

TRANSITIONS: dict[ClassicState, frozenset[ClassicState]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset(),
}


class ClassicGroupBase:
    """The fields of a group, and the questions that change nothing."""

    __slots__ = (
        "generation_id",
        "group_id",
        "members",
        "protocol_name",
        "protocol_type",
        "state",
        "state_since_ms",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.state_since_ms: int | None = now_ms  # not known of groups that an old broker wrote
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = ClassicMembers()
        self.subscribed_topics: frozenset[str] | None = None

    # What others see

    @property
    def group_type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def is_simple(self) -> bool:
        """Nobody ever joined, nor is about to: there are only offsets."""
        return self.protocol_type is None and self.state is EMPTY and not self.members.pending

    def described(self) -> DescribedGroup:
        protocol_name = self.protocol_name if self.state is STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=protocol_name or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b"" if protocol_name is None else member.metadata(protocol_name),
                    member_assignment=member.assignment,
                )
                for member in self.members
            ],
        )

    # What members are told

    def join_response(self, member: ClassicMember) -> JoinGroupResponse:
        """The members are told to the leader only, who assigns."""
        response = JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.members.leader_id or "",
            member_id=member.member_id,
        )
        if member.member_id == self.members.leader_id:
            response.members = [
                JoinGroupResponseMember(
                    member_id=other.member_id,
                    group_instance_id=other.group_instance_id,
                    metadata=other.metadata(self.protocol_name),
                )
                for other in self.members
            ]
        return response

    def sync_response(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    # Who may do what

    def member(self, member_id: str, group_instance_id: str | None) -> ClassicMember | ErrorCode:
        """The member who says so, or what is wrong with it."""
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group_instance_id is not None:
            instance = self.members.of_instance(group_instance_id)
            if instance is not None and instance.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            return instance or ErrorCode.UNKNOWN_MEMBER_ID
        return self.members.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID

    def member_of_generation(
        self, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ClassicMember | ErrorCode:
        member = self.member(member_id, group_instance_id)
        if isinstance(member, ClassicMember) and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return member

    # Offsets

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id_or_member_epoch: int,
        *,
        is_transactional: bool,
        api_version: int = 0,
        partitions: Iterable[CommittedPartition] = (),
    ) -> None:
        """Offsets are committed by a member, or by nobody in particular while the group is empty."""
        generation_id = generation_id_or_member_epoch
        if self.state is DEAD:
            raise self._refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
        if generation_id < 0 and self.state is EMPTY:
            return
        if generation_id >= 0 or member_id or group_instance_id is not None:
            member = self.member_of_generation(member_id, group_instance_id, generation_id)
            if isinstance(member, ErrorCode):
                raise self._refusal(member, member_id)
        elif not is_transactional:  # a transaction of before KIP-447 says neither member nor generation
            raise self._refusal(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        if self.state is COMPLETING and not is_transactional:
            raise self._refusal(ErrorCode.REBALANCE_IN_PROGRESS, member_id)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self.state is DEAD:
            raise self._refusal(ErrorCode.GROUP_ID_NOT_FOUND)

    def validate_offset_delete(self) -> None:
        """Of a group with members only consumers tell their topics; `is_subscribed_to` says which are in use."""
        if self.state is DEAD:
            raise self._refusal(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not EMPTY and self.protocol_type != PROTOCOL_TYPE:
            raise self._refusal(ErrorCode.NON_EMPTY_GROUP)

    def validate_delete(self) -> None:
        if self.state is DEAD:
            raise self._refusal(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not EMPTY:
            raise self._refusal(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        """Consumers whose topics are not known might be subscribed to any."""
        if self.subscribed_topics is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def retention_start_ms(self, commit_timestamp_ms: int) -> int | None:
        """From when on an offset of a topic without subscribers ages; None: not as things are."""
        if self.protocol_type is None:  # nobody ever joined: offsets of a consumer that assigns itself
            return commit_timestamp_ms
        if self.state is EMPTY:
            return commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms
        if self.state is STABLE and self.protocol_type == PROTOCOL_TYPE and self.subscribed_topics is not None:
            return commit_timestamp_ms
        return None

    # What the log holds

    def tombstones(self) -> list[CoordinatorRecord]:
        return [encode_record(GroupMetadataKey(group=self.group_id), None)]

    def record(self) -> CoordinatorRecord:
        """The group as the log has it."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.members.leader_id,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=member.assignment,
                )
                for member in self.members
            ],
        )
        return encode_record(GroupMetadataKey(group=self.group_id), value)

    def fill(self, value: GroupMetadataValue) -> None:
        """Become the group of a record; DecodeError if that cannot have been one."""
        if value.members and value.protocol is None:
            raise DecodeError(f"group {self.group_id!r} is recorded with members and without a protocol")
        self.generation_id = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.state_since_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
        for member in value.members:
            if member.member_id in self.members or self.members.of_instance(member.group_instance_id) is not None:
                raise DecodeError(f"group {self.group_id!r} is recorded with member {member.member_id!r} twice")
            self.members.add(
                ClassicMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
                    member.session_timeout,
                    ((value.protocol or "", bytes(member.subscription)),),
                    bytes(member.assignment),
                )
            )
        if value.leader in self.members:
            self.members.leader_id = value.leader
        self.state = STABLE if value.members else EMPTY
        self.note_subscriptions()

    def note_subscriptions(self) -> None:
        """Take down the topics of all members; None if these are no consumers, or say what cannot be read."""
        self.subscribed_topics = None
        if self.protocol_type == PROTOCOL_TYPE:
            try:
                self.subscribed_topics = frozenset(
                    topic for member in self.members for topic in subscribed_topics(member.metadata(self.protocol_name))
                )
            except DecodeError:
                return

    def _refusal(self, error: ErrorCode, member_id: str | None = None) -> KafkaError:
        who = "" if member_id is None else f" member {member_id!r} of"
        return KafkaError(
            error,
            f"{error.name} for{who} group {self.group_id!r}, {self.state.value} in generation {self.generation_id}",
        )
