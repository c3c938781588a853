"""The producer: records in, acknowledged batches out.

Each partition has one task while it has batches: it waits for the first batch to fill or to linger, sends it to the
leader, repeats it while errors may pass, then takes the next. So batches of a partition are never in flight together,
and keep their order through retries and changes of leader; partitions do not wait for each other. With idempotence, a
batch keeps its sequence through all attempts and the leader appends it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

from barnabas.client.accumulator import (
    Appended,
    Delivery,
    PartitionQueue,
    ProducerBatch,
    ProducerIdentity,
    RecordMetadata,
)
from barnabas.client.client import Client
from barnabas.client.errors import RecordTooLarge, refused
from barnabas.client.metadata import TopicInfo, TopicPartition
from barnabas.client.partitioner import StickyPartition, partition_of_key
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.builder import record_size_bound
from barnabas.records.compression import BY_NAME
from barnabas.records.record import Header
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest

ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1


class Producer:
    """Options are Kafka's in snake case. Owned by the event loop of its client; leaving it flushes."""

    def __init__(
        self,
        client: Client,
        *,
        acks: int = ACKS_ALL,
        compression_type: str = "none",
        batch_size: int = 16_384,
        linger_ms: int = 5,
        buffer_memory: int = 32 << 20,
        max_request_size: int = 1 << 20,
        max_block_ms: int = 60_000,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        enable_idempotence: bool = True,
    ) -> None:
        if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            raise ValueError(f"acks={acks} is none of 0, 1 and -1 (all)")
        if compression_type not in BY_NAME:
            raise ValueError(f"compression_type {compression_type!r} is none of {', '.join(BY_NAME)}")
        self._client = client
        self._acks = acks
        self._compression = BY_NAME[compression_type]
        self._batch_size = batch_size
        self._linger_seconds = linger_ms / 1000
        self._buffer_memory = buffer_memory
        self._max_request_size = max_request_size
        self._max_block_ms = max_block_ms
        self._request_timeout_ms = request_timeout_ms
        self._delivery_timeout_seconds = delivery_timeout_ms / 1000
        self._is_idempotent = enable_idempotence and acks == ACKS_ALL
        self._identity: ProducerIdentity | None = None
        self._identifying = asyncio.Lock()
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._senders: dict[TopicPartition, asyncio.Task[None]] = {}
        self._sticky: dict[str, StickyPartition] = {}
        self._buffered_bytes = 0
        self._room = asyncio.Event()
        self._failure: KafkaError | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.flush()
        else:
            await self._abandon()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged. A cancelled call may still deliver."""
        posted = await self.post(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        return await posted

    async def post(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Put a record into its batch, waiting only for the topic's metadata and for room in the buffer."""
        size = record_size_bound(key, value, headers)
        if size > self._max_request_size:
            raise RecordTooLarge(
                f"a record of about {size} bytes for {topic!r} is beyond max_request_size={self._max_request_size}"
            )
        found = self._client.metadata.cluster.topics.get(topic) or await self._find_topic(topic)
        while self._buffered_bytes > self._buffer_memory:
            self._room.clear()
            await self._room.wait()
        target = TopicPartition(topic, self._choose(found, key, partition))
        queue = self._queues.get(target)
        if queue is None:
            queue = self._queues[target] = PartitionQueue(target, self._compression, self._batch_size)
        stamp = self._client.clock.now_ms() if timestamp_ms is None else timestamp_ms
        batches_before = len(queue.batches)
        delivery = queue.append(key, value, headers, stamp, size, self._client.clock.monotonic())
        self._buffered_bytes += size
        if target not in self._senders:
            self._senders[target] = asyncio.create_task(self._drain(queue))
        elif len(queue.batches) > batches_before:
            if key is None and partition is None:
                self._sticky[topic].next(len(found.partitions))
            await asyncio.sleep(0)  # a batch is full: let it leave, however busy the caller is
        return delivery

    async def flush(self) -> None:
        """Wait until everything posted so far is acknowledged; the first failure since the last flush is raised."""
        waiting = [batch for queue in self._queues.values() for batch in queue.batches]
        for batch in waiting:
            batch.closing.set()
        if waiting:
            await asyncio.wait([batch.done for batch in waiting])
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _abandon(self) -> None:
        """Stop without waiting; what is not acknowledged yet may or may not be delivered."""
        for sender in self._senders.values():
            sender.cancel()
        await asyncio.gather(*self._senders.values(), return_exceptions=True)

    async def _find_topic(self, name: str) -> TopicInfo:
        """A topic that the broker is about to create is unknown or leaderless for a moment."""
        deadline = self._client.clock.monotonic() + self._max_block_ms / 1000
        tries = 0
        while True:
            try:
                return await self._client.metadata.topic(name, create=True)
            except KafkaError as error:
                pause = self._client.backoff_seconds(tries)
                if not error.code.retriable or self._client.clock.monotonic() + pause > deadline:
                    raise
            tries += 1
            await asyncio.sleep(pause)

    def _choose(self, topic: TopicInfo, key: bytes | None, partition: int | None) -> int:
        count = len(topic.partitions)
        if partition is not None:
            if not 0 <= partition < count:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic.name!r} has no partition {partition}; it has {count}, counted from 0",
                )
            return partition
        if key is not None:
            return partition_of_key(key, count)
        sticky = self._sticky.get(topic.name)
        if sticky is None:
            sticky = self._sticky[topic.name] = StickyPartition(self._client.random)
        return sticky.current(count)

    async def _drain(self, queue: PartitionQueue) -> None:
        """Deliver a partition's batches one after the other until there are none."""
        try:
            while queue.batches:
                batch = queue.batches[0]
                await self._linger(batch)
                try:
                    batch.complete(await self._deliver(queue, batch))
                    queue.appended(batch)
                except KafkaError as error:
                    self._failure = self._failure or error
                    batch.fail(error)
                queue.batches.popleft()
                self._release(batch)
        finally:
            del self._senders[queue.partition]
            for batch in queue.batches:  # there are some only if this task was cancelled
                batch.done.cancel()
            queue.batches.clear()

    async def _linger(self, batch: ProducerBatch) -> None:
        if self._linger_seconds > 0:
            try:
                async with asyncio.timeout(self._linger_seconds):
                    await batch.closing.wait()
            except TimeoutError:
                pass
        batch.closing.set()

    async def _deliver(self, queue: PartitionQueue, batch: ProducerBatch) -> Appended:
        """Send a batch until it is answered for good. Whatever fails costs the identity: its sequence has a gap."""
        if self._is_idempotent:
            queue.number(batch, await self._identify())
        data = batch.builder.build()
        deadline = batch.created + self._delivery_timeout_seconds
        tries = 0
        while True:
            try:
                return await self._produce(batch.partition, data)
            except KafkaError as error:
                if error.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    return Appended(-1, -1)  # an earlier attempt succeeded, too long ago for its offset to be known
                pause = self._client.backoff_seconds(tries)
                if not error.code.retriable or self._client.clock.monotonic() + pause > deadline:
                    self._identity = None
                    raise
                self._client.metadata.forget([batch.partition.topic])
            tries += 1
            await asyncio.sleep(pause)

    async def _produce(self, partition: TopicPartition, batch: bytearray) -> Appended:
        """One attempt."""
        leader = await self._client.metadata.leader_of(partition)
        topic = await self._client.metadata.topic(partition.topic)
        data = PartitionProduceData(index=partition.partition, records=batch)
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[data])],
        )
        if self._acks == ACKS_NONE:
            await self._client.send(leader, request)
            return Appended(-1, -1)
        response = await self._client.ask(leader, request)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            return Appended(answer.base_offset, answer.log_append_time_ms)
        reasons = [record.batch_index_error_message for record in answer.record_errors]
        message = next(filter(None, reasons), None) or answer.error_message
        raise refused(answer.error_code, f"cannot append to {partition}", message)

    async def _identify(self) -> ProducerIdentity:
        """This producer's id and epoch, from any broker, the first time and after a failure."""
        async with self._identifying:
            if self._identity is None:
                self._identity = await self._client.retrying(self._init_producer_id)
            return self._identity

    async def _init_producer_id(self) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=self._request_timeout_ms)
        response = await self._client.metadata.ask_any(request)
        if response.error_code:
            raise refused(response.error_code, "cannot get a producer id")
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    def _release(self, batch: ProducerBatch) -> None:
        self._buffered_bytes -= batch.reserved_bytes
        self._room.set()
