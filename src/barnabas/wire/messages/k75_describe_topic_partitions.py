"""DescribeTopicPartitions: topics page by page, with eligible leader replicas (KIP-966)."""

from __future__ import annotations

from barnabas.wire.schema import array, boolean, int16, int32, nested, request, response, string, struct, uuid


@struct
class TopicRequest:
    name: str = string()


@struct
class Cursor:
    topic_name: str = string()
    partition_index: int = int32()


@request(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nested(Cursor, nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
    last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)
    offline_replicas: list[int] = array(int32)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=-2147483648)


@response(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = nested(Cursor, nullable="0+", default=None)
