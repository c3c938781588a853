"""TxnOffsetCommit 0-5: offsets of a group that take effect with a transaction, or not at all.

They are written to the group's partition as records of that transaction. The transaction must know of that partition:
older clients say so with AddOffsetsToTxn, and it is verified here; for those of the second protocol it is added here.

- 3: member and generation, for fencing (KIP-447). 4: TRANSACTION_ABORTABLE. 5: the second protocol (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinator_runtime import Producer
from barnabas.broker.groups import OFFSETS_TOPIC
from barnabas.broker.verification import Guard, PartitionKey, join_transaction, refused
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import NO_SEQUENCE
from barnabas.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.dispatch import Context

_FIRST_VERSION_WITH_ABORTABLE = 4
_FIRST_VERSION_THAT_ADDS = 5


async def handle(request: TxnOffsetCommitRequest, context: Context) -> TxnOffsetCommitResponse:
    broker = context.broker
    image = broker.metadata.image
    known, unknown = [], []
    for topic in request.topics:
        there = [each for each in topic.partitions if image.partition(topic.name, each.partition_index)]
        gone = [each for each in topic.partitions if not image.partition(topic.name, each.partition_index)]
        if there:
            known.append(TxnOffsetCommitRequestTopic(topic.name, there))
        if gone:
            rest = TxnOffsetCommitRequestTopic(topic.name, gone)
            unknown.append(_refused(rest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    request.topics = known
    response = TxnOffsetCommitResponse()
    if known:
        try:
            producer = Producer(request.producer_id, request.producer_epoch)
            guards = await _guards(request.group_id, producer, broker)
            is_added = context.version >= _FIRST_VERSION_THAT_ADDS
            errors = await join_transaction(broker, request.transactional_id, *producer, guards, is_added=is_added)
            for code in refused(errors, guards).values():
                raise KafkaError(_as_known(code, context.version))
            response = await broker.groups.execute(
                request.group_id,
                lambda shard, token, now: shard.txn_offset_commit(request, context.version, token, now),
                producer,
            )
        except KafkaError as error:
            response = TxnOffsetCommitResponse(topics=[_refused(topic, error.code) for topic in known])
    response.topics += unknown
    return response


async def _guards(group_id: str, producer: Producer, broker: Broker) -> dict[PartitionKey, Guard]:
    """The one partition of offsets that is written to. What coordinators write has no sequence."""
    log = (await broker.groups.ready(group_id)).partition.log
    producers, now_ms = log.producers, broker.clock.now_ms()
    return {(OFFSETS_TOPIC, log.partition): Guard.set(producers, *producer, NO_SEQUENCE, now_ms, is_added=False)}


def _as_known(code: ErrorCode, version: int) -> ErrorCode:
    """What the transaction's coordinator says, in the terms of this API."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_VERSION_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _refused(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        topic.name, [TxnOffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions]
    )
