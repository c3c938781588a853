"""DescribeTransactions 0: state, producer and partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: DescribeTransactionsRequest, context: Context) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[await _describe(each, context) for each in request.transactional_ids]
    )


async def _describe(transactional_id: str, context: Context) -> TransactionState:
    try:
        state: TransactionState = await context.broker.transactions.execute(
            transactional_id, lambda shard, token, now: shard.describe_transaction(transactional_id, token)
        )
    except KafkaError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    return state
