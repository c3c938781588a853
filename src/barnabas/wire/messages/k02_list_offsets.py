"""ListOffsets: the offset at the start, the end or a timestamp of a partition.

v2: isolation level. v4: leader epochs (KIP-320). Negative timestamps are questions of their own: -1 latest, -2
earliest, v7 -3 largest timestamp (KIP-734), v8 -4 earliest local (KIP-405), v9 -5 last tiered (KIP-1005), v11 -6
earliest pending upload (KIP-1023). v10: a time-out for offsets that are looked up in remote storage (KIP-1075).
"""

from __future__ import annotations

from barnabas.wire.schema import array, int8, int16, int32, int64, request, response, string, struct


@struct
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()


@struct
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@request(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@response(key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
