"""ListTransactions 0-2: the transactional ids whose coordinator this broker is.

- 1: by age (KIP-994). 2: by a pattern of the id (KIP-1152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.transaction_listing import TransactionFilter
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: ListTransactionsRequest, context: Context) -> ListTransactionsResponse:
    try:
        wanted = TransactionFilter(request)
        response = ListTransactionsResponse(unknown_state_filters=wanted.unknown_states)
        for driver in context.broker.transactions.drivers():
            if await driver.ready():
                response.transaction_states += await driver.execute(
                    lambda shard, token, now: shard.list_transactions(wanted, token, now)
                )
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    return response
