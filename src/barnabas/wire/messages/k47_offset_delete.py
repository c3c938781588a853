"""OffsetDelete: forget a group's offsets of topics that it does not subscribe to (KIP-496)."""

from __future__ import annotations

from barnabas.wire.schema import array, int16, int32, request, response, string, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: int = int32()


@struct
class OffsetDeleteRequestTopic:
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@request(key=47, versions="0", flexible="none")
class OffsetDeleteRequest:
    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@struct
class OffsetDeleteResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetDeleteResponseTopic:
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@response(key=47, versions="0", flexible="none")
class OffsetDeleteResponse:
    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
