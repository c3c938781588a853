"""Hands out what the fetcher has brought, and knows what the caller has moved past.

A record is *given* when the caller gets it, and *passed* when the caller comes back for more. A commit by call covers
what is given, for the caller says when it is done; automatic commits cover only what is passed. Nothing is noted per
record: the place inside a chunk is asked of the iterator that the caller's loop runs over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from barnabas.client.consume.consumer_errors import CorruptRecords
from barnabas.client.consume.positions import PartitionState, Reading
from barnabas.client.group.values import OffsetAndMetadata
from barnabas.records.batch import CorruptBatch

if TYPE_CHECKING:
    from barnabas.client.consume.chunks import Chunk
    from barnabas.client.consume.fetcher import Fetcher
    from barnabas.client.metadata import TopicPartition
    from barnabas.core.seams import Clock

T = TypeVar("T")
Offsets = dict["TopicPartition", OffsetAndMetadata]

_SIGN_OF_LIFE_SECONDS = 0.5
"""How often a caller that waits is attended to: its group must not take it for one that never comes back."""


class Reader:
    """One caller at a time reads. `attend` is what has to be seen to before more is handed out."""

    def __init__(self, fetcher: Fetcher, clock: Clock, attend: Callable[[], Awaitable[None]]) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._attend = attend
        self._current: PartitionState | None = None
        self._gives_one_by_one = False
        self._held: dict[TopicPartition, int] = {}
        self._waiting = False

    # the caller comes for more

    async def one_by_one(self) -> Reading:
        """Records of which the caller takes one at a time: each is passed when the next is taken."""
        self._come_back()
        reading = await self._next_reading(None)
        assert reading is not None
        self._gives_one_by_one = True
        return reading

    async def several(self, timeout_ms: int) -> Reading | None:
        """Records of which the caller takes several at once; tell with `holds` from where on."""
        self._come_back()
        return await self._next_reading(timeout_ms)

    def more(self) -> Reading | None:
        """More of them, if there are any at hand."""
        try:
            return self._take_reading()
        except CorruptRecords:
            return None  # told to who comes next

    async def chunk(self, timeout_ms: int | None) -> tuple[PartitionState, Chunk] | None:
        """A whole chunk, which is passed when the caller comes back."""
        self._come_back()
        self.set_aside()
        await asyncio.sleep(0)
        taken = await self._wait_for(self._fetcher.take, timeout_ms)
        if taken is not None:
            state, chunk = taken
            self.holds(state, chunk.from_offset)
        return taken

    def holds(self, state: PartitionState, offset: int) -> None:
        self._held.setdefault(state.partition, offset)

    def _come_back(self) -> None:
        if self._waiting:
            raise RuntimeError("another task waits for records of this consumer; let one task read, or make several")
        self._held.clear()
        self._gives_one_by_one = False

    async def _next_reading(self, timeout_ms: int | None) -> Reading | None:
        if self._current is None or self._current.reading is None or not self._current.reading.left:
            await asyncio.sleep(0)  # the loop gets its turn, also if the caller never waits
        return await self._wait_for(self._take_reading, timeout_ms)

    async def _wait_for(self, take: Callable[[], T | None], timeout_ms: int | None) -> T | None:
        deadline = None if timeout_ms is None else self._clock.monotonic() + timeout_ms / 1000
        self._waiting = True
        try:
            while True:
                await self._attend()
                taken = take()
                if taken is not None:
                    return taken
                left = None if deadline is None else deadline - self._clock.monotonic()
                if left is not None and left <= 0:
                    return None
                await self._fetcher.wait(_SIGN_OF_LIFE_SECONDS if left is None else min(left, _SIGN_OF_LIFE_SECONDS))
        finally:
            self._waiting = False

    def _take_reading(self) -> Reading | None:
        """What is left of the current chunk, or the next one. Nothing waits from here to the caller."""
        while True:
            if self._current is None:
                taken = self._fetcher.take()
                if taken is None:
                    return None
                self._current, chunk = taken
                self._current.reading = Reading(self._current, chunk)
            reading = self._current.reading
            try:
                if reading is not None and (reading.left or reading.advance()):
                    return reading
            except CorruptBatch as error:
                assert reading is not None
                position, partition = reading.position, reading.state.partition
                self.set_aside()
                raise CorruptRecords(partition, position, error) from error
            self._current.set_aside()
            self._current = None

    # what is known of the caller's place

    def set_aside(self) -> None:
        """Let the caller's loop over the current chunk end after the record that it has; the rest is buffered again."""
        state = self._current
        if state is None or state.reading is None:
            return
        if self._gives_one_by_one:
            self.holds(state, state.reading.last_given)
        self._current = None
        state.set_aside()
        if state.chunks:
            self._fetcher.put_back(state)

    def forget(self, partition: TopicPartition) -> None:
        """The place of a partition was changed by the caller: what it has of the old one counts no more."""
        self._held.pop(partition, None)

    def given(self) -> Offsets:
        """Behind all records that the caller has got."""
        return {
            partition: OffsetAndMetadata(state.position, leader_epoch=state.epoch)
            for partition, state in self._fetcher.states.items()
            if state.position is not None
        }

    def passed(self) -> Offsets:
        """Behind all records that the caller has got and came back for."""
        offsets = self.given()
        current = self._current
        if self._gives_one_by_one and current is not None and current.reading is not None:
            offsets[current.partition] = OffsetAndMetadata(current.reading.last_given)
        for partition, offset in self._held.items():
            if partition in offsets:
                offsets[partition] = OffsetAndMetadata(offset)
        return offsets
