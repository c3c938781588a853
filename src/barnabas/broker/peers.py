"""Questions to other brokers, on the inter-broker listener: one connection to each, kept for the next question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.net.channel import Channel, UnsupportedByPeer

if TYPE_CHECKING:
    from barnabas.core.seams import Network

Address = tuple[str, int]

_CONNECT_TIMEOUT_S = 5.0
_ANSWER_TIMEOUT_S = 30.0


class Peers:
    """Owned by the broker's loop. `address_of` tells where a registered broker listens for others."""

    def __init__(self, network: Network, address_of: Callable[[int], Address | None], client_id: str) -> None:
        self._network = network
        self._address_of = address_of
        self._client_id = client_id
        self._channels: dict[int, tuple[Address, Channel]] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    async def request(self, broker_id: int, message: Any, version: int) -> Any:
        """The broker's response. OSError if it cannot be reached or does not answer: it may have done as it was asked.

        A connection on which an answer is overdue may be lost without a word, so it is given up.
        """
        channel = await self._connected(broker_id)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                return await channel.request(message, version)
        except TimeoutError:
            channel.close()
            raise

    async def _connected(self, broker_id: int) -> Channel:
        address = self._address_of(broker_id)
        if address is None:
            raise ConnectionError(f"broker {broker_id} is not registered")
        async with self._opening.setdefault(broker_id, asyncio.Lock()):
            known, channel = self._channels.get(broker_id, (None, None))
            if channel is None or channel.closed or known != address:
                if channel is not None:
                    channel.close()
                try:
                    async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                        channel = await Channel.open(self._network, *address, self._client_id)
                except UnsupportedByPeer as error:
                    raise ConnectionError(str(error)) from error
                self._channels[broker_id] = (address, channel)
            return channel

    def close(self) -> None:
        for _, channel in self._channels.values():
            channel.close()
        self._channels.clear()
