"""The way of fetch requests to brokers: connections of their own, and on each a fetch session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barnabas.client.consume.fetch_sessions import SESSION_ERRORS, FetchSession
from barnabas.client.errors import refused

if TYPE_CHECKING:
    from barnabas.client.client import Client
    from barnabas.client.consume.fetch_options import FetchOptions
    from barnabas.client.consume.positions import PartitionState
    from barnabas.client.metadata import BrokerInfo, TopicPartition


class FetchChannel:
    """At most one request per broker at a time."""

    def __init__(self, client: Client, options: FetchOptions) -> None:
        self._metadata = client.metadata
        self._options = options
        self._connections = client.separate_connections()
        self._sessions: dict[int, FetchSession] = {}

    async def fetch(
        self, broker: BrokerInfo, states: Sequence[PartitionState]
    ) -> tuple[list[tuple[TopicPartition, Any]], int]:
        """What is new in these partitions, and for how many milliseconds the broker wants to be left in peace."""
        session = self._sessions.get(broker.node_id)
        if session is None:
            session = self._sessions[broker.node_id] = FetchSession(self._metadata, self._options)
        for _ in range(2):
            request = session.plan(states)
            try:
                response = await self._connections.request(
                    broker.address,
                    request,
                    broker=f"broker {broker.node_id}",
                    highest=session.highest_version,
                    extra_timeout_ms=self._options.fetch_max_wait_ms,
                )
            except BaseException:
                session.lost()
                raise
            if not response.error_code:
                return list(session.answered(response)), response.throttle_time_ms
            session.lost(unknown=True)
            if response.error_code not in SESSION_ERRORS or not request.session_epoch:
                break
        raise refused(response.error_code, f"fetch from broker {broker.node_id}")

    def drop(self, broker: BrokerInfo) -> None:
        """Give up the request that is under way; the next one has a new connection, not to wait behind it."""
        self._connections.drop(broker.address)

    async def close(self) -> None:
        await self._connections.close()
