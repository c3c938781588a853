"""Produce 3-13: append record batches, one per partition, and acknowledge as `acks` asks.

acks=1 is answered once the leader has the records (synced, if `flush.messages` says so), acks=-1 once all in-sync
replicas have them, acks=0 never; an acks=0 request that fails closes the connection, as Kafka does, since there is no
other way to tell. Every partition has its own outcome.

- 7: zstd. 8: error messages. 9: tagged fields. 10: leader hints. 12: transactions of version 2. 13: topics by id.

Versions 0-2 are advertised but not served: older librdkafka switches compression off unless it sees them (they carry
formats that Kafka 4 no longer takes either). Transactional batches are refused until there is a coordinator for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.dispatch import Later
from barnabas.cluster.delayed import DelayedProduce
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import COMPRESSION_MASK, HEADER_SIZE, LOG_OVERHEAD, TRANSACTIONAL
from barnabas.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context
    from barnabas.cluster.partition import Partition
    from barnabas.storage.log import AppendInfo

_KEY = 0
_ZSTD = 4
_FIRST_VERSION_WITH_ZSTD = 7
_FIRST_VERSION_BY_TOPIC_ID = 13


def handle(request: ProduceRequest, context: Context) -> ProduceResponse | Later[ProduceResponse] | None:
    broker = context.broker
    replicas = broker.replicas
    acks = request.acks
    now_ms = broker.clock.now_ms()
    response = ProduceResponse()
    waiting: list[tuple[PartitionProduceResponse, Partition, AppendInfo]] = []
    failed = False
    for topic in request.topic_data:
        results = TopicProduceResponse(topic.name, topic.topic_id)
        response.responses.append(results)
        for data in topic.partition_data:
            result = PartitionProduceResponse(data.index)
            results.partition_responses.append(result)
            try:
                if not -1 <= acks <= 1:
                    raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}; only -1, 0 and 1 are known")
                name = topic.name
                if context.version >= _FIRST_VERSION_BY_TOPIC_ID:
                    name = replicas.name_of(topic.topic_id)
                partition = replicas.get(name, data.index)
                info = partition.append(_checked(data.records, context.version), now_ms, acks)
            except KafkaError as error:
                failed = True
                result.error_code = error.code
                result.error_message = error.message or None
                result.base_offset = -1
                broker.metrics.error(_KEY, error.code)
                continue
            except OSError as error:
                failed = True
                result.error_code = replicas.disk_failed(partition, error)
                result.base_offset = -1
                continue
            result.base_offset = info.first_offset
            result.log_append_time_ms = info.log_append_time_ms
            result.log_start_offset = info.log_start_offset
            if not partition.is_acknowledged(info, acks):
                waiting.append((result, partition, info))
    if not acks:
        if failed:
            context.connection.close("failed request with acks=0")
        return None
    if not waiting:
        return response
    return _acknowledge_later(request, response, waiting, context)


def _checked(records: memoryview | None, version: int) -> memoryview:
    """What the protocol asks of the records as a whole; the log judges the batch itself."""
    if records is None or len(records) < HEADER_SIZE:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request must carry one record batch per partition")
    if int.from_bytes(records[8:12], "big") + LOG_OVERHEAD != len(records) and records[16] == 2:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "a produce request must carry exactly one whole record batch per partition"
        )
    attributes = records[22]
    if attributes & COMPRESSION_MASK == _ZSTD and version < _FIRST_VERSION_WITH_ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    if attributes & TRANSACTIONAL:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "this broker has no transaction coordinator yet")
    return records


def _acknowledge_later(
    request: ProduceRequest,
    response: ProduceResponse,
    waiting: list[tuple[PartitionProduceResponse, Partition, AppendInfo]],
    context: Context,
) -> Later[ProduceResponse]:
    later: Later[ProduceResponse] = Later()

    def done(outcomes: dict[int, ErrorCode]) -> None:
        for item, outcome in outcomes.items():
            if outcome is not ErrorCode.NONE:
                result = waiting[item][0]
                result.error_code = outcome
                result.base_offset = -1
                context.broker.metrics.error(_KEY, outcome)
        later.complete(response)

    delayed = DelayedProduce(context.broker.call_later, max(0, request.timeout_ms) / 1000, done)
    for item, (_, partition, info) in enumerate(waiting):
        delayed.wait_for(item, partition, info, request.acks)
    return later
