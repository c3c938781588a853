"""Connections to the brokers of one cluster: one per address, opened when first needed, replaced once broken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.errors import CannotReach, NoAnswer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.net.channel import Channel, ChannelClosed, ClosedUnheard, NotKafka, UnsupportedByPeer
from barnabas.net.probe import protocol_at

if TYPE_CHECKING:
    from barnabas.core.seams import Network

DEFAULT_PORT = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(bootstrap: str) -> list[Address]:
    """`host:port` pairs between commas; a missing port is 9092, an IPv6 address stands in brackets."""
    addresses = []
    for text in filter(None, (part.strip() for part in bootstrap.split(","))):
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]"):
            host, port = text, str(DEFAULT_PORT)
        if not host or "/" in host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{text!r} is not an address of the form host:port")
        addresses.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise ValueError("no broker's address is given; expected host:port[,host:port...]")
    return addresses


class Connections:
    """Owned by one event loop. A request that fails by the network says so and leaves the retry to its caller."""

    def __init__(self, network: Network, client_id: str, connect_timeout_ms: int, request_timeout_ms: int) -> None:
        self._network = network
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._opening: dict[Address, asyncio.Task[Channel]] = {}
        self._channels: dict[Address, Channel] = {}

    def twin(self, network: Network | None = None) -> Connections:
        """The same policy for connections of another's own."""
        return Connections(
            network or self._network, self._client_id, self._connect_timeout_ms, self._request_timeout_ms
        )

    async def request(
        self,
        address: Address,
        message: Any,
        *,
        broker: str = "broker",
        highest: int | None = None,
        extra_timeout_ms: int = 0,
    ) -> Any:
        """The response to `message` in the newest version that both ends speak, `highest` at most."""
        timeout_ms = self._request_timeout_ms + extra_timeout_ms
        channel = await self._channel(address, broker)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await channel.request(message, highest=highest)
        except TimeoutError:
            channel.close()  # what it may still answer belongs to nobody
            raise _no_answer(message, address, broker, timeout_ms) from None
        except (ChannelClosed, UnsupportedByPeer) as error:
            raise _explained(error, address, broker) from error

    def call(
        self,
        address: Address,
        message: Any,
        then: Callable[[Any], None],
        *,
        broker: str = "broker",
        highest: int | None = None,
    ) -> asyncio.Future[Any]:
        """As `request`, but `then` gets the response or the error, and no task is needed while the connection is open.

        A call whose future is cancelled does not come back.
        """
        channel = self._channels.get(address)
        timer: asyncio.TimerHandle | None = None
        if channel is None or channel.closed:
            future: asyncio.Future[Any] = asyncio.ensure_future(
                self.request(address, message, broker=broker, highest=highest)
            )
        else:
            loop = asyncio.get_running_loop()
            try:
                future = channel.begin(message, highest=highest)
            except Exception as error:  # whatever it is, who asked is told in the same way
                future = loop.create_future()
                future.set_exception(error)
            timer = loop.call_later(self._request_timeout_ms / 1000, self._give_up, channel, future, message, broker)

        def ended(future: asyncio.Future[Any]) -> None:
            if timer is not None:
                timer.cancel()
            if not future.cancelled():
                error = future.exception()
                then(future.result() if error is None else _explained(error, address, broker))

        future.add_done_callback(ended)
        return future

    def _give_up(self, channel: Channel, future: asyncio.Future[Any], message: Any, broker: str) -> None:
        if not future.done():
            future.set_exception(_no_answer(message, channel.address, broker, self._request_timeout_ms))
            channel.close()  # what it may still answer belongs to nobody

    async def send(self, address: Address, message: Any, *, broker: str = "broker") -> None:
        """Send a message that is never answered."""
        channel = await self._channel(address, broker)
        try:
            await channel.send(message)
        except ChannelClosed as error:
            raise CannotReach(f"{broker} at {address}", error) from error

    async def _channel(self, address: Address, broker: str) -> Channel:
        """The open connection to `address`; callers that come while it is being opened share it."""
        channel = self._channels.get(address)
        if channel is not None and not channel.closed:
            return channel
        opening = self._opening.get(address)
        if opening is None:
            opening = self._opening[address] = asyncio.create_task(self._open(address))
            opening.add_done_callback(lambda task: self._opened(address, task))
        try:
            return await asyncio.shield(opening)
        except OSError as error:
            raise CannotReach(f"{broker} at {address}", error) from error

    async def _open(self, address: Address) -> Channel:
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                return await Channel.open(self._network, address.host, address.port, self._client_id)
        except (TimeoutError, ClosedUnheard):
            if self._channels:
                raise  # the cluster was reached before: no doubt about its addresses
            other = await protocol_at(self._network, address.host, address.port)
            if other is None:
                raise
            raise NotKafka(f"{address} speaks {other}, not Kafka's protocol") from None

    def _opened(self, address: Address, task: asyncio.Task[Channel]) -> None:
        if self._opening.get(address) is task:
            del self._opening[address]
        if not task.cancelled() and task.exception() is None:
            self._channels[address] = task.result()

    def drop(self, address: Address) -> None:
        """Give up what is under way at an address; the next request opens a new connection."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            channel.close()

    async def close(self) -> None:
        opening, self._opening = self._opening, {}  # who comes from here on must not wait for what is cancelled
        for task in opening.values():
            task.cancel()
        await asyncio.gather(*opening.values(), return_exceptions=True)
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


def _no_answer(message: Any, address: Address | str, broker: str, timeout_ms: int) -> NoAnswer:
    return NoAnswer(f"{broker} at {address}", type(message).__name__.removesuffix("Request"), timeout_ms)


def _explained(error: BaseException, address: Address, broker: str) -> BaseException:
    """What went wrong on a connection, in words for who has asked."""
    if isinstance(error, ChannelClosed):
        return CannotReach(f"{broker} at {address}", error)
    if isinstance(error, UnsupportedByPeer):
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error))
    return error
