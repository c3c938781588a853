"""Records into batches: which partition a record goes to, and into which batch of it.

A batch takes records until it is full, has lingered long enough, or somebody flushes. Records of a topic that was never
seen are parked, in their order, until the cluster tells of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import RecordTooLarge
from barnabas.client.metadata import TopicPartition
from barnabas.client.produce.buffer_memory import BufferMemory
from barnabas.client.produce.delivery import Delivery, Pending
from barnabas.client.produce.partition_queue import PartitionQueue
from barnabas.client.produce.partitioner import Partitioner, partition_of_key
from barnabas.client.produce.producer_batch import ProducerBatch
from barnabas.client.produce.producer_topics import ParkedRecord, ProducerTopic
from barnabas.client.produce.sender import Sender
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records import engine
from barnabas.records.batch import HEADER_SIZE
from barnabas.records.builder import record_size_bound
from barnabas.records.record import Header

_UNKNOWN_PARTITION = -1


class Accumulator:
    """The way of a record from the caller to the sender. Its first lines run for every record."""

    def __init__(
        self,
        client: Client,
        sender: Sender,
        memory: BufferMemory,
        partitioner: Partitioner | None,
        batch_size: int,
    ) -> None:
        self.topics = sender.topics
        self._client = client
        self._sender = sender
        self._memory = memory
        self._partitioner = partitioner
        self._batch_size = batch_size
        sender.on_learned = self._place_parked

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        partition: int | None,
        timestamp_ms: int,
    ) -> Delivery:
        known = self.topics.get(topic)
        if known is None or not known.queues or known.parked:
            known = self.find(topic)
            if not known.queues:
                return self._park(known, key, value, headers, partition, timestamp_ms)
        sticks = key is None and partition is None and self._partitioner is None
        queue = known.queues[known.sticky.current if sticks else self._choose(known, key, value, partition)]
        batch = queue.open
        if batch is not None:
            handle = batch.append(batch, key, value, headers, timestamp_ms)
            if handle is not None:
                return handle
        return self._append_anew(known, queue, sticks, key, value, headers, timestamp_ms, self._memory.reserve)

    def _choose(self, topic: ProducerTopic, key: Any, value: bytes | None, partition: int | None) -> int:
        count = len(topic.queues)
        if partition is None:
            if self._partitioner is not None:
                partition = self._partitioner(topic.name, key, value, count)
            else:
                if not isinstance(key, (bytes, bytearray, memoryview)):
                    kind = type(key).__name__
                    raise TypeError(f"a record's key must be bytes or None, not {kind}; is a serializer missing?")
                return partition_of_key(bytes(key), count)
        if not 0 <= partition < count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic.name!r} has no partition {partition}; it has {count}, counted from 0",
            )
        return partition

    def _append_anew(
        self,
        topic: ProducerTopic,
        queue: PartitionQueue,
        sticks: bool,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp_ms: int,
        reserve: Callable[[int], None],
    ) -> Delivery:
        """Where the open batch is full or there is none: try another partition's if that is as good, or begin one."""
        if sticks and topic.moves_on(self._batch_size, self._sender.has_leader):
            queue = topic.queues[topic.sticky.current]
            handle = _append(queue, key, value, headers, timestamp_ms)
            if handle is not None:
                return handle
        batch = ProducerBatch(queue.partition, self._batch_size, self._client.clock.monotonic())
        handle = batch.append(batch, key, value, headers, timestamp_ms)
        assert handle is not None
        batch.reserved_bytes = max(self._checked_size(topic.name, key, value, headers), self._batch_size)
        reserve(batch.reserved_bytes)
        self._sender.put(queue, batch)
        if sticks:
            topic.sticky_batch = batch
        return handle

    def _checked_size(self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
        """What a batch with this record alone takes; one that no request can hold is refused."""
        size = record_size_bound(key, value, headers) + HEADER_SIZE
        limit = self._sender.rules.max_request_size
        if size > limit:
            raise RecordTooLarge(f"a record of about {size} bytes for {topic!r} is beyond max_request_size={limit}")
        return size

    def find(self, name: str) -> ProducerTopic:
        """A topic, with its queues if the client has seen it already."""
        topic = self.topics.get(name)
        if topic is None:
            if not isinstance(name, str):
                raise TypeError(f"the name of a topic must be text, not {type(name).__name__}")
            name.encode()  # what UTF-8 cannot carry shows here, and not in a task that nobody awaits
            topic = self.topics[name] = ProducerTopic(name, self._client.random)
        if not topic.queues:
            info = self._client.metadata.cluster.topics.get(name)
            if info is not None:
                topic.learned(info, self._client.clock.monotonic())
        if topic.queues:
            self._place_parked(topic)
        return topic

    def _park(
        self,
        topic: ProducerTopic,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        partition: int | None,
        timestamp_ms: int,
    ) -> Delivery:
        """Keep a record until its topic is known; what is wrong with it shows now."""
        engine.append_codec.RecordBuffer(0).append(None, key, value, headers, timestamp_ms)
        size = self._checked_size(topic.name, key, value, headers)
        self._memory.reserve(size)
        deadline = self._client.clock.monotonic() + self._sender.rules.max_block_ms / 1000
        pending = Pending(TopicPartition(topic.name, _UNKNOWN_PARTITION if partition is None else partition))
        parked = ParkedRecord(pending, key, value, tuple(headers), partition, timestamp_ms, deadline, size)
        self._sender.park(topic, parked)
        return Delivery.of(pending, 0, timestamp_ms)

    def _place_parked(self, topic: ProducerTopic) -> None:
        """The topic is known now: its records go where they would have gone."""
        while topic.parked:
            parked = topic.parked.popleft()
            try:
                parked.placed(self._place(topic, parked))
            except KafkaError as error:
                self._sender.fates.give_up_parked(parked, error)
            except Exception as error:  # of the caller's partitioner
                reason = f"no partition was chosen for a record of {topic.name!r}: {error!r}"
                self._sender.fates.give_up_parked(parked, KafkaError(ErrorCode.INVALID_RECORD, reason))
            else:
                self._memory.release(parked.reserved_bytes)

    def _place(self, topic: ProducerTopic, parked: ParkedRecord) -> Delivery:
        key, value, headers, timestamp_ms = parked.key, parked.value, parked.headers, parked.timestamp_ms
        sticks = key is None and parked.partition is None and self._partitioner is None
        queue = topic.queues[topic.sticky.current if sticks else self._choose(topic, key, value, parked.partition)]
        handle = _append(queue, key, value, headers, timestamp_ms)
        if handle is not None:
            return handle
        return self._append_anew(topic, queue, sticks, key, value, headers, timestamp_ms, self._memory.take)


def _append(
    queue: PartitionQueue, key: bytes | None, value: bytes | None, headers: Sequence[Header], timestamp_ms: int
) -> Delivery | None:
    """Put a record into a queue's open batch, if there is one and it fits."""
    batch = queue.open
    return None if batch is None else batch.append(batch, key, value, headers, timestamp_ms)
