"""ConsumerGroupHeartbeat: join, stay in and leave a group of the new protocol; the answer is the assignment (KIP-848).

v1: subscription by a pattern, and a member id that the member chooses itself (KIP-1082).
"""

from __future__ import annotations

from barnabas.wire.schema import array, int16, int32, nested, request, response, string, struct, uuid


@struct
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@request(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="0+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@response(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, nullable="0+", default=None)
