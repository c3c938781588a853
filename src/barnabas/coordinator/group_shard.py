"""All groups of one partition of `__consumer_offsets`, with their offsets.

Owned by the broker that leads the partition, from the load of its log to the end of that leadership. The state is the
fold of the log; what only time knows (sessions, a rebalance under way) begins anew with a load.

A request over several groups comes as the part that concerns this shard, and is answered with that part:

    offset_fetch    OffsetFetchResponseGroup        delete_groups             list of DeletableGroupResult
    list_groups     list of ListedGroup             describe_groups           list of DescribedGroup
                                                    consumer_group_describe   list of (another) DescribedGroup

The others are answered with the whole response. The requests of members are in `membership`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

from barnabas.coordinator import group_listing, offset_requests
from barnabas.coordinator.classic_group import ClassicGroup
from barnabas.coordinator.consumer_group import ConsumerGroup
from barnabas.coordinator.group_records import GroupMetadataKey, LegacyOffsetCommitKey, OffsetCommitKey
from barnabas.coordinator.membership import AnyGroup, GroupConfig, Membership
from barnabas.coordinator.offset_requests import OffsetLimits
from barnabas.coordinator.offsets import OffsetStore
from barnabas.coordinator.outcome import CoordinatorRecord, Now, Outcome, Token
from barnabas.coordinator.records import decode_group_record
from barnabas.coordinator.subscriptions import Topics
from barnabas.coordinator.timers import TimerKey
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k08_offset_commit import OffsetCommitRequest
from barnabas.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from barnabas.wire.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
from barnabas.wire.messages.k42_delete_groups import DeletableGroupResult
from barnabas.wire.messages.k47_offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.wire.primitives import DecodeError
from barnabas.wire.schema import ZERO_UUID

_OFFSET_KEYS = (OffsetCommitKey, LegacyOffsetCommitKey)
_OFFSET_EXPIRY = TimerKey("", "offset expiry")
_EXPIRED_AT_ONCE = 1000  # tombstones in one batch, so that a night's worth of them fits, and nobody waits for it
_FIRST_VERSION_WITH_NOT_FOUND = 9  # of OffsetCommit


@dataclass(frozen=True, slots=True)
class GroupShardConfig(GroupConfig):
    """`offset_metadata_max_bytes` counts characters, as Kafka does; `batch_max_bytes` is the max.message.bytes of the
    offsets topic."""

    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4096
    batch_max_bytes: int = 1_048_588


class GroupShard(Membership):
    __slots__ = ("_offset_config", "_offset_limits", "_offsets")

    def __init__(self, config: GroupShardConfig, random: Random, topics: Topics) -> None:
        super().__init__(config, random, topics)
        self._offset_config = config
        self._offset_limits = OffsetLimits(config.offset_metadata_max_bytes, config.batch_max_bytes)
        self._offsets = OffsetStore()

    @property
    def groups(self) -> Mapping[str, AnyGroup]:
        """By group id; to be read only."""
        return self._groups

    # the log

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        """Fold a record of the log. DecodeError for one that makes no sense, UnknownRecordType for one of a kind that
        is none of ours: both leave the state as it was, and the record can be passed over."""
        try:
            key, value = decode_group_record(*record)
            if isinstance(key, _OFFSET_KEYS):
                if value is not None and key.group not in self._groups:
                    self._groups[key.group] = self._new_classic(key.group, Now(0, value.commit_timestamp))
                self._offsets.replay(key, value, producer_id)
            elif isinstance(key, GroupMetadataKey):
                self._fold_classic(key, value)
            else:
                self._fold_consumer(key, value)
        except DecodeError as error:
            raise type(error)(f"record at offset {offset}: {error}") from error

    def replay_end(self, producer_id: int, committed: bool) -> None:
        """Fold the end of a producer's transaction; to be told when the marker is in the log."""
        self._offsets.complete_transaction(producer_id, is_commit=committed)

    def loaded(self, now: Now) -> Outcome:
        """The log has been read to its end: time begins to count."""
        outcome = Outcome()
        for group in list(self._groups.values()):
            outcome.join(group.loaded(now))
        self._timers.set(_OFFSET_EXPIRY, now.monotonic_ms + self._offset_config.offsets_retention_check_interval_ms)
        return outcome

    # time, and the cluster

    @property
    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms

    def expire(self, now: Now) -> Outcome:
        outcome = Outcome()
        for key in self._timers.take_due(now.monotonic_ms):
            group = self._groups.get(key.group_id)
            if key == _OFFSET_EXPIRY:
                self._expire_offsets(now, outcome)
            elif group is not None:
                outcome.join(self._settle(group, group.expire(key, now), now))
        return outcome

    def _expire_offsets(self, now: Now, outcome: Outcome) -> None:
        """Forget offsets that are past their retention, and groups that have neither members nor offsets left."""
        pause_ms = self._offset_config.offsets_retention_check_interval_ms
        for group in list(self._groups.values()):
            outcome.records += self._offsets.expire(group, now.wall_ms, self._offset_config.offsets_retention_ms)
            if group.is_empty and not self._offsets.has_any(group.group_id):
                self._remove(group, now, outcome)
            if len(outcome.records) >= _EXPIRED_AT_ONCE:
                pause_ms = 1
                break
        self._timers.set(_OFFSET_EXPIRY, now.monotonic_ms + pause_ms)

    def topics_changed(self, topics: Topics, now: Now) -> Outcome:
        """Topics came, went, or have more partitions: what was committed for those that went is forgotten."""
        outcome = Outcome()
        before, self._topics = self._topics, topics
        for name, topic in before.items():
            if name not in topics or topics[name].id != topic.id:
                outcome.records += self._offsets.delete_topic(name, topic.id)
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup) and group.classic_members:  # the others notice in their own requests
                outcome.join(group.metadata_changed(topics, now))
        return outcome

    # offsets

    def offset_commit(self, request: OffsetCommitRequest, version: int, token: Token, now: Now) -> Outcome:
        """Topics come with their names, and where they exist with their ids; whether they exist is not asked here."""
        missing = ErrorCode.GROUP_ID_NOT_FOUND
        if version < _FIRST_VERSION_WITH_NOT_FOUND:
            missing = ErrorCode.ILLEGAL_GENERATION
        outcome = Outcome()
        try:
            group = self._committing(request.group_id, request.generation_id_or_member_epoch, missing, now)
            response = offset_requests.commit(
                self._offsets,
                group,
                request,
                version,
                now.wall_ms,
                self._offset_limits,
                outcome.records,
            )
        except KafkaError as error:
            return outcome.reply(token, offset_requests.commit_refused(request, error.code))
        self._groups[request.group_id] = group
        if isinstance(group, ClassicGroup):
            group.committed(request.member_id, now)
        return outcome.reply(token, response)

    def txn_offset_commit(self, request: TxnOffsetCommitRequest, version: int, token: Token, now: Now) -> Outcome:
        """The records are to be written as part of the producer's transaction, which has been found to be open."""
        outcome = Outcome()
        try:
            if not request.group_id:
                raise KafkaError(
                    ErrorCode.INVALID_GROUP_ID, "a transaction commits offsets of a group, which has an id"
                )
            group = self._committing(request.group_id, request.generation_id, ErrorCode.ILLEGAL_GENERATION, now)
            response = offset_requests.commit_in_transaction(
                self._offsets,
                group,
                request,
                version,
                now.wall_ms,
                self._offset_limits,
                self._topic_id,
                outcome.records,
            )
        except KafkaError as error:
            return outcome.reply(token, offset_requests.commit_in_transaction_refused(request, error.code))
        self._groups[request.group_id] = group
        return outcome.reply(token, response)

    def _committing(self, group_id: str, generation_id: int, missing: ErrorCode, now: Now) -> AnyGroup:
        """The group, or one for somebody who is a member of none: with a generation below zero he says so."""
        group = self._groups.get(group_id)
        if group is None:
            if generation_id >= 0:
                raise KafkaError(missing, f"group {group_id!r} does not exist")
            group = self._new_classic(group_id, now)
        return group

    def _topic_id(self, name: str) -> bytes:
        topic = self._topics.get(name)
        return ZERO_UUID if topic is None else topic.id

    def offset_fetch(self, request: OffsetFetchRequestGroup, *, require_stable: bool, token: Token) -> Outcome:
        """Topics come with their names, and from version 10 on with their ids."""
        group = self._groups.get(request.group_id)
        try:
            response = offset_requests.fetch(self._offsets, group, request, require_stable=require_stable)
        except KafkaError as error:
            response = OffsetFetchResponseGroup(request.group_id, error_code=error.code)
        return Outcome().reply(token, response)

    def offset_delete(self, request: OffsetDeleteRequest, token: Token) -> Outcome:
        outcome = Outcome()
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID, "offsets are deleted of a group, which has an id")
            group = self._existing(request.group_id)
            response = offset_requests.delete(self._offsets, group, request, outcome.records)
        except KafkaError as error:
            response = OffsetDeleteResponse(error_code=error.code)
        return outcome.reply(token, response)

    # administration

    def delete_groups(self, group_ids: Iterable[str], token: Token, now: Now) -> Outcome:
        """Groups without members go, and their offsets with them."""
        outcome = Outcome()
        results = []
        for group_id in group_ids:
            code = ErrorCode.NONE
            try:
                group = self._existing(group_id)
                group.validate_delete()
                outcome.records += self._offsets.delete_group(group_id)
                self._remove(group, now, outcome)
            except KafkaError as error:
                code = error.code
            results.append(DeletableGroupResult(group_id, code))
        return outcome.reply(token, results)

    def list_groups(self, states_filter: Iterable[str], types_filter: Iterable[str], token: Token) -> Outcome:
        return Outcome().reply(token, group_listing.listed(self._groups.values(), states_filter, types_filter))

    def describe_groups(self, group_ids: Iterable[str], version: int, token: Token) -> Outcome:
        described = [group_listing.described_classic(self._groups, group_id, version) for group_id in group_ids]
        return Outcome().reply(token, described)

    def consumer_group_describe(self, group_ids: Iterable[str], token: Token) -> Outcome:
        assignors = self._config.consumer.assignors
        described = [
            group_listing.described_consumer(self._groups, group_id, self._topics, assignors) for group_id in group_ids
        ]
        return Outcome().reply(token, described)
