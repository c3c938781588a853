"""EndTxn 0-5: commit or abort; answered when the decision is committed, from where on nothing can undo it.

- 5: the epoch rises with every transaction, and the response carries the next one (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: EndTxnRequest, context: Context) -> EndTxnResponse:
    try:
        await context.broker.producer_ids.ensure()
        response: EndTxnResponse = await context.broker.transactions.execute(
            request.transactional_id,
            lambda shard, token, now: shard.end_txn(request, context.version, token, now),
        )
    except KafkaError as error:
        return EndTxnResponse(error_code=error.code)
    return response
