"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848).

While a group goes over from one protocol to the other, members of both are in it. For those of the classic protocol the
coordinator is the leader: a JoinGroup is a heartbeat that says what the member owns and wants, and is answered at once;
the generation is the member's epoch; SyncGroup fetches what it has got; and a Heartbeat tells it to join again whenever
there is a step to take. It has its rebalance time-out for each: to join when told to, and to sync when it has joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from barnabas.coordinator.assignors import NO_PARTITIONS, Assignment
from barnabas.coordinator.classic_members import protocols_of
from barnabas.coordinator.consumer_group import REJOIN, SESSION, SYNC, ConsumerGroup
from barnabas.coordinator.consumer_member import ClassicMembership, ConsumerMember, MemberState, as_assignment
from barnabas.coordinator.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_subscription,
    encode_assignment,
    version_of,
)
from barnabas.coordinator.outcome import Now, Outcome, Token
from barnabas.coordinator.subscriptions import Topics
from barnabas.coordinator.timers import TimerKey
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.wire.primitives import DecodeError


def join(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    version: int,
    client_id: str,
    client_host: str,
    topics: Topics,
    token: Token,
    now: Now,
) -> Outcome:
    try:
        return _join(group, request, version, client_id, client_host, topics, token, now)
    except KafkaError as refusal:
        return Outcome().reply(token, JoinGroupResponse(error_code=refusal.code, member_id=request.member_id))


def _join(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    version: int,
    client_id: str,
    client_host: str,
    topics: Topics,
    token: Token,
    now: Now,
) -> Outcome:
    is_unknown = not request.member_id
    member_id = request.member_id or group.new_member_id()
    group.refuse_if_full(member_id)
    protocols = protocols_of(request.protocols)
    _refuse_unsupported(group, request.protocol_type, [name for name, _ in protocols])
    if is_unknown and request.group_instance_id is None and version >= 4:  # KIP-394
        required = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        return Outcome().reply(token, required)
    if request.group_instance_id is None or is_unknown:
        member = group.joining_member(member_id, request.group_instance_id, is_classic=True)
    else:
        member = group.known_member(member_id, request.group_instance_id)
    subscription = _subscription(protocols[0][1])
    rebalance_timeout_ms = request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms
    updated = replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=client_id,
        client_host=client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",  # the classic protocol has none
        rebalance_timeout_ms=rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic=ClassicMembership(request.session_timeout_ms, protocols),
    )
    out = Outcome()
    joined = group.advance(member, updated, _owned(subscription, topics), topics, now, out)
    group.stop_timer(REJOIN, member_id)
    group.set_timer(SESSION, member_id, now, request.session_timeout_ms)
    group.set_timer(SYNC, member_id, now, rebalance_timeout_ms)
    response = JoinGroupResponse(
        generation_id=joined.member_epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocols[0][0],
        member_id=member_id,
    )
    return out.reply(token, response)


def sync(group: ConsumerGroup, request: SyncGroupRequest, topics: Topics, token: Token, now: Now) -> Outcome:
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        classic = member.classic
        assert classic is not None
        name, metadata = classic.protocols[0]
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"member joined with {PROTOCOL_TYPE}, {name}")
        if _awaited_epoch(group) > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            _tell_to_rejoin(group, member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        assignment = encode_named(as_assignment(member.assigned), topics, version_of(metadata))
    except KafkaError as refusal:
        return Outcome().reply(token, SyncGroupResponse(error_code=refusal.code))
    group.stop_timer(SYNC, member.member_id)
    group.set_timer(SESSION, member.member_id, now, classic.session_timeout_ms)
    response = SyncGroupResponse(
        protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
    )
    return Outcome().reply(token, response)


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, token: Token, now: Now) -> Outcome:
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    except KafkaError as refusal:
        return Outcome().reply(token, HeartbeatResponse(error_code=refusal.code))
    group.set_timer(SESSION, member.member_id, now, group.session_timeout_ms(member))
    if not _has_step_to_take(group, member):
        return Outcome().reply(token, HeartbeatResponse())
    _tell_to_rejoin(group, member, now)
    return Outcome().reply(token, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))


