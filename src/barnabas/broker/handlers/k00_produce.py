"""Produce 3-13: append record batches, one per partition, and acknowledge as `acks` asks.

acks=1 is answered once the leader has the records (synced, if `flush.messages` says so), acks=-1 once all in-sync
replicas have them, acks=0 never; an acks=0 request that fails closes the connection, as Kafka does, since there is no
other way to tell. Every partition has its own outcome. A gap in a producer's sequences is OUT_OF_ORDER_SEQUENCE_NUMBER
from a leader that the controller has lately heard of; one that may have been followed by another says NOT_LEADER. Where
the batch in front was refused, and its sender had not heard of it yet, there is no gap: the answer is the same.

- 7: zstd. 8: error messages, and which records were rejected (KIP-467). 9: tagged fields. 10: leader hints.
- 12: transactions of version 2. 13: topics by id.

Versions 0-2 are advertised but not served: older librdkafka switches compression off unless it sees them (they carry
formats that Kafka 4 no longer takes either).

Internal topics are the coordinators' own: nobody else may produce to them (INVALID_TOPIC_EXCEPTION).

The first batch of a transaction in a partition waits until the coordinator knows that the partition is part of it: up
to version 11 that is asked, from 12 on it is made so (KIP-890). Later requests of the connection wait meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.dispatch import Later
from barnabas.broker.refused_batches import PASSING
from barnabas.broker.verification import Guard, PartitionKey, join_transaction, refused
from barnabas.cluster.delayed import DelayedProduce
from barnabas.cluster.image import INTERNAL_TOPICS
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import COMPRESSION_MASK, HEADER_SIZE, TRANSACTIONAL, read_header
from barnabas.wire.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context
    from barnabas.cluster.partition import Partition
    from barnabas.records.batch import BatchHeader
    from barnabas.storage.log import AppendInfo
    from barnabas.storage.producer_state import ProducerStates

_KEY = 0
_ADMIN_CLIENT_ID = "__admin_client"  # a program under this id may repair internal topics, as in Kafka
_ZSTD = 4
_FIRST_VERSION_WITH_ZSTD = 7
_FIRST_VERSION_WITH_ABORTABLE = 11
_FIRST_VERSION_THAT_ADDS = 12
_FIRST_VERSION_BY_TOPIC_ID = 13
_NO_LEADER_HINT = LeaderIdAndEpoch()
_TERMS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}

Answer = ProduceResponse | Later[ProduceResponse | None] | None
"""None, at once or later, if acks=0 asks for none."""


def handle(request: ProduceRequest, context: Context) -> Answer:
    if request.transactional_id is None:
        return _append(request, context, {})
    return _append_in_transaction(request, context)


def _append(request: ProduceRequest, context: Context, refused: dict[PartitionKey, ErrorCode]) -> Answer:
    """Append what was not refused already, and answer for all."""
    broker = context.broker
    replicas = broker.replicas
    refused_batches = broker.refused_batches
    acks = request.acks
    now_ms = broker.clock.now_ms()
    responses: list[TopicProduceResponse] = []
    waiting: list[tuple[PartitionProduceResponse, Partition, AppendInfo]] = []
    failed = False
    is_by_name = context.version < _FIRST_VERSION_BY_TOPIC_ID
    for topic in request.topic_data:
        given = topic.name if is_by_name else topic.topic_id
        results: list[PartitionProduceResponse] = []
        responses.append(TopicProduceResponse(topic.name, topic.topic_id, results))
        for data in topic.partition_data:
            index = data.index
            try:
                name = topic.name if is_by_name else replicas.name_of(topic.topic_id)
                partition = replicas.get(name, index)
                if name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT_ID:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
                if refused and (name, index) in refused:
                    partition.check_leader()  # else it may have forgotten what was verified; the new leader asks anew
                    raise KafkaError(refused[name, index], "the transaction's coordinator refused this partition")
                records = _checked(data.records, request, context)
                if refused_batches and (earlier := refused_batches.answer_to(given, index, records)):
                    raise KafkaError(earlier, "an earlier batch of this producer was refused, and is to come first")
                info = partition.append(records, now_ms, acks)
            except KafkaError as error:
                failed = True
                code = error.code
                if code in PASSING:
                    refused_batches.note(given, index, data.records, code)
                if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not broker.heartbeats.is_answered:
                    # Perhaps the next leader has what is missing here; a producer who is told of a gap gives up its
                    # epoch, and has what was under way twice.
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                broker.metrics.error(_KEY, code)
                record_errors = [BatchIndexAndErrorMessage(*rejected) for rejected in error.record_errors]
                result = PartitionProduceResponse(
                    index, code, -1, record_errors=record_errors, error_message=error.message or None
                )
            except OSError as error:
                failed = True
                result = PartitionProduceResponse(index, replicas.disk_failed(partition, error), -1)
            else:
                result = PartitionProduceResponse(
                    index,
                    0,
                    info.first_offset,
                    info.log_append_time_ms,
                    info.log_start_offset,
                    [],
                    None,
                    _NO_LEADER_HINT,
                )
                if not partition.is_acknowledged(info, acks):
                    waiting.append((result, partition, info))
            results.append(result)
    if not acks:
        if failed:
            context.connection.close("failed request with acks=0")
        return None
    response = ProduceResponse(responses)
    return _acknowledge_later(request, response, waiting, context) if waiting else response


def _checked(records: memoryview | None, request: ProduceRequest, context: Context) -> memoryview:
    """What the protocol asks of the request and its records as a whole; the log judges the batch itself."""
    if not -1 <= request.acks <= 1:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}; only -1, 0 and 1 are known")
    if records is None or len(records) < HEADER_SIZE:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request must carry one record batch per partition")
    attributes = records[22]
    if attributes:
        if attributes & COMPRESSION_MASK == _ZSTD and context.version < _FIRST_VERSION_WITH_ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
        if attributes & TRANSACTIONAL and request.transactional_id is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "a batch of a transaction needs a transactional id beside it")
    return records


def _append_in_transaction(request: ProduceRequest, context: Context) -> Answer:
    """Have the coordinator know of every partition that the transaction is new to, then append."""
    batches = _transactional_batches(request, context)
    producers = {(header.producer_id, header.producer_epoch) for _, _, header in batches}
    if len(producers) > 1:  # only one of them would be verified
        return _append(request, context, {key: ErrorCode.INVALID_PRODUCER_ID_MAPPING for key, _, _ in batches})
    is_added = context.version >= _FIRST_VERSION_THAT_ADDS
    now_ms = context.broker.clock.now_ms()
    guards = {
        key: Guard.set(states, *producer, header.base_sequence, now_ms, is_added=is_added)
        for producer in producers
        for key, states, header in batches
        if not states.is_in_transaction(*producer)
    }
    if not guards:
        return _append(request, context, {})
    verdict = join_transaction(
        context.broker, request.transactional_id or "", *producers.pop(), guards, is_added=is_added
    )
    if verdict.done():
        return _append(request, context, _as_produce_errors(refused(verdict.result(), guards), context.version))
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))  # the receive buffer will not wait
    later: Later[ProduceResponse | None] = Later(exclusive=True)

    def decided(done: asyncio.Future[dict[PartitionKey, ErrorCode]]) -> None:
        if done.cancelled():  # the broker stops, and with it the connection on which somebody waits
            return
        response = _append(request, context, _as_produce_errors(refused(done.result(), guards), context.version))
        if isinstance(response, Later):
            response.then(later.complete)
        else:
            later.complete(response)

    verdict.add_done_callback(decided)
    return later


def _transactional_batches(
    request: ProduceRequest, context: Context
) -> list[tuple[PartitionKey, ProducerStates, BatchHeader]]:
    """The batches that are part of a transaction, and what their partitions know of producers."""
    replicas = context.broker.replicas
    found: list[tuple[PartitionKey, ProducerStates, BatchHeader]] = []
    for topic in request.topic_data:
        name: str | None = topic.name
        if context.version >= _FIRST_VERSION_BY_TOPIC_ID:
            name = replicas.topic_names.get(topic.topic_id)
        for data in topic.partition_data:
            partition = replicas.partitions.get((name, data.index)) if name else None
            if name is None or partition is None or data.records is None or len(data.records) < HEADER_SIZE:
                continue
            header = read_header(data.records)
            if header.is_transactional:
                found.append(((name, data.index), partition.log.producers, header))
    return found


def _as_produce_errors(refused: dict[PartitionKey, ErrorCode], version: int) -> dict[PartitionKey, ErrorCode]:
    """What a coordinator says, in terms that a producer retries on, or gives up on, as it should."""
    terms = dict(_TERMS)
    if version < _FIRST_VERSION_THAT_ADDS:
        terms[ErrorCode.CONCURRENT_TRANSACTIONS] = ErrorCode.NOT_ENOUGH_REPLICAS
    if version < _FIRST_VERSION_WITH_ABORTABLE:
        terms[ErrorCode.TRANSACTION_ABORTABLE] = ErrorCode.INVALID_TXN_STATE
    return {partition: terms.get(code, code) for partition, code in refused.items()}


def _acknowledge_later(
    request: ProduceRequest,
    response: ProduceResponse,
    waiting: list[tuple[PartitionProduceResponse, Partition, AppendInfo]],
    context: Context,
) -> Later[ProduceResponse | None]:
    later: Later[ProduceResponse | None] = Later()

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
