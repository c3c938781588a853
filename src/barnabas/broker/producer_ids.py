"""Producer ids, unique in the cluster: handed out from blocks that the controller allocates to a broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.cluster.events import AllocateProducerIds

if TYPE_CHECKING:
    from barnabas.broker.app import Broker


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
        """Have an id at hand."""
        async with self._allocating:
            if self._next == self._end:
                broker = self._broker
                block = await broker.controller.submit(AllocateProducerIds(broker.broker_id, broker.broker_epoch))
                self._next, self._end = block.first, block.first + block.count
