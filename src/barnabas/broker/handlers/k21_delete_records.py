"""DeleteRecords 0-2: move a partition's log start offset up, to the high watermark with -1.

What lies below is never read again, also after a crash: the new start is on disk before the answer. Whole segments
below it are deleted in the background. The answer waits until the in-sync followers have moved their start up, too, or
says REQUEST_TIMED_OUT; the low watermark is the least of all their starts.

A topic that is only compacted promises the last value of every key, and so keeps its records (POLICY_VIOLATION); those
of internal topics are nobody's to delete.
"""

from __future__ import annotations

import asyncio
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
    from barnabas.cluster.partition import Partition

_TO_HIGH_WATERMARK = -1


async def handle(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    broker = context.broker
    response = DeleteRecordsResponse()
    moved: list[tuple[DeleteRecordsPartitionResult, Partition, int]] = []
    for topic in request.topics:
        results = DeleteRecordsTopicResult(topic.name)
        response.topics.append(results)
        for asked in topic.partitions:
            result = DeleteRecordsPartitionResult(asked.partition_index, low_watermark=-1)
            results.partitions.append(result)
            try:
                partition, offset = _delete(broker, topic.name, asked.partition_index, asked.offset)
            except KafkaError as error:
                result.error_code = error.code
                broker.metrics.error(21, error.code)
            else:
                moved.append((result, partition, offset))
    copied = [_deleted_everywhere(partition, offset) for _, partition, offset in moved]
    await broker.manager.checkpoint()
    if copied:
        await asyncio.wait(copied, timeout=max(0, request.timeout_ms) / 1000)
    for (result, partition, _), everywhere in zip(moved, copied):
        code = everywhere.result() if everywhere.done() else ErrorCode.REQUEST_TIMED_OUT
        if partition.log.is_offline:  # it may not have reached the disk
            code = ErrorCode.KAFKA_STORAGE_ERROR
        if code is ErrorCode.NONE:
            result.low_watermark = partition.low_watermark
        else:
            everywhere.cancel()
            result.error_code = code
            broker.metrics.error(21, code)
    return response


def _deleted_everywhere(partition: Partition, offset: int) -> asyncio.Future[ErrorCode]:
    """Done when no in-sync replica has anything below `offset`, or that cannot be waited for."""
    done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def settle(code: ErrorCode) -> None:
        if not done.done():
            done.set_result(code)

    if partition.low_watermark >= offset:
        settle(ErrorCode.NONE)
    else:
        partition.when_deleted(offset, settle)
    return done


def _delete(broker: Broker, topic: str, index: int, offset: int) -> tuple[Partition, int]:
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
    partition.delete_records(offset)
    return partition, offset
