"""AddOffsetsToTxn 0-4: a transaction is about to commit offsets of a group, and so to write to its partition.

- 4: TRANSACTION_ABORTABLE (KIP-890). Clients of the second protocol leave this out: TxnOffsetCommit does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.groups import OFFSETS_TOPIC
from barnabas.coordinator.transaction import TopicPartition
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: AddOffsetsToTxnRequest, context: Context) -> AddOffsetsToTxnResponse:
    broker = context.broker
    try:
        await broker.groups.ensure_topic()
        offsets = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_for(request.group_id))
        response: AddOffsetsToTxnResponse = await broker.transactions.execute(
            request.transactional_id,
            lambda shard, token, now: shard.add_offsets_to_txn(request, context.version, offsets, token, now),
        )
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    return response
