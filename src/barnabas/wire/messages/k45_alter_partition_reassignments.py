"""AlterPartitionReassignments: move partitions to other replicas, or call that off with null replicas (KIP-455).

v1: a change of the replication factor can be forbidden (KIP-860).
"""

from __future__ import annotations

from barnabas.wire.schema import array, boolean, int16, int32, request, response, string, struct


@struct
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable="0+", default=None)


@struct
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@request(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@struct
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@response(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
