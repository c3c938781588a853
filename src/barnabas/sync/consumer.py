"""The consumer without async.

    with Consumer("localhost:9092", topics=["orders"], group="billing") as consumer:
        for record in consumer:
            ...

Iterating hands records over some hundreds at a time: only the first of them waits for the loop. Threads that read take
turns, and each record goes to one of them.
"""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from barnabas.client.consume.consumed import ConsumerBatch, ConsumerRecord
from barnabas.client.consumer import Consumer as AsyncConsumer
from barnabas.client.metadata import TopicPartition
from barnabas.client.options import WrongOption
from barnabas.sync.facade import Client, does, options_of, waits
from barnabas.sync.portal import in_callers_thread

_CALLBACKS = ("on_assigned", "on_revoked", "on_lost")
Callback = Callable[[list[TopicPartition]], Any]


class Consumer(Client[AsyncConsumer]):
    """As `barnabas.Consumer`; its callbacks are plain functions, called in the thread that reads."""

    @options_of(AsyncConsumer)
    def __init__(self, cluster: str, **options: Any) -> None:
        for name in _CALLBACKS:
            if options.get(name) is not None:
                options[name] = _from_the_loop(name, options[name])
        super().__init__(AsyncConsumer(cluster, **options), cluster)
        self._turn = threading.RLock()
        self._unclaimed_records: deque[list[ConsumerRecord]] = deque()
        self._unclaimed_batches: deque[ConsumerBatch | None] = deque()

    # reading

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record after record, without end. Each is moved past when the next one is asked for."""
        while True:
            yield from self.at_hand()

    def at_hand(self) -> Iterator[ConsumerRecord]:
        """Wait for records, and iterate over some that have come in: each is moved past when the next one is taken."""
        with self._turn:
            return self._run(self._async.at_hand())

    def poll(self, timeout_ms: int = 500, max_records: int | None = None) -> list[ConsumerRecord]:
        """Up to `max_records` that have come in; an interrupted call loses nothing: the next one has its records."""
        with self._turn:
            if self._unclaimed_records:
                return self._unclaimed_records.popleft()
            return self._run(self._async.poll(timeout_ms, max_records), self._unclaimed_records.append)

    def poll_batch(self, timeout_ms: int | None = 500) -> ConsumerBatch | None:
        """The next batch, which is of one partition; it is moved past by the next call. None if none comes in time."""
        with self._turn:
            if self._unclaimed_batches:
                return self._unclaimed_batches.popleft()
            return self._run(self._async.poll_batch(timeout_ms), self._unclaimed_batches.append)

    def batches(self, *, commit: bool = False) -> Iterator[ConsumerBatch]:
        """Batch after batch, without end; with `commit`, each is committed before the next one comes."""
        while True:
            batch = self.poll_batch(None)
            assert batch is not None
            yield batch
            if commit:
                self.commit({batch.partition: batch.next_offset})

    metrics = does(AsyncConsumer.metrics)

    # places

    assign = does(AsyncConsumer.assign)
    assign_at = waits(AsyncConsumer.assign_at)
    unassign = does(AsyncConsumer.unassign)
    assignment = does(AsyncConsumer.assignment)
    seek = does(AsyncConsumer.seek)
    seek_to = waits(AsyncConsumer.seek_to)
    seek_to_beginning = waits(AsyncConsumer.seek_to_beginning)
    seek_to_end = waits(AsyncConsumer.seek_to_end)
    seek_to_time = waits(AsyncConsumer.seek_to_time)
    rewind = does(AsyncConsumer.rewind)
    position = waits(AsyncConsumer.position)
    beginning_offsets = waits(AsyncConsumer.beginning_offsets)
    end_offsets = waits(AsyncConsumer.end_offsets)
    lag = waits(AsyncConsumer.lag)
    pause = does(AsyncConsumer.pause)
    resume = does(AsyncConsumer.resume)
    paused = does(AsyncConsumer.paused)

    # the group

    commit = waits(AsyncConsumer.commit)
    committed = waits(AsyncConsumer.committed)
    passed = does(AsyncConsumer.passed)
    group_metadata = does(AsyncConsumer.group_metadata)


def _from_the_loop(option: str, callback: Callback) -> Callable[[list[TopicPartition]], Coroutine[Any, Any, Any]]:
    if inspect.iscoroutinefunction(callback):
        raise WrongOption(f"{option} must be a plain function here; async ones are for barnabas.Consumer")

    async def call(partitions: list[TopicPartition]) -> Any:
        return await in_callers_thread(callback, partitions)

    return call
