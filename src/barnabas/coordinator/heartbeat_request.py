"""What of a ConsumerGroupHeartbeat can be judged by itself: is it whole, and is its epoch the member's."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.coordinator.consumer_member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember
from barnabas.coordinator.reconciliation import Reported
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions


def validate_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Iterable[str]) -> None:
    """What can be wrong with a request whatever the group; no group is made for such a one."""
    epoch = request.member_epoch
    if not request.member_id and (version >= 1 or epoch > 0 or epoch == LEAVE_EPOCH):
        raise _invalid("MemberId can't be empty.")
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    offered = tuple(assignors)
    if request.server_assignor is not None and request.server_assignor not in offered:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(offered)}.",
        )


def reported_partitions(topics: list[TopicPartitions] | None) -> Reported:
    if topics is None:
        return None
    owned: dict[bytes, set[int]] = {}
    for topic in topics:
        owned.setdefault(topic.topic_id, set()).update(topic.partitions)
    return owned


def validate_epoch(member: ConsumerMember, received: int, reported: Reported) -> None:
    if received == member.member_epoch:
        return
    if received > member.member_epoch:
        raise fenced(
            f"The consumer group member has a greater member epoch ({received}) than the one known by the group"
            f" coordinator ({member.member_epoch})."
        )
    has_only_its_own = reported is not None and all(
        partitions <= member.assigned.get(topic_id, {}).keys() for topic_id, partitions in reported.items()
    )
    if received != member.previous_member_epoch or not has_only_its_own:
        raise fenced(
            f"The consumer group member has a smaller member epoch ({received}) than the one known by the group"
            f" coordinator ({member.member_epoch})."
        )


def fenced(message: str) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH, f"{message} The member must abandon all its partitions and rejoin."
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
