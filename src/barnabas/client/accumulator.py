"""Records that wait to be sent: per partition a queue of batches.

A batch takes records until it is full, has lingered long enough, or somebody flushes. A record's `Delivery` is a light
handle on its batch: one future serves all records of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.client.metadata import TopicPartition
from barnabas.core.errors import KafkaError
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.records.record import Header


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record landed; the offset is -1 where the broker did not tell (acks=0, a duplicate long gone)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ProducerIdentity(NamedTuple):
    """What makes retries idempotent: a leader counts sequences per identity and partition."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class Appended(NamedTuple):
    """A leader's answer for one batch; the time is -1 unless the topic stamps records itself."""

    base_offset: int
    log_append_time_ms: int


class ProducerBatch:
    """Records of one partition that will be appended together or not at all."""

    __slots__ = ("builder", "closing", "created", "done", "partition", "reserved_bytes")

    def __init__(self, partition: TopicPartition, compression: Compression, created: float) -> None:
        self.partition = partition
        self.builder = BatchBuilder(compression)
        self.created = created
        self.reserved_bytes = 0
        """What its records may take at most, as the producer counts its memory."""
        self.closing = asyncio.Event()
        """Set once the batch takes no more records."""
        self.done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    def complete(self, appended: Appended) -> None:
        self.done.set_result(appended)

    def fail(self, error: KafkaError) -> None:
        self.done.set_exception(error)
        self.done.exception()  # the producer reports it too, so a handle that nobody awaits is no loss


class Delivery:
    """Awaited, it gives where the record landed, or raises why it could not be delivered."""

    __slots__ = ("_batch", "_delta", "_timestamp_ms")

    def __init__(self, batch: ProducerBatch, delta: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._delta = delta
        self._timestamp_ms = timestamp_ms

    @property
    def partition(self) -> TopicPartition:
        return self._batch.partition

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        appended = yield from asyncio.shield(self._batch.done).__await__()
        topic, partition = self._batch.partition
        offset = -1 if appended.base_offset < 0 else appended.base_offset + self._delta
        stamped = appended.log_append_time_ms
        return RecordMetadata(topic, partition, offset, self._timestamp_ms if stamped < 0 else stamped)


class PartitionQueue:
    """The batches of one partition in their order; only the last one may still take records."""

    __slots__ = ("_batch_size", "_compression", "batches", "identity", "next_sequence", "partition")

    def __init__(self, partition: TopicPartition, compression: Compression, batch_size: int) -> None:
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.identity = ProducerIdentity()
        self.next_sequence = 0
        self._compression = compression
        self._batch_size = batch_size

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> Delivery:
        """Add a record of at most `size_bytes` to the last batch, or to a new one where it does not fit."""
        last = self.batches[-1] if self.batches else None
        if last is not None and last.builder.estimated_size + size_bytes > self._batch_size:
            last.closing.set()
        if last is None or last.closing.is_set():
            last = ProducerBatch(self.partition, self._compression, now)
            self.batches.append(last)
        delta = last.builder.append(key, value, headers, timestamp_ms)
        last.reserved_bytes += size_bytes
        return Delivery(last, delta, timestamp_ms)

    def number(self, batch: ProducerBatch, identity: ProducerIdentity) -> None:
        """Give a batch its place in the sequence of `identity`; a new identity counts from 0 again."""
        if identity != self.identity:
            self.identity = identity
            self.next_sequence = 0
        batch.builder.producer_id, batch.builder.producer_epoch = identity
        batch.builder.base_sequence = self.next_sequence

    def appended(self, batch: ProducerBatch) -> None:
        """The leader has the batch, so the next one takes the next sequence."""
        self.next_sequence = (self.next_sequence + len(batch.builder)) & 0x7FFFFFFF
