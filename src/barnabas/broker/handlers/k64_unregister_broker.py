"""UnregisterBroker 0: forget a broker that will not come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import UnregisterBroker
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


@by_controller
async def handle(request: UnregisterBrokerRequest, context: Context) -> UnregisterBrokerResponse:
    try:
        await context.broker.metadata.submit(UnregisterBroker(request.broker_id))
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse()
