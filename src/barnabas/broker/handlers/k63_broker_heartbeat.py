"""BrokerHeartbeat 0-2: a broker tells the controller that it is alive, how far it has read, and whether it wants to go.

Believed only on the inter-broker listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.between_brokers import refusal
from barnabas.cluster.events import BrokerHeartbeat
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: BrokerHeartbeatRequest, context: Context) -> BrokerHeartbeatResponse:
    if refused := refusal(context):
        return BrokerHeartbeatResponse(error_code=refused)
    event = BrokerHeartbeat(
        request.broker_id,
        request.broker_epoch,
        request.current_metadata_offset,
        request.want_fence,
        request.want_shut_down,
    )
    try:
        state = await context.broker.controller.decide(event)
    except KafkaError as error:
        return BrokerHeartbeatResponse(error_code=error.code)
    return BrokerHeartbeatResponse(
        is_caught_up=state.is_caught_up, is_fenced=state.is_fenced, should_shut_down=state.should_shut_down
    )
