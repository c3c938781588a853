"""AlterConfigs 0-2: replace everything that is set on a topic or broker; in effect at once, without a restart.

Superseded by IncrementalAlterConfigs, which does not lose what another has set meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import AlterConfigs, Failure
from barnabas.cluster.image import ConfigResource
from barnabas.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def _refuse(request: AlterConfigsRequest, failure: Failure) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(failure.code, failure.message, resource.resource_type, resource.resource_name)
            for resource in request.resources
        ]
    )


@by_controller(_refuse)
async def handle(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    broker = context.broker
    resources = tuple(
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            tuple((config.name, config.value) for config in resource.configs),
        )
        for resource in request.resources
    )
    altered = await broker.metadata.submit(AlterConfigs(resources, request.validate_only))
    await broker.replicas.usable()
    response = AlterConfigsResponse()
    for outcome in altered:
        result = AlterConfigsResourceResponse(0, None, outcome.resource.type, outcome.resource.name)
        if outcome.error:
            result.error_code, result.error_message = outcome.error.code, outcome.error.message
            broker.metrics.error(33, outcome.error.code)
        response.responses.append(result)
    return response
