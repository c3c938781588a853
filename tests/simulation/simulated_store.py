"""A broker's session with the metadata store, which ends with its process, may be cut off, and expires if that lasts.

Whoever is cut off gets no answer: calls fail, and whether an append was carried out is not known. The store learns at
once of a process that was killed, but of a machine without power only when the session has expired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import Context

from barnabas.coordination.memory import Faults, MemoryMetadata, MemoryStore
from barnabas.coordination.store import Answer, StoreUnavailable, Unknown

SESSION_S = 10.0
LATE, LATE_S = 0.15, 6.0  # so many watches, by so much
ANSWER_S = 1.0  # how long an answer is waited for


class SimulatedStore(MemoryStore):
    def __init__(
        self, metadata: MemoryMetadata, broker_id: int, faults: Faults, loop: asyncio.AbstractEventLoop, is_cut: bool
    ) -> None:
        super().__init__(metadata, broker_id, faults)
        self._loop = loop
        self._truth = metadata
        self._is_cut = is_cut
        self._is_open = False
        self._is_expired = False

    async def open(self) -> None:
        while not self._is_open:
            try:
                await super().open()
                self._is_open = True
            except StoreUnavailable:
                await asyncio.sleep(ANSWER_S)

    async def append(self, epoch: int, index: int, append_id: bytes, records: Sequence[bytes]) -> Answer:
        try:
            return await super().append(epoch, index, append_id, records)
        except StoreUnavailable as error:
            return Unknown(str(error))

    async def snapshot(self, epoch: int, index: int, chunks: Sequence[bytes]) -> Answer:
        try:
            return await super().snapshot(epoch, index, chunks)
        except StoreUnavailable as error:
            return Unknown(str(error))

    async def _delay(self) -> None:
        await super()._delay()
        if self._is_cut:
            await asyncio.sleep(ANSWER_S)
        if self._is_cut:
            raise StoreUnavailable("the store does not answer")

    async def watch(self) -> None:
        """Now and then the news come late, as they may: a controller may not know yet that there is another."""
        await super().watch()
        if self._faults.max_delay_s and self._faults.rng.random() < LATE:
            await asyncio.sleep(self._faults.rng.random() * LATE_S)

    # faults

    def cut(self) -> None:
        self._is_cut = True
        self._loop.call_later(SESSION_S, self._expire, context=Context())

    def mend(self) -> None:
        self._is_cut = False
        if self._is_expired:
            self._is_expired = False
            self._truth.join(self)
        self.wake()

    def _expire(self) -> None:
        if self._is_cut and self._is_open:
            self._is_expired = True
            self._truth.leave(self)

    def abandon(self, power_cut: bool) -> None:
        self._is_open = False
        if power_cut:
            self._loop.call_later(SESSION_S, self._give_up, self._truth.claim, context=Context())
        else:
            self.crash()

    def _give_up(self, claim: object) -> None:
        if self._truth.claim == claim:  # else the claim may be that of the next session of the same broker
            self.crash()
