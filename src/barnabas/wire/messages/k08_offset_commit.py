"""OffsetCommit: store how far a group has come.

v5: the broker alone decides on retention. v6: leader epochs (KIP-320). v7: static members (KIP-345). v9: members of
the new protocol commit by member epoch (KIP-848). v10: topic ids.
"""

from __future__ import annotations

from barnabas.wire.schema import array, int16, int32, int64, request, response, string, struct, uuid


@struct
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


@struct
class OffsetCommitRequestTopic:
    name: str = string("0-9")
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@request(key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("7+", nullable="0+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetCommitResponseTopic:
    name: str = string("0-9")
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@response(key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
