"""ListOffsets 1-11: offsets by time, and the special ones.

| timestamp | offset |
|---|---|
| -1 | latest: the high watermark, or the last stable offset for read_committed |
| -2, -4 | earliest; earliest on this broker's disk, which is the same as long as nothing is tiered |
| -3 | of the record with the largest timestamp (7: KIP-734) |
| -5, -6 | latest in tiered storage; earliest that awaits upload: none, there is no tiered storage |
| else | of the first record with that timestamp or a later one |

- 2: isolation level. 4: leader epochs. 10: time-out for remote look-ups, which never happen here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.partition import READ_COMMITTED
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context
    from barnabas.cluster.partition import Partition

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4
_NEVER_THERE = (-5, -6)


def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        results = ListOffsetsTopicResponse(topic.name)
        response.topics.append(results)
        for asked in topic.partitions:
            result = ListOffsetsPartitionResponse(asked.partition_index, timestamp=-1, offset=-1, leader_epoch=-1)
            results.partitions.append(result)
            try:
                if (topic.name, asked.partition_index) in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                seen.add((topic.name, asked.partition_index))
                partition = context.broker.replicas.get(topic.name, asked.partition_index)
                partition.check_leader(asked.current_leader_epoch)
                _look_up(partition, asked, request.isolation_level, result)
            except KafkaError as error:
                result.error_code = error.code
                context.broker.metrics.error(2, error.code)
    return response


def _look_up(
    partition: Partition, asked: ListOffsetsPartition, isolation_level: int, result: ListOffsetsPartitionResponse
) -> None:
    log = partition.log
    end = log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark
    if asked.timestamp == _LATEST:
        result.offset = end
        result.leader_epoch = partition.leader_epoch
    elif asked.timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        result.offset = log.log_start_offset
        result.leader_epoch = log.epoch_of(log.log_start_offset)
    elif asked.timestamp in _NEVER_THERE:
        return
    elif asked.timestamp < _EARLIEST_LOCAL:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {asked.timestamp} has no meaning")
    else:
        found = (
            log.offset_of_max_timestamp()
            if asked.timestamp == _MAX_TIMESTAMP
            else log.offset_for_timestamp(asked.timestamp)
        )
        if found is not None and found.offset < end:
            result.timestamp, result.offset, result.leader_epoch = found.timestamp, found.offset, found.leader_epoch
