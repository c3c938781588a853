"""What a consumer group answers without changing: its state, whether offsets may be touched, and its description."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from barnabas.coordinator.assignors import Assignment
from barnabas.coordinator.consumer_member import ConsumerMember, as_assignment
from barnabas.coordinator.consumer_protocol import PROTOCOL_TYPE
from barnabas.coordinator.consumer_state import ConsumerGroupState
from barnabas.coordinator.group import CommittedPartition, GroupType
from barnabas.coordinator.subscriptions import Topics
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages import k69_consumer_group_describe as k69

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1  # KIP-1099


class GroupState(StrEnum):
    """A group is as far as its members are; only what is gone is dead, and a shard says that of what it cannot find."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # partitions are to be dealt out anew
    RECONCILING = "Reconciling"  # not all members are there yet
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroupView(ConsumerGroupState):
    group_type = GroupType.CONSUMER
    protocol_type = PROTOCOL_TYPE

    @property
    def group_state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return str(self.group_state)

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_subscribers or any(
            topic in self.regexes[regex].topics for regex in self.regex_subscribers if regex in self.regexes
        )

    def retention_start_ms(self, commit_timestamp_ms: int) -> int | None:
        """The retention always counts from the commit; while a topic is subscribed to, its offsets stay anyway."""
        return commit_timestamp_ms

    def member(self, member_id: str) -> ConsumerMember:
        """The member, or UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id_or_member_epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
        partitions: Iterable[CommittedPartition],
    ) -> None:
        """A member may commit in its epoch. In an older one only what it has had since then and has not lost: it may
        not have heard of its new epoch yet, but nobody else can have read that partition meanwhile (KIP-1251)."""
        epoch = generation_id_or_member_epoch
        if epoch < 0 and not self.members:
            return  # an administrator, or a consumer that is in no group
        if is_transactional and epoch == -1 and not member_id and group_instance_id is None:
            return  # a producer that was told nothing of the group
        member = self.member(member_id)
        if not is_transactional and not member.is_classic and api_version < 9:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if epoch == member.member_epoch:
            return
        if epoch > member.member_epoch:
            raise _stale(member, f"Received epoch {epoch} is newer than current member epoch {member.member_epoch}.")
        for partition in partitions:
            since = _assigned_since(member, partition)
            name = f"{partition.topic}-{partition.partition}"
            if since is None:
                raise _stale(member, f"Partition {name} is not assigned or pending revocation for member.")
            if epoch < since:
                raise _stale(
                    member, f"Received epoch {epoch} is older than assignment epoch {since} for partition {name}."
                )

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.member_epoch:
            raise _stale(
                member, f"Received epoch {member_epoch} does not match the current member epoch {member.member_epoch}."
            )

    def validate_offset_delete(self) -> None:
        """Whether a topic is still read is asked topic by topic."""

    def validate_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} has {len(self.members)} members.")

    def preferred_assignor(self, assignors: Iterable[str]) -> str:
        """What most members ask for; where as many ask for each, and where nobody does, the first of those offered."""
        votes = dict.fromkeys(assignors, 0)
        for member in self.members.values():
            if member.server_assignor in votes:
                votes[member.server_assignor] += 1
        return max(votes, key=votes.__getitem__)

    def described(self, topics: Topics, assignors: Iterable[str]) -> k69.DescribedGroup:
        names = {topic.id: name for name, topic in topics.items()}
        return k69.DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            group_epoch=self.group_epoch,
            assignment_epoch=self.assignment_epoch,
            assignor_name=self.preferred_assignor(assignors),
            members=[
                k69.Member(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    member_epoch=member.member_epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.subscribed_topic_names),
                    subscribed_topic_regex=member.subscribed_topic_regex,
                    assignment=_described(_owned(member), names),
                    target_assignment=_described(self.targets.get(member.member_id, {}), names),
                    member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
                )
                for member in self.members.values()
            ],
        )


def _owned(member: ConsumerMember) -> Assignment:
    """What it reads, and that is also what it has yet to give up."""
    assigned, revoking = as_assignment(member.assigned), as_assignment(member.pending_revocation)
    none: frozenset[int] = frozenset()
    return {
        topic_id: assigned.get(topic_id, none) | revoking.get(topic_id, none) for topic_id in {**assigned, **revoking}
    }


def _described(assignment: Assignment, names: Mapping[bytes, str]) -> k69.Assignment:
    """Topics that are gone are left out: they have no name any more."""
    return k69.Assignment(
        [
            k69.TopicPartitions(topic_id, names[topic_id], sorted(partitions))
            for topic_id, partitions in assignment.items()
            if topic_id in names
        ]
    )


def _assigned_since(member: ConsumerMember, partition: CommittedPartition) -> int | None:
    for owned in (member.assigned, member.pending_revocation):
        since = owned.get(partition.topic_id, {}).get(partition.partition)
        if since is not None:
            return since
    return None


def _stale(member: ConsumerMember, message: str) -> KafkaError:
    code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, message)
