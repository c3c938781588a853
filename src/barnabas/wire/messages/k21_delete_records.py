"""DeleteRecords: move the log start offset of a partition forward; -1 means up to the high watermark."""

from __future__ import annotations

from barnabas.wire.schema import array, int16, int32, int64, request, response, string, struct


@struct
class DeleteRecordsPartition:
    partition_index: int = int32()
    offset: int = int64()


@struct
class DeleteRecordsTopic:
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@request(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@struct
class DeleteRecordsTopicResult:
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@response(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
