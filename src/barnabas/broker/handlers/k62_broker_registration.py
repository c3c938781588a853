"""BrokerRegistration 3-4: a broker that has started asks the controller for its epoch.

Believed only on the inter-broker listener. A broker of another cluster is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.between_brokers import refusal
from barnabas.cluster.events import RegisterBroker
from barnabas.cluster.image import Endpoint, SupportedFeature
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k62_broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: BrokerRegistrationRequest, context: Context) -> BrokerRegistrationResponse:
    broker = context.broker
    event = RegisterBroker(
        request.broker_id,
        request.incarnation_id,
        tuple(Endpoint(each.name, each.host, each.port, each.security_protocol) for each in request.listeners),
        {
            each.name: SupportedFeature(each.min_supported_version, each.max_supported_version)
            for each in request.features
        },
        request.rack,
        tuple(request.log_dirs),
        request.previous_broker_epoch,
    )
    if refused := refusal(context):
        return BrokerRegistrationResponse(error_code=refused)
    if request.cluster_id != broker.cluster_id:
        return BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    try:
        registered = await broker.controller.decide(event)
    except KafkaError as error:
        return BrokerRegistrationResponse(error_code=error.code)
    return BrokerRegistrationResponse(broker_epoch=registered.epoch)
