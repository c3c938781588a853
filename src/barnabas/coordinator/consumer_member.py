"""A member of a consumer group, as it stands in the log: who it is and what it wants, and what it has.

The two halves are two records: ConsumerGroupMemberMetadata, and ConsumerGroupCurrentMemberAssignment. A member is a
value: a change makes a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import IntEnum
from typing import TypeAlias

from barnabas.coordinator.assignors import Assignment
from barnabas.coordinator.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)
from barnabas.core.dataclass import dataclass

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""By topic id and partition: in which epoch the member got it (KIP-1251). No topic is empty."""


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment."""

    STABLE = 0  # it has all that its epoch gives it
    UNREVOKED_PARTITIONS = 1  # it must give up some first
    UNRELEASED_PARTITIONS = 2  # it waits for some that others have yet to give up
    UNKNOWN = 127  # a state that a later version wrote

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicMembership:
    """What is kept of a member that speaks the classic protocol: protocols by name, the most preferred first."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    def as_record(self) -> ClassicMemberMetadata:
        return ClassicMemberMetadata(
            self.session_timeout_ms, [ClassicProtocol(name, metadata) for name, metadata in self.protocols]
        )

    @classmethod
    def from_record(cls, record: ClassicMemberMetadata) -> ClassicMembership:
        protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in record.supported_protocols)
        return cls(record.session_timeout_ms, protocols)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMembership | None = None

    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def moved_to(
        self, state: MemberState, member_epoch: int, assigned: Owned, pending_revocation: Owned
    ) -> ConsumerMember:
        """The member after a step of its reconciliation."""
        return replace(
            self,
            state=state,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.subscribed_topic_names),
            subscribed_topic_regex=self.subscribed_topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=None if self.classic is None else self.classic.as_record(),
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        classic = value.classic_member_metadata
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=None if classic is None else ClassicMembership.from_record(classic),
        )

    def current_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=int(self.state),
            assigned_partitions=_topic_partitions(self.assigned),
            partitions_pending_revocation=_topic_partitions(self.pending_revocation),
        )

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_assignment(self) -> ConsumerMember:
        """What is left when its current assignment is deleted, just before it goes as a whole."""
        return replace(
            self,
            member_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            state=MemberState.STABLE,
            assigned={},
            pending_revocation={},
        )


def as_assignment(owned: Owned) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def as_owned(assignment: Assignment, epoch: int) -> Owned:
    return {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in assignment.items()}


def _topic_partitions(owned: Owned) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id, sorted(epochs), [epochs[partition] for partition in sorted(epochs)])
        for topic_id, epochs in sorted(owned.items())
    ]


def _owned(topics: Iterable[TopicPartitions], member_epoch: int) -> Owned:
    """Before Kafka 4.3 the epochs were not written; then the member's own stands in."""
    owned: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        if topic.partitions:
            owned[topic.topic_id] = dict(zip(topic.partitions, epochs))
    return owned
