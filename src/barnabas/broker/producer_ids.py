"""Producer ids, unique in the cluster: handed out from blocks that the controller allocates to a broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.cluster.events import AllocateProducerIds
from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.broker.app import Broker

_PATIENCE_S = 5.0  # a client waits meanwhile


class ProducerIds:
    """The rest of a block is lost when the broker stops; ids are plentiful, and never used twice."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next = self._end = 0
        self._allocating = asyncio.Lock()

    async def next(self) -> int:
        while (producer_id := self.take()) is None:
            await self.ensure()
        return producer_id

    def take(self) -> int | None:
        """An id of the block, or None if it is used up: `ensure` gets another."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    async def ensure(self) -> None:
        """Have an id at hand; COORDINATOR_LOAD_IN_PROGRESS if there is nobody to get it from."""
        async with self._allocating:
            if self._next == self._end:
                broker = self._broker
                event = AllocateProducerIds(broker.broker_id, broker.broker_epoch)
                try:
                    block = await broker.controller.submit(event, _PATIENCE_S)
                except KafkaError as error:  # what clients take for "ask again", as Kafka's brokers say it
                    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
                self._next, self._end = block.first, block.first + block.count
