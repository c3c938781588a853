"""IncrementalAlterConfigs 0-1: set, delete, append to or subtract from single keys; in effect at once (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.forwarding import by_controller
from barnabas.cluster.events import ConfigChange, Failure, IncrementalAlterConfigs
from barnabas.cluster.image import ConfigResource
from barnabas.wire.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def _refuse(request: IncrementalAlterConfigsRequest, failure: Failure) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(failure.code, failure.message, resource.resource_type, resource.resource_name)
            for resource in request.resources
        ]
    )


@by_controller(_refuse)
async def handle(request: IncrementalAlterConfigsRequest, context: Context) -> IncrementalAlterConfigsResponse:
    broker = context.broker
    resources = tuple(
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            tuple(ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs),
        )
        for resource in request.resources
    )
    altered = await broker.metadata.submit(IncrementalAlterConfigs(resources, request.validate_only))
    await broker.replicas.usable()
    response = IncrementalAlterConfigsResponse()
    for outcome in altered:
        result = AlterConfigsResourceResponse(0, None, outcome.resource.type, outcome.resource.name)
        if outcome.error:
            result.error_code, result.error_message = outcome.error.code, outcome.error.message
            broker.metrics.error(44, outcome.error.code)
        response.responses.append(result)
    return response
