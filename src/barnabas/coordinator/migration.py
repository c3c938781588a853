"""A group goes over to the other protocol while its members stay (KIP-848), and back.

Up: a member of the consumer protocol joins a classic group of consumers. Its members become members of a consumer group
that speak the classic protocol (`mixed_group`), with the partitions that they have. Down: when no member of a consumer
group speaks the consumer protocol any more, those that are left become a classic group again. Either way the old
group's records are deleted and the new one's written in one batch.
"""

from __future__ import annotations

from enum import Enum
from random import Random

from barnabas.coordinator.assignors import NO_PARTITIONS, Assignment
from barnabas.coordinator.classic_group import ClassicGroup, ClassicGroupConfig
from barnabas.coordinator.classic_members import ClassicMember
from barnabas.coordinator.consumer_group import ConsumerGroup, ConsumerGroupConfig
from barnabas.coordinator.consumer_member import ClassicMembership, ConsumerMember, as_owned
from barnabas.coordinator.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    version_of,
)
from barnabas.coordinator.consumer_view import GroupState
from barnabas.coordinator.heartbeat_request import validate_heartbeat
from barnabas.coordinator.mixed_group import encode_named
from barnabas.coordinator.outcome import Now, Outcome, Token
from barnabas.coordinator.subscriptions import Topics, metadata_hash
from barnabas.coordinator.timers import TimerKey, Timers
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.wire.primitives import DecodeError


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`: whether groups may go up, and down."""

    BIDIRECTIONAL = ("bidirectional", True, True)
    UPGRADE = ("upgrade", True, False)
    DOWNGRADE = ("downgrade", False, True)
    DISABLED = ("disabled", False, False)

    @property
    def allows_upgrade(self) -> bool:
        return self.value[1]

    @property
    def allows_downgrade(self) -> bool:
        return self.value[2]

    @classmethod
    def named(cls, name: str) -> MigrationPolicy:
        return next((policy for policy in cls if policy.value[0] == name.lower()), cls.DISABLED)


def upgrade(
    classic: ClassicGroup,
    policy: MigrationPolicy,
    request: ConsumerGroupHeartbeatRequest,
    version: int,
    client_id: str,
    client_host: str,
    config: ConsumerGroupConfig,
    topics: Topics,
    timers: Timers[TimerKey],
    random: Random,
    token: Token,
    now: Now,
) -> tuple[ConsumerGroup | None, Outcome]:
    """A heartbeat of the consumer protocol reaches a classic group: the group that takes its place, with the outcome
    of both; or none, if the request is refused, and then the classic group is as it was."""
    try:
        validate_heartbeat(request, version, config.assignors)
        _refuse_upgrade(classic, policy, request, config)
        group, out = _as_consumer_group(classic, config, topics, timers, random)
    except KafkaError as refusal:
        error = ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)
        return None, Outcome().reply(token, error)
    joined = group.heartbeat(request, version, client_id, client_host, topics, token, now)
    if not joined.records:
        return None, joined
    everything = classic.delete(now).join(out).join(joined)
    return group, everything.join(group.loaded(now))


def should_downgrade(group: ConsumerGroup, policy: MigrationPolicy, config: ClassicGroupConfig) -> bool:
    """To be asked after every outcome with records: whether only members of the classic protocol are left."""
    return (
        not group.is_empty
        and group.classic_members == len(group.members) <= config.max_size
        and policy.allows_downgrade
    )


def downgrade(
    group: ConsumerGroup,
    config: ClassicGroupConfig,
    topics: Topics,
    timers: Timers[TimerKey],
    random: Random,
    now: Now,
) -> tuple[ClassicGroup, Outcome]:
    """The classic group that takes the place of one without members of the consumer protocol. Its members join anew,
    unless all of them had what they should have."""
    members = [_as_classic_member(group, member, topics) for member in group.members.values()]
    classic = ClassicGroup.of_members(group.group_id, group.group_epoch, members, config, timers, random, now)
    out = Outcome([*group.tombstones(), classic.record()])
    group.stop_timers()
    out.join(classic.loaded(now))
    if group.group_state is not GroupState.STABLE:
        out.join(classic.rebalance(now))
    return classic, out


def _refuse_upgrade(
    classic: ClassicGroup, policy: MigrationPolicy, request: ConsumerGroupHeartbeatRequest, config: ConsumerGroupConfig
) -> None:
    if classic.is_empty and request.member_epoch == 0:
        return  # nothing but a name to take over
    if (
        request.member_epoch != 0
        or not policy.allows_upgrade
        or classic.protocol_type != PROTOCOL_TYPE
        or len(classic.members) > config.max_size
    ):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {classic.group_id} is not a consumer group.")


def _as_consumer_group(
    classic: ClassicGroup,
    config: ConsumerGroupConfig,
    topics: Topics,
    timers: Timers[TimerKey],
    random: Random,
) -> tuple[ConsumerGroup, Outcome]:
    group = ConsumerGroup(classic.group_id, config, timers, random)
    out = Outcome()
    if classic.is_empty:
        return group, out
    try:
        members = [_as_consumer_member(classic, member, topics) for member in classic.members]
    except DecodeError as error:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade the classic group {classic.group_id} to consumer group because the embedded consumer"
            f" protocol is malformed: {error}",
        ) from error
    for member, _ in members:
        group.write_member(out.records, member)
    group.write_epoch(out.records, classic.generation_id, metadata_hash(group.subscribed_topics(), topics))
    for member, assigned in members:
        group.write_target(out.records, member.member_id, assigned)
    group.write_assignment_epoch(out.records, classic.generation_id, 0)
    for member, _ in members:
        group.write_current(out.records, member)
    return group, out


def _as_consumer_member(
    classic: ClassicGroup, member: ClassicMember, topics: Topics
) -> tuple[ConsumerMember, Assignment]:
    protocols = dict(member.protocols)
    subscription = decode_subscription(protocols.get(classic.protocol_name or "", member.protocols[0][1]))
    assigned = _assigned(member.assignment, topics)
    became = ConsumerMember(
        member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMembership(member.session_timeout_ms, member.protocols),
        member_epoch=classic.generation_id,
        previous_member_epoch=classic.generation_id,
        assigned=as_owned(assigned, classic.generation_id),
    )
    return became, assigned


def _assigned(assignment: bytes, topics: Topics) -> Assignment:
    if not assignment:
        return NO_PARTITIONS
    return {
        topics[topic.topic].id: frozenset(topic.partitions)
        for topic in decode_assignment(assignment).assigned_partitions
        if topic.topic in topics and topic.partitions
    }


def _as_classic_member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> ClassicMember:
    assert member.classic is not None
    target = group.targets.get(member.member_id, NO_PARTITIONS)
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        member.classic.protocols,
        encode_named(target, topics, version_of(member.classic.protocols[0][1])),
    )
