"""TxnOffsetCommit: store a group's offsets as part of a transaction.

v2: leader epochs (KIP-320). v3: member and generation, for fencing (KIP-447). v5: adds the group to the transaction,
too (KIP-890).
"""

from __future__ import annotations

from barnabas.wire.schema import array, int16, int32, int64, request, response, string, struct


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


@struct
class TxnOffsetCommitRequestTopic:
    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@request(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="0+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class TxnOffsetCommitResponseTopic:
    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@response(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
