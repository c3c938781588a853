"""DescribeCluster 0-2: brokers, controller and cluster id, with the addresses of the listener that was asked.

- 1: endpoints of brokers (1) or of controllers (2); we have no separate controllers. 2: fenced brokers on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorized import CLUSTER_OPERATIONS
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context

_BROKERS, _CONTROLLERS = 1, 2


def handle(request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker; it tells the endpoints of brokers (type 1)",
            endpoint_type=request.endpoint_type,
        )
    metadata = context.broker.metadata
    response = DescribeClusterResponse(cluster_id=context.broker.cluster_id, controller_id=metadata.controller_id)
    for broker in metadata.image.brokers.values():
        endpoint = broker.endpoint(context.listener)
        if endpoint is not None and (not broker.fenced or request.include_fenced_brokers):
            response.brokers.append(
                DescribeClusterBroker(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
            )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
