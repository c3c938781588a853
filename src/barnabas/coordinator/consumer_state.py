"""The state of one consumer group: the fold of its records, and what follows from them.

    ConsumerGroupMetadata            group epoch; a higher one asks for a new target assignment
    ConsumerGroupMemberMetadata      a member: who it is, what it subscribes to
    ConsumerGroupRegularExpression   the topics that an expression matched
    ConsumerGroupTargetAssignment... the epoch for which partitions were dealt out, and each member's share
    ConsumerGroupCurrentMember...    a member's epoch, what it has, and what it is giving up

A decision is taken in `consumer_group` and becomes a record; `write` folds that record as a reader of the log would.
So the state of the one who decides and the state that is loaded cannot differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.coordinator.assignors import Assignment
from barnabas.coordinator.consumer_member import ConsumerMember, Owned
from barnabas.coordinator.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
)
from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.coordinator.records import Key, Value, encode_record
from barnabas.coordinator.subscriptions import NO_HASH

FIRST_GROUP_EPOCH = 1  # and no target yet: even a group that reads nothing is to be assigned once


class ResolvedRegularExpression(NamedTuple):
    topics: frozenset[str]
    timestamp_ms: int


class ConsumerGroupState:
    """Changed by `fold` and `write` alone."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_GROUP_EPOCH
        self.metadata_hash = NO_HASH
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegularExpression] = {}
        self.has_partition_metadata = False  # of before Kafka 4.1, to be deleted
        self.static_members: dict[str, str] = {}  # member ids by instance id
        self.topic_subscribers: Counter[str] = Counter()  # members that name the topic
        self.regex_subscribers: Counter[str] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        self.classic_members = 0
        self._owners: dict[tuple[bytes, int], str] = {}

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        return None if instance_id is None else self.members.get(self.static_members.get(instance_id, ""))

    def is_free(self, topic_id: bytes, partition: int) -> bool:
        """Whether no member has it, or has yet to say that it gave it up."""
        return (topic_id, partition) not in self._owners

    def subscribed_topics(self) -> set[str]:
        """Every topic that some member wants, by name or by a resolved expression."""
        names = set(self.topic_subscribers)
        for regex in self.regex_subscribers:
            if regex in self.regexes:
                names |= self.regexes[regex].topics
        return names

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        resolved = self.regexes.get(member.subscribed_topic_regex)
        return member.subscribed_topic_names if resolved is None else member.subscribed_topic_names | resolved.topics

    # records: made and folded at once

    def write(self, records: list[CoordinatorRecord], key: Key, value: Value | None) -> None:
        records.append(encode_record(key, value))
        self.fold(key, value)

    def write_epoch(self, records: list[CoordinatorRecord], group_epoch: int, metadata_hash: int) -> None:
        value = ConsumerGroupMetadataValue(group_epoch, metadata_hash)
        self.write(records, ConsumerGroupMetadataKey(self.group_id), value)

    def write_member(self, records: list[CoordinatorRecord], member: ConsumerMember) -> None:
        key = ConsumerGroupMemberMetadataKey(self.group_id, member.member_id)
        self.write(records, key, member.metadata_value())

    def write_current(self, records: list[CoordinatorRecord], member: ConsumerMember) -> None:
        key = ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member.member_id)
        self.write(records, key, member.current_value())

    def write_target(self, records: list[CoordinatorRecord], member_id: str, target: Assignment) -> None:
        topics = [TopicPartition(topic_id, sorted(partitions)) for topic_id, partitions in sorted(target.items())]
        key = ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id)
        self.write(records, key, ConsumerGroupTargetAssignmentMemberValue(topics))

    def write_assignment_epoch(self, records: list[CoordinatorRecord], epoch: int, timestamp_ms: int) -> None:
        value = ConsumerGroupTargetAssignmentMetadataValue(epoch, timestamp_ms)
        self.write(records, ConsumerGroupTargetAssignmentMetadataKey(self.group_id), value)

    def write_regex(self, records: list[CoordinatorRecord], regex: str, topics: frozenset[str], now_ms: int) -> None:
        # the version of the metadata is not kept: whoever loads the group resolves its expressions anew
        value = ConsumerGroupRegularExpressionValue(sorted(topics), 0, now_ms)
        self.write(records, ConsumerGroupRegularExpressionKey(self.group_id, regex), value)

    def remove_regex(self, records: list[CoordinatorRecord], regex: str) -> None:
        self.write(records, ConsumerGroupRegularExpressionKey(self.group_id, regex), None)

    def remove_member(self, records: list[CoordinatorRecord], member_id: str) -> None:
        self.write(records, ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member_id), None)
        self.write(records, ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id), None)
        self.write(records, ConsumerGroupMemberMetadataKey(self.group_id, member_id), None)

    def remove_partition_metadata(self, records: list[CoordinatorRecord]) -> None:
        if self.has_partition_metadata:
            self.write(records, ConsumerGroupPartitionMetadataKey(self.group_id), None)

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that remove the group and all of it, in an order that every reader can follow."""
        group_id, member_ids = self.group_id, list(self.members)
        keys: list[Key] = [ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id) for member_id in member_ids]
        keys += [ConsumerGroupTargetAssignmentMemberKey(group_id, member_id) for member_id in member_ids]
        keys.append(ConsumerGroupTargetAssignmentMetadataKey(group_id))
        keys += [ConsumerGroupMemberMetadataKey(group_id, member_id) for member_id in member_ids]
        keys += [ConsumerGroupRegularExpressionKey(group_id, regex) for regex in self.regexes]
        if self.has_partition_metadata:
            keys.append(ConsumerGroupPartitionMetadataKey(group_id))
        keys.append(ConsumerGroupMetadataKey(group_id))
        return [encode_record(key, None) for key in keys]

    # the fold

    def fold(self, key: Key, value: Value | None) -> None:
        _FOLDS[type(key)](self, key, value)

    def _fold_epoch(self, _: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        self.group_epoch = FIRST_GROUP_EPOCH if value is None else value.epoch
        self.metadata_hash = NO_HASH if value is None else value.metadata_hash

    def _fold_partition_metadata(
        self, _: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
    ) -> None:
        self.has_partition_metadata = value is not None

    def _fold_member(self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            self._swap(member, (member or ConsumerMember(key.member_id)).with_metadata(value))
        elif member is not None:
            self._swap(member, None)

    def _fold_assignment_epoch(
        self, _: ConsumerGroupTargetAssignmentMetadataKey, value: ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        self.assignment_epoch = 0 if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _fold_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = {
                topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions if topic.partitions
            }

    def _fold_current(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            self._swap(member, (member or ConsumerMember(key.member_id)).with_current(value))
        elif member is not None:
            self._swap(member, member.without_assignment())

    def _fold_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            resolved = ResolvedRegularExpression(frozenset(value.topics), value.timestamp)
            self.regexes[key.regular_expression] = resolved

    def _swap(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        """A member comes, changes or goes, and all that is derived from the members with it."""
        for member, delta in ((old, -1), (new, 1)):
            if member is None:
                continue
            _count(self.topic_subscribers, member.subscribed_topic_names, delta)
            if member.subscribed_topic_regex:
                _count(self.regex_subscribers, (member.subscribed_topic_regex,), delta)
            if member.classic is not None:
                self.classic_members += delta
                _count(self.classic_protocols, [name for name, _ in member.classic.protocols], delta)
        if old is not None:
            self._disown(old.member_id, old.assigned)
            self._disown(old.member_id, old.pending_revocation)
            if old.instance_id is not None and self.static_members.get(old.instance_id) == old.member_id:
                del self.static_members[old.instance_id]
        if new is None:
            assert old is not None
            del self.members[old.member_id]
            return
        self.members[new.member_id] = new
        for owned in (new.assigned, new.pending_revocation):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    self._owners[topic_id, partition] = new.member_id
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id

    def _disown(self, member_id: str, owned: Owned) -> None:
        """A compacted log may show a new owner before the old one's release: what another has by now stays with it."""
        owners = self._owners
        for topic_id, partitions in owned.items():
            for partition in partitions:
                if owners.get((topic_id, partition)) == member_id:
                    del owners[topic_id, partition]


def _count(counter: Counter[str], names: Any, delta: int) -> None:
    for name in names:
        counter[name] += delta
        if not counter[name]:
            del counter[name]


_FOLDS: dict[type, Callable[[ConsumerGroupState, Any, Any], None]] = {
    ConsumerGroupMetadataKey: ConsumerGroupState._fold_epoch,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupState._fold_partition_metadata,
    ConsumerGroupMemberMetadataKey: ConsumerGroupState._fold_member,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupState._fold_assignment_epoch,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupState._fold_target,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupState._fold_current,
    ConsumerGroupRegularExpressionKey: ConsumerGroupState._fold_regex,
}
