"""Produce: append record batches to partitions.

v7: zstd is allowed (KIP-110). v8: the response tells which records were refused (KIP-467). v10: it names the new
leader (KIP-951). v12: a transactional batch adds its partition to the transaction (KIP-890). v13: topic ids (KIP-516).
Versions 0-2 are gone, but have to be advertised: older librdkafka switches compression off without them.
"""

from __future__ import annotations

from barnabas.wire.schema import (
    Buffer,
    array,
    int16,
    int32,
    int64,
    nested,
    records,
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class PartitionProduceData:
    index: int = int32()
    records: Buffer | None = records(nullable="0+")


@struct
class TopicProduceData:
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@request(key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = string(nullable="0+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="0+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@struct
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "10+", tag=0, tagged="10+")


@struct
class TopicProduceResponse:
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@struct
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@response(key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0, tagged="10+")
