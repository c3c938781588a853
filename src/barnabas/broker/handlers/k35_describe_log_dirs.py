"""DescribeLogDirs 1-5: this broker's log directories, the partitions in them, and their sizes.

- 4: the size of the volume and the room on it (KIP-827). A directory that has failed is told with KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def handle(request: DescribeLogDirsRequest, context: Context) -> DescribeLogDirsResponse:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    response = DescribeLogDirsResponse()
    for directory in context.broker.manager.directories:
        result = DescribeLogDirsResult(log_dir=directory.path)
        response.results.append(result)
        if directory.is_offline:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            continue
        result.total_bytes, result.usable_bytes = directory.space()
        topics: dict[str, DescribeLogDirsTopic] = {}
        for partition in context.broker.replicas.partitions.values():
            log = partition.log
            if log.parent_directory != directory.path or (
                wanted is not None and (log.topic, log.partition) not in wanted
            ):
                continue
            topic = topics.setdefault(log.topic, DescribeLogDirsTopic(log.topic))
            topic.partitions.append(DescribeLogDirsPartition(log.partition, log.size_bytes))
        result.topics = list(topics.values())
    return response
