"""OffsetForLeaderEpoch: where a leader epoch ended; how followers and consumers find out that a log diverged.

v2: the current epoch of the asker, for fencing (KIP-320). v3: the id of the replica that asks.
"""

from __future__ import annotations

from barnabas.wire.schema import array, int16, int32, int64, request, response, string, struct


@struct
class OffsetForLeaderPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@struct
class OffsetForLeaderTopic:
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@request(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct
class EpochEndOffset:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@response(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
