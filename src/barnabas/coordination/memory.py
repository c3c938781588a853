"""A metadata store in memory, for the simulation and for tests.

`MemoryMetadata` is the truth; it lives outside of every broker and so survives their crashes. A `MemoryStore` is one
broker's session with it. With `Faults`, calls take time, appends sometimes answer Unknown (done, not done, or done a
little later) and watches come late, all from one random source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from barnabas.coordination.store import (
    Answer,
    Batch,
    Claim,
    Done,
    Refusal,
    Refused,
    Snapshot,
    Trimmed,
    Unknown,
    check_append,
)
from barnabas.core.dataclass import dataclass

_BATCHES_PER_READ = 64


@dataclass(frozen=True, slots=True)
class Faults:
    rng: Random
    unknown: float = 0.0
    """The share of appends and snapshots that answer Unknown."""
    max_delay_s: float = 0.0
    """Calls, watches and writes that land late take up to this long."""


class MemoryMetadata:
    """The store itself: every method is one atomic step."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.claim = Claim(0, None)
        self.next_index = 0
        self.latest_snapshot: Snapshot | None = None
        self._batches: list[Batch] = []
        self._first_index = 0
        self._sessions: list[MemoryStore] = []

    def join(self, session: MemoryStore) -> None:
        self._sessions.append(session)

    def leave(self, session: MemoryStore) -> None:
        """The session is over, for whatever reason, and what it claimed is free."""
        if session not in self._sessions:
            return
        self._sessions.remove(session)
        if self.claim.holder == session.broker_id:
            self.claim = Claim(self.claim.epoch, None)
            self._wake()

    def campaign(self, candidate: int, after_epoch: int, gone: int | None) -> int | None:
        if self.claim.epoch != after_epoch or self.claim.holder not in (None, candidate, gone):
            return None
        self.claim = Claim(after_epoch + 1, candidate)
        self._wake()
        return self.claim.epoch

    def append(self, epoch: int, index: int, append_id: bytes, records: tuple[bytes, ...]) -> Answer:
        if epoch != self.claim.epoch:
            return Refused(Refusal.STALE_EPOCH)
        if index != self.next_index:
            return Refused(Refusal.INDEX_MOVED)
        batch = Batch(index, epoch, append_id, records)
        self._batches.append(batch)
        self.next_index = batch.next_index
        self._wake()
        return Done(self.next_index)

    def read(self, from_index: int) -> list[Batch] | Trimmed:
        if from_index < self._first_index:
            return Trimmed(self._first_index)
        return [batch for batch in self._batches if batch.index >= from_index][:_BATCHES_PER_READ]

    def snapshot(self, epoch: int, index: int, chunks: tuple[bytes, ...]) -> Answer:
        if epoch != self.claim.epoch:
            return Refused(Refusal.STALE_EPOCH)
        if not self._first_index <= index <= self.next_index:
            return Refused(Refusal.INDEX_MOVED)
        self.latest_snapshot = Snapshot(index, chunks)
        self._batches = [batch for batch in self._batches if batch.index >= index]
        self._first_index = index
        return Done(self.next_index)

    def _wake(self) -> None:
        for session in self._sessions:
            session.wake()


class MemoryStore:
    def __init__(self, metadata: MemoryMetadata, broker_id: int, faults: Faults | None = None) -> None:
        self.broker_id = broker_id
        self._metadata = metadata
        self._faults = faults or Faults(Random(0))
        self._changed = asyncio.Event()

    async def open(self) -> None:
        await self._delay()
        self._metadata.join(self)
        self._changed.set()

    async def cluster_id(self, proposed: str) -> str:
        await self._delay()
        if self._metadata.cluster_id is None:
            self._metadata.cluster_id = proposed
        return self._metadata.cluster_id

    async def claim(self) -> Claim:
        await self._delay()
        return self._metadata.claim

    async def campaign(self, after_epoch: int, gone: int | None = None) -> int | None:
        await self._delay()
        return self._metadata.campaign(self.broker_id, after_epoch, gone)

    async def append(self, epoch: int, index: int, append_id: bytes, records: Sequence[bytes]) -> Answer:
        check_append(records)
        await self._delay()
        faults, batch = self._faults, tuple(records)
        if faults.rng.random() >= faults.unknown:
            answer = self._metadata.append(epoch, index, append_id, batch)
            await self._delay()
            return answer
        match faults.rng.choice(("done", "lost", "late")):
            case "done":
                self._metadata.append(epoch, index, append_id, batch)
            case "late":
                delay_s = faults.rng.uniform(0, faults.max_delay_s)
                loop = asyncio.get_running_loop()
                loop.call_later(delay_s, self._metadata.append, epoch, index, append_id, batch)
        return Unknown("the answer was lost")

    async def read(self, from_index: int) -> list[Batch] | Trimmed:
        await self._delay()
        return self._metadata.read(from_index)

    async def snapshot(self, epoch: int, index: int, chunks: Sequence[bytes]) -> Answer:
        await self._delay()
        lost = self._faults.rng.random() < self._faults.unknown
        answer = self._metadata.snapshot(epoch, index, tuple(chunks))
        return Unknown("the answer was lost") if lost else answer

    async def latest_snapshot(self) -> Snapshot | None:
        await self._delay()
        return self._metadata.latest_snapshot

    async def watch(self) -> None:
        await self._changed.wait()
        self._changed.clear()
        await self._delay()

    def wake(self) -> None:
        self._changed.set()

    def crash(self) -> None:
        """What the store sees when the broker's process dies."""
        self._metadata.leave(self)

    async def close(self) -> None:
        self._metadata.leave(self)

    async def _delay(self) -> None:
        await asyncio.sleep(self._faults.rng.uniform(0, self._faults.max_delay_s) if self._faults.max_delay_s else 0)
