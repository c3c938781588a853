"""DeleteRecords 0-2: move a partition's log start offset up, to the high watermark with -1.

What lies below is never read again, also after a crash: the new start is on disk before the answer. Whole segments
below it are deleted in the background.

A topic that is only compacted promises the last value of every key, and so keeps its records (POLICY_VIOLATION); those
of internal topics are nobody's to delete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.image import INTERNAL_TOPICS
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.dispatch import Context
    from barnabas.storage.log import Log

_TO_HIGH_WATERMARK = -1


async def handle(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    broker = context.broker
    response = DeleteRecordsResponse()
    moved: list[tuple[DeleteRecordsPartitionResult, Log]] = []
    for topic in request.topics:
        results = DeleteRecordsTopicResult(topic.name)
        response.topics.append(results)
        for asked in topic.partitions:
            result = DeleteRecordsPartitionResult(asked.partition_index, low_watermark=-1)
            results.partitions.append(result)
            try:
                log = _delete(broker, topic.name, asked.partition_index, asked.offset)
            except KafkaError as error:
                result.error_code = error.code
                broker.metrics.error(21, error.code)
            else:
                result.low_watermark = log.log_start_offset
                moved.append((result, log))
    await broker.manager.checkpoint()
    for result, log in moved:
        if log.is_offline:  # it may not have reached the disk
            result.low_watermark = -1
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            broker.metrics.error(21, ErrorCode.KAFKA_STORAGE_ERROR)
    return response


def _delete(broker: Broker, topic: str, index: int, offset: int) -> Log:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic!r} is internal; its records are the broker's"
        )
    partition = broker.replicas.get(topic, index)
    partition.check_leader()
    log = partition.log
    if log.config.is_compacted and "delete" not in log.config.cleanup_policy:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"topic {topic!r} is only compacted; cleanup.policy needs 'delete'"
        )
    if offset == _TO_HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not an offset")
    log.advance_log_start_offset(offset)
    return log
