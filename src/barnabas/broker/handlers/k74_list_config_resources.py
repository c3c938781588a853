"""ListConfigResources 0-1: what has, or can have, a configuration of its own: topics and brokers.

Version 0 asks for client metrics alone, of which there are none. Without types, version 1 asks for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context

_BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 8, 16, 32
_TYPES = {TOPIC_RESOURCE, BROKER_RESOURCE, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP}


def handle(request: ListConfigResourcesRequest, context: Context) -> ListConfigResourcesResponse:
    asked = set(request.resource_types) if context.version >= 1 else {_CLIENT_METRICS}
    if not asked <= _TYPES:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    asked = asked or _TYPES
    image = context.broker.metadata.image
    found: list[ConfigResource] = []
    if TOPIC_RESOURCE in asked:
        found += [ConfigResource(name, TOPIC_RESOURCE) for name in image.topics]
    for resource_type in (BROKER_RESOURCE, _BROKER_LOGGER):
        if resource_type in asked:
            found += [ConfigResource(str(broker_id), resource_type) for broker_id in image.brokers]
    return ListConfigResourcesResponse(config_resources=found)
