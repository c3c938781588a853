"""What a caller holds after posting a record: a handle that tells where it landed, or why it did not.

A handle is light, for there is one per record: it points to the record's batch, and only who awaits it gets a future. A
batch that was too large for the broker is split; its handles then find their record in the parts. A batch that failed
remembers how many of its handles have raised the error, so that a failure that nobody saw can still be reported.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.errors import NotDelivered
from barnabas.client.metadata import TopicPartition
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.records import engine

if TYPE_CHECKING:
    from barnabas.records.append_codec import Handle

_TOLD = -1  # in place of a delta: this handle has raised its error once
_KEPT_FAILURES = 1000


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record landed; the offset is -1 where the broker did not tell (acks=0, a duplicate long gone)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Appended(NamedTuple):
    """A leader's answer for one batch; the time is -1 unless the topic stamps records itself."""

    base_offset: int = -1
    log_append_time_ms: int = -1


class Moved(NamedTuple):
    """The records are elsewhere: each part holds those from its first delta on, up to the next part's."""

    parts: tuple[tuple[int, Pending], ...]


class Pending:
    """Records with one fate: a batch, or what waits to get into one."""

    __slots__ = ("_waiters", "error", "is_done", "is_moved", "outcome", "partition", "unseen")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_done = False
        self.is_moved = False
        self.outcome: Appended | Moved | None = None
        self.error: KafkaError | None = None
        self.unseen = 0
        """How many of its records failed without anybody having been told."""
        self._waiters: list[asyncio.Future[None]] = []

    def complete(self, outcome: Appended | Moved) -> None:
        if not self.is_done:
            self.outcome, self.is_moved = outcome, isinstance(outcome, Moved)
            self._settle()

    def fail(self, error: KafkaError, record_count: int) -> None:
        """All its handles raise `error` from now on."""
        if not self.is_done:
            self.error, self.unseen = error, record_count
            self._settle()

    def _settle(self) -> None:
        self.is_done = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def settled(self) -> None:
        """Wait until its fate is decided."""
        if self.is_done:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if not self.is_done:
                self._waiters.remove(waiter)

    # what its handles ask

    def holder_of(self, handle: Delivery) -> Pending:
        """What holds the handle's record now; if that is not this any more, the handle remembers."""
        pending: Pending = self
        while pending.is_moved:
            moved, delta = pending.outcome, handle.delta
            assert isinstance(moved, Moved)
            first, pending = next(part for part in reversed(moved.parts) if part[0] <= delta)
            handle.pending, handle.delta = pending, delta - first
        return pending

    def answer(self, handle: Delivery) -> Generator[Any, None, RecordMetadata]:
        """What awaiting the handle gives."""
        while not (pending := handle.pending.holder_of(handle)).is_done:
            yield from pending.settled().__await__()
        if pending.error is not None:
            if handle.delta != _TOLD:
                handle.delta = _TOLD
                pending.unseen -= 1
            raise pending.error.with_traceback(None)  # one error for many handles: none shows another's way
        appended = pending.outcome
        assert isinstance(appended, Appended)
        topic, partition = pending.partition
        offset = -1 if appended.base_offset < 0 else appended.base_offset + handle.delta
        stamped = appended.log_append_time_ms
        return RecordMetadata(topic, partition, offset, handle.timestamp_ms if stamped < 0 else stamped)


if TYPE_CHECKING:

    class Delivery(Handle):
        """Awaited, it gives where the record landed, or raises why it could not be delivered.

        A wait that is cancelled changes nothing for the record: it may still be delivered.
        """

        @staticmethod
        def of(pending: object, delta: int, timestamp_ms: int) -> Delivery: ...

        @property
        def topic(self) -> str: ...

        @property
        def partition(self) -> TopicPartition:
            """Where it goes; the number is -1 while the topic is not known."""

        @property
        def is_done(self) -> bool:
            """Whether awaiting it gives its answer at once."""

        def __await__(self) -> Generator[Any, None, RecordMetadata]: ...

else:
    Delivery = engine.append_codec.Handle  # made by the codec, for there is one per record


class Failures:
    """What could not be delivered, until somebody has been told: whoever awaits the handle, or whoever flushes."""

    def __init__(self) -> None:
        self._failed: deque[Pending] = deque()
        self._forgotten = 0
        self._first: KafkaError | None = None

    def add(self, failed: Pending) -> None:
        self._failed.append(failed)
        if len(self._failed) > _KEPT_FAILURES:
            self._failed = deque(pending for pending in self._failed if pending.unseen)
        if len(self._failed) > _KEPT_FAILURES:  # nobody looks: the number and the first reason must do
            oldest = self._failed.popleft()
            self._first = self._first or oldest.error
            self._forgotten += oldest.unseen

    def raise_unseen(self) -> None:
        """Raise what nobody was told yet, and count it as told."""
        unseen = [pending for pending in self._failed if pending.unseen]
        count = self._forgotten + sum(pending.unseen for pending in unseen)
        first = self._first or next((pending.error for pending in unseen), None)
        self.clear()
        if first is not None:
            raise NotDelivered(first, count)

    def clear(self) -> None:
        """Count everything as told."""
        self._failed.clear()
        self._forgotten, self._first = 0, None
