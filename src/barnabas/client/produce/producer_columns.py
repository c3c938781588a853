"""Sending tables: from Arrow's columns straight into batches, no object per record.

A table does not linger, and its batches are as large as a request may be: `batch_size` is for records that come one by
one. Rows with a key go to the key's partition, those of one partition in the order of the table; keyless ones go to one
partition per batch. Each batch waits for room in `buffer_memory`, and joins the queue of its partition behind what was
posted before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from barnabas.client.errors import RecordTooLarge
from barnabas.client.produce.delivery import Appended, Moved, Pending
from barnabas.client.produce.producer_batch import ProducerBatch
from barnabas.client.produce.table_rows import TableRows, rows_of_table
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.client import Client
    from barnabas.client.produce.accumulator import Accumulator
    from barnabas.client.produce.buffer_memory import BufferMemory
    from barnabas.client.produce.partition_queue import PartitionQueue
    from barnabas.client.produce.producer_topics import ProducerTopic
    from barnabas.client.produce.sender import Sender


@dataclass(frozen=True, slots=True)
class ColumnsSent:
    """What became of a table."""

    topic: str
    count: int
    offsets: Mapping[int, tuple[range, ...]]
    """The offsets that the rows of each partition got, in their order; empty where the broker told none (acks=0)."""


class ColumnsNotDelivered(KafkaError):
    """Rows of a table that were not acknowledged. `sent` tells what was; the order of each partition is kept."""

    def __init__(self, first: KafkaError, failed: int, sent: ColumnsSent) -> None:
        total = failed + sent.count
        super().__init__(first.code, f"{failed} of {total} rows for {sent.topic!r} were not delivered: {first}")
        self.sent = sent


class ColumnSender:
    """Belongs to one producer."""

    def __init__(self, client: Client, sender: Sender, accumulator: Accumulator, memory: BufferMemory) -> None:
        self._clock = client.clock
        self._sender = sender
        self._accumulator = accumulator
        self._memory = memory

    async def look_at(self, topic: str, table: Any, *, by_key: bool) -> list[TableRows]:
        """A table's rows, if all of it can be sent; not `by_key`: it must say the partitions itself."""
        limit = self._sender.rules.max_request_size
        parts: list[TableRows] = []
        first = 0
        for part in rows_of_table(table, self._clock.now_ms()):
            if part.partitions is None and not by_key:
                raise ValueError("this producer has a partitioner of its own; give the table a column partition")
            row, size = part.rows.largest()
            if size > limit:
                raise RecordTooLarge(
                    f"row {first + row} for {topic!r}, about {size} bytes, exceeds max_request_size={limit}"
                )
            first += part.rows.count
            parts.append(part)
            await asyncio.sleep(0)
        return parts

    async def send(self, name: str, parts: list[TableRows]) -> ColumnsSent:
        """Send all rows to a topic that the client knows, and wait for their acknowledgement."""
        topic = self._accumulator.find(name)
        total = sum(part.rows.count for part in parts)
        batches: list[ProducerBatch] = []
        problem = None
        try:
            await self._put_all(topic, parts, batches)
        except KafkaError as error:
            problem = error
        sent = ColumnsSent(topic.name, 0, {})
        for batch in batches:
            for part in await _parts(batch):
                problem = problem or part.error
                sent = _with(sent, part)
        if problem is not None:
            raise ColumnsNotDelivered(problem, total - sent.count, sent)
        return sent

    async def _put_all(self, topic: ProducerTopic, parts: list[TableRows], batches: list[ProducerBatch]) -> None:
        """Hand the batches to their queues, as there is room; stop at the first that has failed meanwhile."""
        orders = []
        for part in parts:
            orders.append(part.rows.by_partition(len(topic.queues), part.partitions))
            await asyncio.sleep(0)
        settled = 0
        for part, (order, ends) in zip(parts, orders):
            for batch in self._cut(topic, part, order, [*ends, part.rows.count]):
                while settled < len(batches) and batches[settled].is_done:
                    if batches[settled].error is not None:
                        return
                    settled += 1
                if not self._memory.has_room(batch.reserved_bytes):
                    await self._memory.room(batch.reserved_bytes, self._sender.rules.max_block_ms)
                self._sender.identity.check_may_post()
                self._memory.reserve(batch.reserved_bytes)
                batch.created = self._clock.monotonic()
                batches.append(batch)
                self._sender.put(topic.queues[batch.partition.partition], batch)
                await asyncio.sleep(0)  # let it leave, however long the table is

    def _cut(
        self, topic: ProducerTopic, part: TableRows, order: memoryview, ends: list[int]
    ) -> Iterator[ProducerBatch]:
        """The batches of all partitions in turn; the rows behind the last end have none yet."""
        places = list(zip([0, *ends], ends))
        while any(first < last for first, last in places):
            for number, (first, last) in enumerate(places):
                if first < last:
                    is_keyless = number == len(places) - 1
                    queue = topic.queues[topic.sticky.current if is_keyless else number]
                    batch, end = self._batch(queue, part, order, first, last)
                    places[number] = end, last
                    yield batch
                    if is_keyless:
                        topic.move_on(self._sender.has_leader)

    def _batch(
        self, queue: PartitionQueue, part: TableRows, order: memoryview, first: int, last: int
    ) -> tuple[ProducerBatch, int]:
        data, end = part.rows.cut(
            order,
            first,
            last,
            self._sender.rules.max_request_size,
            self._sender.rules.compression,
            transactional=self._sender.identity.transactional_id is not None,
        )
        return ProducerBatch.of_bytes(queue.partition, data, end - first, self._clock.monotonic()), end


async def _parts(batch: Pending) -> list[ProducerBatch]:
    """The batch, once it is settled, or what the broker made us split it into."""
    assert isinstance(batch, ProducerBatch)
    await batch.settled()
    if batch.error is None and isinstance(outcome := batch.outcome, Moved):
        return [found for _, part in outcome.parts for found in await _parts(part)]
    return [batch]


def _with(sent: ColumnsSent, batch: ProducerBatch) -> ColumnsSent:
    """The account with one more batch in it."""
    if batch.error is not None:
        batch.unseen = 0  # the error that follows tells of it
        return sent
    appended = batch.outcome
    assert isinstance(appended, Appended)
    partition = batch.partition.partition
    ranges = sent.offsets.get(partition, ())
    if appended.base_offset >= 0:
        added = range(appended.base_offset, appended.base_offset + batch.count)
        if ranges and ranges[-1].stop == added.start:
            ranges = (*ranges[:-1], range(ranges[-1].start, added.stop))
        else:
            ranges = (*ranges, added)
    return ColumnsSent(sent.topic, sent.count + batch.count, {**sent.offsets, partition: ranges})
