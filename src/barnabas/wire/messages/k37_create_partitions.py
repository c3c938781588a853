"""CreatePartitions: raise a topic's number of partitions.

v3: creation may be throttled (KIP-599).
"""

from __future__ import annotations

from barnabas.wire.schema import array, boolean, int16, int32, request, response, string, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = array(int32)


@struct
class CreatePartitionsTopic:
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


@request(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@struct
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
