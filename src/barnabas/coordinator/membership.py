"""The groups of a shard, and the requests of their members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup,
ConsumerGroupHeartbeat.

A request goes to the group that it names. What it does there is the group's; here a group is found, made for its first
member, put in the place of one of the other protocol, or said to be missing, in the words that each request has for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from barnabas.coordinator import mixed_group
from barnabas.coordinator.classic_group import ClassicGroup, ClassicGroupConfig
from barnabas.coordinator.consumer_group import ConsumerGroup, ConsumerGroupConfig
from barnabas.coordinator.consumer_member import JOIN_EPOCH
from barnabas.coordinator.group_records import ConsumerGroupMetadataKey, GroupMetadataKey, GroupMetadataValue
from barnabas.coordinator.heartbeat_request import validate_heartbeat
from barnabas.coordinator.migration import MigrationPolicy, downgrade, should_downgrade, upgrade
from barnabas.coordinator.outcome import Now, Outcome, Token
from barnabas.coordinator.records import Key, Value
from barnabas.coordinator.subscriptions import Topics
from barnabas.coordinator.timers import TimerKey, Timers
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup


@dataclass(frozen=True, slots=True)
class GroupConfig:
    classic: ClassicGroupConfig = field(default_factory=ClassicGroupConfig)
    consumer: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


class Membership:
    """Groups by id. `topics` is what the cluster has; whoever changes it, does so with another mapping."""

    __slots__ = ("_config", "_groups", "_random", "_timers", "_topics")

    def __init__(self, config: GroupConfig, random: Random, topics: Topics) -> None:
        self._config = config
        self._random = random
        self._topics = topics
        self._groups: dict[str, AnyGroup] = {}
        self._timers: Timers[TimerKey] = Timers()

    def join_group(
        self, request: JoinGroupRequest, version: int, client_id: str, client_host: str, token: Token, now: Now
    ) -> Outcome:
        """A group is made by its first member, who has no id yet; one of the consumer protocol that has no members
        makes room for it."""
        group = self._named(request.group_id)
        if isinstance(group, ClassicGroup):
            return group.join(request, version, client_id, client_host, token, now)
        error = None
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif not self._config.classic.allows(request.session_timeout_ms):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        elif group is not None and not group.is_empty:
            outcome = mixed_group.join(group, request, version, client_id, client_host, self._topics, token, now)
            return self._settle(group, outcome, now)
        elif request.member_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not None:
            return Outcome().reply(token, JoinGroupResponse(error_code=error, member_id=request.member_id))
        classic = self._new_classic(request.group_id, now)
        outcome = classic.join(request, version, client_id, client_host, token, now)
        if classic.is_recorded:
            self._groups[request.group_id] = classic
            if group is not None:
                outcome = _end(group, now).join(outcome)
        return outcome

    def sync_group(self, request: SyncGroupRequest, token: Token, now: Now) -> Outcome:
        group = self._named(request.group_id)
        if group is None:
            return Outcome().reply(token, SyncGroupResponse(error_code=_no_member_of(request.group_id)))
        if isinstance(group, ClassicGroup):
            return group.sync(request, token, now)
        return mixed_group.sync(group, request, self._topics, token, now)

    def heartbeat(self, request: HeartbeatRequest, token: Token, now: Now) -> Outcome:
        group = self._named(request.group_id)
        if group is None:
            return Outcome().reply(token, HeartbeatResponse(error_code=_no_member_of(request.group_id)))
        if isinstance(group, ClassicGroup):
            return group.heartbeat(request, token, now)
        return mixed_group.heartbeat(group, request, token, now)

    def leave_group(self, request: LeaveGroupRequest, version: int, token: Token, now: Now) -> Outcome:
        group = self._named(request.group_id)
        if isinstance(group, ClassicGroup):
            return group.leave(request, version, token, now)
        if group is not None:
            return self._settle(group, mixed_group.leave(group, request, version, token), now)
        error = _no_member_of(request.group_id)
        if version < 3 or error is ErrorCode.INVALID_GROUP_ID:
            return Outcome().reply(token, LeaveGroupResponse(error_code=error))
        members = [MemberResponse(member.member_id, member.group_instance_id, error) for member in request.members]
        return Outcome().reply(token, LeaveGroupResponse(members=members))

    def consumer_group_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client_id: str,
        client_host: str,
        token: Token,
        now: Now,
    ) -> Outcome:
        """A group is made by its first member; one of the classic protocol goes over to this one, if it can."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            outcome = group.heartbeat(request, version, client_id, client_host, self._topics, token, now)
            return self._settle(group, outcome, now)
        config, made = self._config.consumer, None
        if isinstance(group, ClassicGroup):
            made, outcome = upgrade(
                group,
                self._config.migration_policy,
                request,
                version,
                client_id,
                client_host,
                config,
                self._topics,
                self._timers,
                self._random,
                token,
                now,
            )
        else:
            try:
                validate_heartbeat(request, version, config.assignors)
                if request.member_epoch != JOIN_EPOCH:
                    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
            except KafkaError as error:
                refusal = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
                return Outcome().reply(token, refusal)
            made = self._new_consumer(request.group_id)
            outcome = made.heartbeat(request, version, client_id, client_host, self._topics, token, now)
        if made is not None and outcome.records:
            self._groups[request.group_id] = made
        return outcome

    def _settle(self, group: AnyGroup, outcome: Outcome, now: Now) -> Outcome:
        """A consumer group whose last member of the consumer protocol is gone becomes a classic one."""
        config = self._config
        if (
            isinstance(group, ConsumerGroup)
            and outcome.records
            and should_downgrade(group, config.migration_policy, config.classic)
        ):
            classic, change = downgrade(group, config.classic, self._topics, self._timers, self._random, now)
            self._groups[group.group_id] = classic
            outcome.join(change)
        return outcome

    # groups: found, made, ended, and folded from the log

    def _named(self, group_id: str) -> AnyGroup | None:
        """The group; without a name it has no members, though it may have offsets."""
        return self._groups.get(group_id) if group_id else None

    def _new_classic(self, group_id: str, now: Now) -> ClassicGroup:
        return ClassicGroup(group_id, self._config.classic, self._timers, self._random, now)

    def _new_consumer(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._config.consumer, self._timers, self._random)

    def _existing(self, group_id: str) -> AnyGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist")
        return group

    def _remove(self, group: AnyGroup, now: Now, outcome: Outcome) -> None:
        outcome.join(_end(group, now))
        del self._groups[group.group_id]

    def _fold_classic(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        if value is not None:
            self._groups[key.group] = ClassicGroup.restore(
                key.group, value, self._config.classic, self._timers, self._random, Now(0, 0)
            )
        elif isinstance(self._groups.get(key.group), ClassicGroup):
            del self._groups[key.group]

    def _fold_consumer(self, key: Key, value: Value | None) -> None:
        """A classic group in the way has only offsets, which may be older in a compacted log than their group is."""
        group = self._groups.get(key.group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            group = self._groups[key.group_id] = self._new_consumer(key.group_id)
        group.fold(key, value)
        if value is None and type(key) is ConsumerGroupMetadataKey:
            del self._groups[key.group_id]


def _end(group: AnyGroup, now: Now) -> Outcome:
    """The group's tombstones; its timers no longer run."""
    if isinstance(group, ClassicGroup):
        return group.delete(now)
    group.stop_timers()
    return Outcome(group.tombstones())


def _no_member_of(group_id: str) -> ErrorCode:
    """Who speaks of a group that does not exist is no member of it."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
