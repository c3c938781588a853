"""Producer ids, unique in the cluster: handed out from blocks that the controller allocates to a broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.cluster.controller import AllocateProducerIds

if TYPE_CHECKING:
    from barnabas.cluster.metadata_log import MetadataLog


class ProducerIds:
    """The rest of a block is lost when the broker stops; ids are plentiful, and never used twice."""

    def __init__(self, metadata: MetadataLog, broker_id: int) -> None:
        self._metadata = metadata
        self._broker_id = broker_id
        self._next = self._end = 0
        self._allocating = asyncio.Lock()

    async def next(self) -> int:
        async with self._allocating:
            if self._next == self._end:
                block = await self._metadata.submit(AllocateProducerIds(self._broker_id))
                self._next, self._end = block.start, block.end
            self._next += 1
            return self._next - 1
