"""DescribeLogDirs: the log directories of a broker and the size of what is in them.

v3: an error for the response as a whole. v4: size of the volume and room on it (KIP-827). v5: cordoned directories
(KIP-1066).
"""

from __future__ import annotations

from barnabas.wire.schema import array, boolean, int16, int32, int64, request, response, string, struct


@struct
class DescribableLogDirTopic:
    topic: str = string()
    partitions: list[int] = array(int32)


@request(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


@struct
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@struct
class DescribeLogDirsTopic:
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct
class DescribeLogDirsResult:
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)
    is_cordoned: bool = boolean("5+")


@response(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
