"""Records on their way from the threads that post them to the producer's loop, in their order.

A post only adds to a list; the loop is woken by the first one and takes all that are there. When the producer has no
room the list fills, and then posts wait, for `max_block_ms` at the most. What the producer refuses (a record too large,
a value that cannot be serialised) is raised by the record's handle, or by `flush` if nobody has looked.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from barnabas.client.errors import Abandoned, BufferFull
from barnabas.client.metadata import TopicPartition
from barnabas.sync.portal import LOOK_FOR_SIGNALS_S

if TYPE_CHECKING:
    from barnabas.client.produce.delivery import Delivery as AsyncDelivery
    from barnabas.client.produce.delivery import RecordMetadata
    from barnabas.client.producer import Producer as AsyncProducer
    from barnabas.sync.portal import Portal

_MOST_WAITING = 10_000
_MOST_WAITING_BYTES = 1 << 20
_KEPT_REFUSALS = 1000


class Delivery:
    """`result()` gives where the record landed, or raises why it could not be delivered."""

    __slots__ = ("_options", "_outbox", "_posted", "_problem", "_value", "topic")

    def __init__(self, outbox: Outbox, topic: str, value: Any, options: dict[str, Any]) -> None:
        self.topic = topic
        self._outbox = outbox
        self._value = value
        self._options = options
        self._posted: AsyncDelivery | None = None
        self._problem: Exception | None = None

    @property
    def partition(self) -> TopicPartition:
        """Where it goes; the number is -1 while that is not known."""
        return TopicPartition(self.topic, -1) if self._posted is None else self._posted.partition

    @property
    def is_done(self) -> bool:
        """Whether `result` gives its answer at once."""
        return self._problem is not None or (self._posted is not None and self._posted.is_done)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait, in seconds; TimeoutError changes nothing for the record: it may still be delivered."""
        if self._posted is not None and self._posted.is_done:
            try:
                next(self._posted.__await__())
            except StopIteration as answered:  # as `await` would, but without asking the loop
                return cast("RecordMetadata", answered.value)
        return self._outbox.portal.run(self._settled(timeout))

    async def _settled(self, timeout: float | None) -> RecordMetadata:
        async with asyncio.timeout(timeout):
            while self._posted is None and self._problem is None:
                await self._outbox.drained()
            if self._problem is not None:
                self._outbox.is_told(self)
                raise self._problem
            assert self._posted is not None
            return await self._posted

    def post(self, producer: AsyncProducer) -> None:
        """On the loop; BufferFull if it has to come again."""
        self._posted = producer.post(self.topic, self._value, **self._options)
        self._value = None

    def refuse(self, problem: Exception) -> None:
        self._problem = problem
        self._value = None


class Outbox:
    def __init__(self, producer: AsyncProducer, portal: Portal, max_block_ms: int) -> None:
        self.portal = portal
        self._producer = producer
        self._max_block_s = max_block_ms / 1000
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[Delivery] = deque()
        self._waiting_bytes = 0  # of values that are bytes or text
        # The loop's own:
        self._stalled: asyncio.Task[None] | None = None
        self._refused: deque[Delivery] = deque(maxlen=_KEPT_REFUSALS)

    def put(self, topic: str, value: Any, options: dict[str, Any]) -> Delivery:
        """From any thread."""
        delivery = Delivery(self, topic, value, options)
        with self._lock:
            if not self._has_room():
                self._wait_for_room(topic)
            self._waiting.append(delivery)
            if isinstance(value, (bytes, str)):
                self._waiting_bytes += len(value)
            if len(self._waiting) == 1:
                self.portal.loop.call_soon_threadsafe(self._drain)
        return delivery

    def _wait_for_room(self, topic: str) -> None:
        deadline = time.monotonic() + self._max_block_s
        while not self._has_room():
            if time.monotonic() >= deadline:
                raise BufferFull(f"no room for a record of {topic!r} within {self._max_block_s:g} s")
            self._changed.wait(min(self._max_block_s, LOOK_FOR_SIGNALS_S))

    def _has_room(self) -> bool:
        return len(self._waiting) < _MOST_WAITING and self._waiting_bytes < _MOST_WAITING_BYTES

    # on the loop

    async def drained(self) -> None:
        """Everything that was put before is with the producer, or refused."""
        while self._stalled is not None:
            await asyncio.wait([self._stalled])

    def abandon(self) -> None:
        """Give up what is not with the producer yet."""
        if self._stalled is not None:
            self._stalled.cancel()
        for delivery in self._take():
            delivery.refuse(Abandoned())

    def is_told(self, delivery: Delivery) -> None:
        if delivery in self._refused:
            self._refused.remove(delivery)

    def raise_refused(self) -> None:
        """Raise the first refusal that nobody was told of, and count all as told."""
        refused = self._refused.popleft() if self._refused else None
        self._refused.clear()
        if refused is not None and refused._problem is not None:
            raise refused._problem

    def _take(self) -> deque[Delivery]:
        with self._lock:
            taken, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
            self._changed.notify_all()
        return taken

    def _drain(self) -> None:
        if self._stalled is None:  # otherwise that goes on with these
            taken = self._take()
            self._post(taken)
            if taken:
                self._stalled = asyncio.create_task(self._go_on(taken))

    def _post(self, deliveries: deque[Delivery]) -> None:
        """As many as there is room for; the rest stays."""
        while deliveries:
            try:
                deliveries[0].post(self._producer)
            except BufferFull:
                return
            except Exception as problem:
                self._refuse(deliveries[0], problem)
            deliveries.popleft()

    async def _go_on(self, deliveries: deque[Delivery]) -> None:
        try:
            while deliveries:
                try:
                    await self._producer.room()
                except Exception as problem:
                    self._refuse(deliveries.popleft(), problem)
                self._post(deliveries)
                deliveries = deliveries or self._take()
        except asyncio.CancelledError:
            for delivery in deliveries:
                delivery.refuse(Abandoned())
            raise
        finally:
            self._stalled = None

    def _refuse(self, delivery: Delivery, problem: Exception) -> None:
        delivery.refuse(problem)
        self._refused.append(delivery)
