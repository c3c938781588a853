"""AddPartitionsToTxn 0-5: partitions that a transaction is about to write to.

- To 3: from a producer, for its own transaction. 4: from brokers, for several, also only to ask (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context

_FIRST_VERSION_OF_BROKERS = 4


async def handle(request: AddPartitionsToTxnRequest, context: Context) -> AddPartitionsToTxnResponse:
    if context.version >= _FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[await _add(transaction, context) for transaction in request.transactions]
        )
    single = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        False,
        request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(await _add(single, context)).topic_results)


async def _add(transaction: AddPartitionsToTxnTransaction, context: Context) -> AddPartitionsToTxnResult:
    """All partitions or none: if one does not exist, the others are told that nothing was tried."""
    image = context.broker.metadata.image
    missing = {
        (topic.name, index)
        for topic in transaction.topics
        for index in topic.partitions
        if image.partition(topic.name, index) is None
    }
    if missing:
        return _refused(
            transaction,
            lambda topic, index: (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if (topic, index) in missing else ErrorCode.OPERATION_NOT_ATTEMPTED
            ),
        )
    try:
        result: AddPartitionsToTxnResult = await context.broker.transactions.execute(
            transaction.transactional_id,
            lambda shard, token, now: shard.add_partitions_to_txn(transaction, context.version, token, now),
        )
    except KafkaError as error:
        code = error.code
        return _refused(transaction, lambda topic, index: code)
    return result


def _refused(
    transaction: AddPartitionsToTxnTransaction, code_of: Callable[[str, int], ErrorCode]
) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transaction.transactional_id,
        [
            AddPartitionsToTxnTopicResult(
                topic.name,
                [AddPartitionsToTxnPartitionResult(index, code_of(topic.name, index)) for index in topic.partitions],
            )
            for topic in transaction.topics
        ],
    )
