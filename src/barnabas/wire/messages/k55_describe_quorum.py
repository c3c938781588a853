"""DescribeQuorum: leader, voters and observers of the metadata log, as tools that watch a cluster ask for them.

v1: when each replica last fetched and was last caught up (KIP-836). v2: directory ids and endpoints (KIP-853).
"""

from __future__ import annotations

from barnabas.wire.schema import array, int16, int32, int64, request, response, string, struct, uint16, uuid


@struct
class RequestPartitionData:
    partition_index: int = int32()


@struct
class RequestTopicData:
    topic_name: str = string()
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


@request(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[RequestTopicData] = array(RequestTopicData)


@struct
class ReplicaState:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


@struct
class ResponsePartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="0+")
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@struct
class ResponseTopicData:
    topic_name: str = string()
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


@struct
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@struct
class Node:
    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


@response(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData)
    nodes: list[Node] = array(Node, "2+")
