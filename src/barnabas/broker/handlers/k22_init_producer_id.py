"""InitProducerId 0-5: a producer id for an idempotent producer.

- 3: a producer that lost its way may name its old id and epoch (KIP-360); without a transactional id it simply gets a
  new one.

With a transactional id it is the coordinator's: the older producer is fenced, and its transaction ended first.

Version 6 (two-phase commit) is not stable in Kafka and not offered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    code = ErrorCode.NONE
    if request.transactional_id == "" or (request.producer_id == NO_PRODUCER_ID) != (
        request.producer_epoch == NO_PRODUCER_EPOCH
    ):
        code = ErrorCode.INVALID_REQUEST
    else:
        try:
            if request.transactional_id is None:
                return InitProducerIdResponse(producer_id=await context.broker.producer_ids.next(), producer_epoch=0)
            await context.broker.producer_ids.ensure()
            response: InitProducerIdResponse = await context.broker.transactions.execute(
                request.transactional_id,
                lambda shard, token, now: shard.init_producer_id(request, context.version, token, now),
            )
            return response
        except KafkaError as error:
            code = error.code
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
