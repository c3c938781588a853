"""The controller as a broker reaches it: here, if this broker is the controller, else over the inter-broker listener.

Whoever asks need not know who the controller is, nor that it has just died: a question is put again to the next one
until there is an answer, or the time that the asker has is over. A connection may break after the controller has
carried out what it was asked, so what is asked must bear being asked twice, as with Kafka's own brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.cluster.events import AlterPartition, BrokerHeartbeat, CreateTopics, Event, RegisterBroker, Reply
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.net.channel import Channel

if TYPE_CHECKING:
    from barnabas.broker.alter_partitions import AlterPartitions
    from barnabas.broker.sessions import Sessions
    from barnabas.cluster.image import Endpoint
    from barnabas.cluster.metadata_log import MetadataLog
    from barnabas.core.seams import Network

T = TypeVar("T")

FORWARDED = "barnabas-forwarded"
"""The client id under which requests of clients are passed on; who gets one answers it or refuses, but never passes
it on again, or two brokers that each take the other for the controller would do so for ever."""

PATIENCE_S = 30.0  # of those who have no time-out of their own
_CONNECT_TIMEOUT_S = 5.0
_SIGN_OF_LIFE_TIMEOUT_S, _ANSWER_TIMEOUT_S = 2.5, PATIENCE_S / 2  # so that whoever asks may ask once more
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.25


class ControllerAway(Exception):
    """Nobody is the controller at the moment, or it cannot be reached."""


class ControllerLink:
    """One connection to whoever is the controller; a question that is open when that changes has no answer.

    A connection on which an answer is overdue may be lost without a word, so it is given up.
    """

    def __init__(
        self, network: Network, metadata: MetadataLog, listener: str, client_id: str, timeout_s: float
    ) -> None:
        self._timeout_s = timeout_s
        self._network = network
        self._metadata = metadata
        self._listener = listener
        self._client_id = client_id
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._open_for: tuple[int, Endpoint] | None = None
        metadata.watch_controller(self._controller_changed)

    async def request(self, message: Any, version: int) -> Any:
        try:
            channel = await self._connected()
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await channel.request(message, version)
            except TimeoutError:
                channel.close()
                raise
        except OSError as error:
            raise ControllerAway(str(error)) from error

    async def _connected(self) -> Channel:
        async with self._opening:
            wanted = self._controller()
            if self._channel is None or self._channel.closed or self._open_for != wanted:
                self.close()
                epoch, endpoint = wanted
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    channel = await Channel.open(self._network, endpoint.host, endpoint.port, self._client_id)
                if epoch != self._metadata.controller_epoch:
                    channel.close()
                    raise ControllerAway("the controller has changed")
                self._channel, self._open_for = channel, wanted
            return self._channel

    def _controller(self) -> tuple[int, Endpoint]:
        metadata = self._metadata
        broker = metadata.image.brokers.get(metadata.controller_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        if endpoint is None:
            raise ControllerAway(
                "no broker is the controller at the moment"
                if broker is None
                else f"broker {broker.id}, the controller, has no listener {self._listener}"
            )
        return metadata.controller_epoch, endpoint

    def _controller_changed(self) -> None:
        if self._open_for is not None and self._open_for[0] != self._metadata.controller_epoch:
            self.close()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = self._open_for = None


class ControllerClient:
    """Owned by the broker's loop."""

    def __init__(self, metadata: MetadataLog, sessions: Sessions, network: Network, listener: str) -> None:
        self.cluster_id = ""
        self._metadata = metadata
        self._sessions = sessions
        name = f"barnabas-broker-{metadata.broker_id}"
        # An answer that takes its time must not hold up a sign of life, so each kind has a connection of its own.
        self._heartbeats = ControllerLink(network, metadata, listener, name, _SIGN_OF_LIFE_TIMEOUT_S)
        self._events = ControllerLink(network, metadata, listener, name, _ANSWER_TIMEOUT_S)
        self._forwarded = ControllerLink(network, metadata, listener, FORWARDED, _ANSWER_TIMEOUT_S)
        self._alterations: AlterPartitions | None = None
        self._links = {
            RegisterBroker: self._heartbeats,
            BrokerHeartbeat: self._heartbeats,
            CreateTopics: self._forwarded,
        }

    async def submit(self, event: Event[Reply], patience_s: float = PATIENCE_S) -> Reply:
        """The controller's reply; KafkaError if the event is refused, or REQUEST_TIMED_OUT if nobody answers."""

        def ask() -> Awaitable[Reply]:
            return self.decide(event) if self._metadata.is_controller else self._speak(event)

        return await self.persist(ask, patience_s)

    async def decide(self, event: Event[Reply]) -> Reply:
        """The reply of this broker as the controller; NOT_CONTROLLER if it is none."""
        if isinstance(event, BrokerHeartbeat):
            return await self._sessions.heartbeat(event)  # type: ignore[return-value]
        return await self._metadata.submit(event)

    async def _speak(self, event: Event[Reply]) -> Reply:
        # Imported here, because a broker that is its own controller has no use for the requests.
        if isinstance(event, AlterPartition):
            if self._alterations is None:
                from barnabas.broker.alter_partitions import AlterPartitions

                self._alterations = AlterPartitions(self._events.request)
            return await self._alterations.ask(event)  # type: ignore[return-value]
        from barnabas.broker.controller_requests import SPEECHES

        speech = SPEECHES[type(event)]
        link = self._links.get(type(event), self._events)
        response = await link.request(speech.request(event, self.cluster_id), speech.version)
        reply: Reply = speech.reply(response)
        return reply

    async def forward(self, request: Any, version: int) -> Any:
        """The controller's response to a client's request; ControllerAway if there is none."""
        return await self._forwarded.request(request, version)

    async def persist(self, ask: Callable[[], Awaitable[T]], patience_s: float, *, once: bool = False) -> T:
        """Ask until somebody answers who is the controller; `once`: NOT_CONTROLLER is an answer too."""
        problem = ""
        try:
            async with asyncio.timeout(patience_s):
                for pause_s in _pauses():
                    try:
                        return await ask()
                    except ControllerAway as away:
                        problem = str(away)
                    except KafkaError as error:
                        if once or error.code is not ErrorCode.NOT_CONTROLLER:
                            raise
                        problem = str(error)
                    await asyncio.sleep(pause_s)
        except TimeoutError:
            pass
        if self._metadata.trouble:
            problem = f"the metadata store is out of reach ({self._metadata.trouble})"
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"no controller has answered within {patience_s:g} s: {problem or 'it is busy'}",
        )

    def close(self) -> None:
        if self._alterations is not None:
            self._alterations.close()
        for link in (self._heartbeats, self._events, self._forwarded):
            link.close()


def _pauses() -> Iterator[float]:
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
