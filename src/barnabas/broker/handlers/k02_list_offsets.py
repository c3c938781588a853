"""ListOffsets 1-11: offsets by time, and the special ones.

| timestamp | offset |
|---|---|
| -1 | latest: the high watermark, or the last stable offset for read_committed |
| -2, -4 | earliest; earliest on this broker's disk, which is the same as long as nothing is tiered |
| -3 | of the record with the largest timestamp (KIP-734) |
| -5, -6 | latest in tiered storage; earliest that awaits upload: none, there is no tiered storage |
| >= 0 | of the first record with that timestamp or a later one |

- 2: isolation level. 4: leader epochs. 7, 8, 9, 11: special timestamps -3, -4, -5, -6; a version before that, and any
  other negative timestamp, is UNSUPPORTED_VERSION. 10: time-out for remote look-ups, which never happen here.

A leader that was just elected may know a lower watermark than the one before it. Until it has caught up it does not
tell an offset that depends on that, or a consumer could see the end move back (KIP-207): OFFSET_NOT_AVAILABLE, or
LEADER_NOT_AVAILABLE before version 5. A follower asks where its leader's log really ends.
"""

from __future__ import annotations

import sys
from collections import Counter
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

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
_FIRST_VERSION_WITH_NOT_AVAILABLE = 5
_FIRST_VERSION = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING_UPLOAD: 11}


def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    times = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    for topic in request.topics:
        results = ListOffsetsTopicResponse(topic.name)
        response.topics.append(results)
        for asked in topic.partitions:
            result = ListOffsetsPartitionResponse(asked.partition_index, timestamp=-1, offset=-1, leader_epoch=-1)
            results.partitions.append(result)
            try:
                if times[topic.name, asked.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                if asked.timestamp < _EARLIEST and context.version < _FIRST_VERSION.get(asked.timestamp, sys.maxsize):
                    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
                partition = context.broker.replicas.get(topic.name, asked.partition_index)
                partition.check_leader(asked.current_leader_epoch)
                if request.replica_id >= 0 and context.listener == context.broker.inter_broker_listener:
                    _look_up(partition, asked, partition.log.log_end_offset, True, result)
                else:
                    log = partition.log
                    is_stable = request.isolation_level == READ_COMMITTED
                    end = log.last_stable_offset if is_stable else log.high_watermark
                    _look_up(partition, asked, end, partition.is_watermark_known, result)
            except KafkaError as error:
                if error.code == ErrorCode.OFFSET_NOT_AVAILABLE and context.version < _FIRST_VERSION_WITH_NOT_AVAILABLE:
                    error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
                result.error_code = error.code
                context.broker.metrics.error(2, error.code)
            except OSError as error:
                result.error_code = context.broker.replicas.disk_failed(partition, error)
    return response


def _look_up(
    partition: Partition,
    asked: ListOffsetsPartition,
    end: int,
    is_end_known: bool,
    result: ListOffsetsPartitionResponse,
) -> None:
    log = partition.log
    if asked.timestamp == _LATEST:
        if not is_end_known:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        result.offset = end
        result.leader_epoch = partition.leader_epoch
    elif asked.timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        result.offset = log.log_start_offset
        result.leader_epoch = log.epoch_of(log.log_start_offset)
    elif asked.timestamp not in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        found = (
            log.offset_of_max_timestamp()
            if asked.timestamp == _MAX_TIMESTAMP
            else log.offset_for_timestamp(asked.timestamp)
        )
        if found is not None and found.offset >= end and not is_end_known:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        if found is not None and found.offset < end:
            result.timestamp, result.offset, result.leader_epoch = found.timestamp, found.offset, found.leader_epoch
