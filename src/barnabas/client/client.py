"""One cluster as a client sees it: connections, metadata, and the policy of time-outs and retries.

Producer, consumer and the admin calls stand on it and may share one. Network, clock and randomness are arguments;
`connect` hands in the machine's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Self, TypeVar

from barnabas.client.connections import Connections, parse_addresses
from barnabas.client.errors import CannotReach
from barnabas.client.metadata import BrokerInfo, Metadata
from barnabas.core.clock import SystemClock
from barnabas.core.errors import KafkaError
from barnabas.net.sockets import TcpNetwork

if TYPE_CHECKING:
    from barnabas.core.seams import Clock, Network

T = TypeVar("T")
_FIRST_BACKOFF_MS = 50
_LAST_BACKOFF_MS = 1000


class Client:
    """Owned by one event loop; entering it reaches a broker once, so that a wrong address shows at the start."""

    def __init__(
        self,
        bootstrap: str,
        *,
        network: Network,
        clock: Clock,
        random: Random,
        client_id: str = "barnabas",
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        retry_timeout_ms: int = 30_000,
        group_thread: bool = True,
    ) -> None:
        """`group_thread` gives group members a thread of their own; the simulation has no threads."""
        self.clock = clock
        self.random = random
        self._new_connections = partial(Connections, network, client_id, connect_timeout_ms, request_timeout_ms)
        self.connections = self._new_connections()
        self.metadata = Metadata(self.connections, parse_addresses(bootstrap), random)
        self.retry_timeout_ms = retry_timeout_ms
        self.group_thread = group_thread

    def twin(self, network: Network | None = None) -> Client:
        """A second client of this cluster with connections of its own; `network` may belong to another loop."""
        other = copy(self)
        other.connections = self.connections.twin(network)
        other.metadata = Metadata(other.connections, self.metadata.known_addresses(), self.random)
        return other

    async def __aenter__(self) -> Self:
        try:
            await self.metadata.refresh([])
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.connections.close()

    def separate_connections(self) -> Connections:
        """For requests that wait at a broker for long: whatever follows them on the same connection waits too."""
        return self._new_connections()

    async def ask(
        self, broker: BrokerInfo, message: Any, *, highest: int | None = None, extra_timeout_ms: int = 0
    ) -> Any:
        """Send to one broker; when it cannot be reached, who leads what is asked anew."""
        try:
            return await self.connections.request(
                broker.address,
                message,
                broker=f"broker {broker.node_id}",
                highest=highest,
                extra_timeout_ms=extra_timeout_ms,
            )
        except CannotReach:
            self.metadata.forget(list(self.metadata.cluster.topics))
            raise

    def call(
        self, broker: BrokerInfo, message: Any, then: Callable[[Any], None], *, highest: int | None = None
    ) -> asyncio.Future[Any]:
        """As `ask`, for who wants to be called back with the response, or the error."""

        def told(outcome: Any) -> None:
            if isinstance(outcome, CannotReach):
                self.metadata.forget(list(self.metadata.cluster.topics))
            then(outcome)

        return self.connections.call(broker.address, message, told, broker=f"broker {broker.node_id}", highest=highest)

    async def send(self, broker: BrokerInfo, message: Any) -> None:
        """Send to one broker what is never answered."""
        await self.connections.send(broker.address, message, broker=f"broker {broker.node_id}")

    async def retrying(self, attempt: Callable[[], Awaitable[T]], *, timeout_ms: int | None = None) -> T:
        """Repeat what fails in a way that may pass, with growing pauses, until the time for retries is over."""
        deadline = self.clock.monotonic() + (self.retry_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        tries = 0
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                pause = self.backoff_seconds(tries)
                if not error.code.retriable or self.clock.monotonic() + pause > deadline:
                    raise
            tries += 1
            await asyncio.sleep(pause)

    def backoff_seconds(self, tries: int) -> float:
        """How long to wait after so many failures: doubling, bounded, and never in step with other clients."""
        ceiling = min(_FIRST_BACKOFF_MS << min(tries, 10), _LAST_BACKOFF_MS)
        return ceiling * self.random.uniform(0.8, 1.2) / 1000


def connect(
    bootstrap: str,
    *,
    client_id: str = "barnabas",
    connect_timeout_ms: int = 10_000,
    request_timeout_ms: int = 30_000,
    retry_timeout_ms: int = 30_000,
) -> Client:
    """A client on the running loop with the machine's own network, clock and randomness."""
    return Client(
        bootstrap,
        network=TcpNetwork(asyncio.get_running_loop()),
        clock=SystemClock(),
        random=Random(),
        client_id=client_id,
        connect_timeout_ms=connect_timeout_ms,
        request_timeout_ms=request_timeout_ms,
        retry_timeout_ms=retry_timeout_ms,
    )
