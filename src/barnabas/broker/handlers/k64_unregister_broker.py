"""UnregisterBroker 0: forget a broker that will not come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import Failure, UnregisterBroker
from barnabas.wire.messages.k64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def _refuse(request: UnregisterBrokerRequest, failure: Failure) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=failure.code, error_message=failure.message)


@by_controller(_refuse)
async def handle(request: UnregisterBrokerRequest, context: Context) -> UnregisterBrokerResponse:
    await context.broker.metadata.submit(UnregisterBroker(request.broker_id))
    return UnregisterBrokerResponse()