def leave(group: ConsumerGroup, request: LeaveGroupRequest, version: int, token: Token) -> Outcome:
    identities = request.members if version >= 3 else [MemberIdentity(member_id=request.member_id)]
    leaving: dict[str, ConsumerMember] = {}
    results = []
    for identity in identities:
        result = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        try:
            member = _leaving_member(group, identity)
            leaving[member.member_id] = member
            result.member_id = member.member_id
        except KafkaError as refusal:
            result.error_code = refusal.code
        results.append(result)
    out = Outcome()
    if leaving:
        group.remove(leaving.values(), out)
    if version >= 3:
        return out.reply(token, LeaveGroupResponse(members=results))
    return out.reply(token, LeaveGroupResponse(error_code=results[0].error_code))


def encode_named(assignment: Assignment, topics: Topics, version: int) -> bytes:
    """An assignment as classic members know it, by names; a topic that is gone has none."""
    names: Mapping[bytes, str] = {topic.id: name for name, topic in topics.items()}
    named = {names[topic_id]: partitions for topic_id, partitions in assignment.items() if topic_id in names}
    listed = [TopicPartition(name, sorted(partitions)) for name, partitions in sorted(named.items())]
    return encode_assignment(ConsumerProtocolAssignment(listed), version)


def _refuse_unsupported(group: ConsumerGroup, protocol_type: str, names: list[str]) -> None:
    """The members of the classic protocol must have a protocol in common, for the day when they are by themselves."""
    supports = (
        bool(names) if group.is_empty else any(group.classic_protocols[n] == group.classic_members for n in names)
    )
    if protocol_type != PROTOCOL_TYPE or not supports:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"protocols {', '.join(names)} are not supported")


def _subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    try:
        return decode_subscription(metadata)
    except DecodeError as error:  # Kafka has no better code for it
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"subscription cannot be read: {error}") from error


def _owned(subscription: ConsumerProtocolSubscription, topics: Topics) -> dict[bytes, set[int]]:
    owned: dict[bytes, set[int]] = {}
    for topic in subscription.owned_partitions:
        if topic.topic in topics:
            owned.setdefault(topics[topic.topic].id, set()).update(topic.partitions)
    return owned


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> ConsumerMember:
    member = group.known_member(member_id, instance_id)
    _refuse_consumer_protocol(member)
    if member.member_epoch != generation_id:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION, f"generation {generation_id} is not the member epoch {member.member_epoch}"
        )
    return member


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    """Of either protocol: it is also how an administrator removes members."""
    instance = group.static_member(identity.group_instance_id)
    if instance is not None and not identity.member_id:
        return instance  # an administrator knows a static member by its instance
    return group.known_member(identity.member_id, identity.group_instance_id)


def _refuse_consumer_protocol(member: ConsumerMember) -> None:
    if not member.is_classic:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol.")


def _has_step_to_take(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """A new target, something to give up, or something that has become free."""
    if member.member_epoch < _awaited_epoch(group) or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not any(
        partition not in member.assigned.get(topic_id, {}) and not group.is_free(topic_id, partition)
        for topic_id, partitions in group.targets.get(member.member_id, NO_PARTITIONS).items()
        for partition in partitions
    )


def _awaited_epoch(group: ConsumerGroup) -> int:
    """The epoch that a member shall come to: that of the target. A target that is yet to come is brought about by a
    heartbeat of the consumer protocol; if nobody speaks it, a member must join for that."""
    return group.group_epoch if group.classic_members == len(group.members) else group.assignment_epoch


def _tell_to_rejoin(group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
    if TimerKey(group.group_id, REJOIN, member.member_id) not in group.timers:
        group.set_timer(REJOIN, member.member_id, now, member.rebalance_timeout_ms)
