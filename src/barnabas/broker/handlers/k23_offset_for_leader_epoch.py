"""OffsetForLeaderEpoch 2-4: where a leader epoch ended, so that a replica or a consumer can tell where it diverged.

- 3: the asker's replica id. 4: tagged fields. Kafka's clients use it after a leader change (KIP-320);
  replicas learn the same from Fetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def handle(request: OffsetForLeaderEpochRequest, context: Context) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        results = OffsetForLeaderTopicResult(topic.topic)
        response.topics.append(results)
        for asked in topic.partitions:
            result = EpochEndOffset(partition=asked.partition, leader_epoch=-1, end_offset=-1)
            results.partitions.append(result)
            try:
                partition = context.broker.replicas.get(topic.topic, asked.partition)
                partition.check_leader(asked.current_leader_epoch)
                result.leader_epoch, result.end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
            except KafkaError as error:
                result.error_code = error.code
                context.broker.metrics.error(23, error.code)
    return response
