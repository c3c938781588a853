"""AllocateProducerIds 0: a broker gets a block of producer ids from the controller, for itself alone.

Believed only on the inter-broker listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.between_brokers import refusal
from barnabas.cluster.events import AllocateProducerIds
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: AllocateProducerIdsRequest, context: Context) -> AllocateProducerIdsResponse:
    if refused := refusal(context):
        return AllocateProducerIdsResponse(error_code=refused)
    try:
        block = await context.broker.controller.decide(AllocateProducerIds(request.broker_id, request.broker_epoch))
    except KafkaError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.count)
