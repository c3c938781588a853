"""OffsetFetch: read how far a group has come.

v2: null topics asks for all. v5: leader epochs (KIP-320). v7: offsets of open transactions can be refused (KIP-447).
v8: several groups at once (KIP-709). v9: member epochs (KIP-848). v10: topic ids.
"""

from __future__ import annotations

from barnabas.wire.schema import array, boolean, int16, int32, int64, request, response, string, struct, uuid


@struct
class OffsetFetchRequestTopic:
    name: str = string()
    partition_indexes: list[int] = array(int32)


@struct
class OffsetFetchRequestTopics:
    name: str = string("8-9")
    topic_id: bytes = uuid("10+")
    partition_indexes: list[int] = array(int32)


@struct
class OffsetFetchRequestGroup:
    group_id: str = string()
    member_id: str | None = string("9+", nullable="0+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable="0+")


@request(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2+")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@struct
class OffsetFetchResponsePartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5+", default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


@struct
class OffsetFetchResponseTopic:
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


@struct
class OffsetFetchResponseTopics:
    name: str = string("8-9")
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


@struct
class OffsetFetchResponseGroup:
    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


@response(key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
