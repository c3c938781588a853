"""The cluster as a whole: its id, its brokers, its controller."""

from __future__ import annotations

from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.metadata import BrokerInfo
from barnabas.client.routes import ANY, CONTROLLER, ask_one
from barnabas.core.dataclass import dataclass
from barnabas.wire.messages.k60_describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.k64_unregister_broker import UnregisterBrokerRequest


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerInfo, ...]
    """All that are registered, by id."""
    fenced: frozenset[int]
    """Those of them that may not serve: they are down, starting, or out of the controller's sight."""


class Cluster:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(self) -> ClusterDescription:
        request = DescribeClusterRequest(include_fenced_brokers=True)
        return await ask_one(self._client, ANY, None, request, _read)

    async def unregister_broker(self, broker: int) -> None:
        """Forget a broker that will not come back."""

        def read(response: Any) -> None:
            if response.error_code:
                raise refused(response.error_code, f"cannot forget broker {broker}", response.error_message)

        await ask_one(self._client, CONTROLLER, broker, UnregisterBrokerRequest(broker), read)


def _read(response: Any) -> ClusterDescription:
    if response.error_code:
        raise refused(response.error_code, "cannot describe the cluster", response.error_message)
    brokers = (BrokerInfo(broker.broker_id, broker.host, broker.port, broker.rack) for broker in response.brokers)
    return ClusterDescription(
        response.cluster_id,
        response.controller_id,
        tuple(sorted(brokers, key=lambda broker: broker.node_id)),
        frozenset(broker.broker_id for broker in response.brokers if broker.is_fenced),
    )
