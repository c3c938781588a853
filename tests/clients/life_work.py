"""The clients of a long life: writers, members of a group that copy in transactions, and readers of the copy."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

from barnabas import BufferFull, Consumer, KafkaError, Producer, ProducerUnusable, TopicPartition

SOURCE, COPY = "source", "copy"
PARTITIONS = 4
PACE_S = 0.005
REQUEST_TIMEOUT_MS = 5_000


class Life:
    """What the clients did and saw."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.writing = True
        self.copying = True
        self.written: dict[int, int] = defaultdict(int)
        """By partition, how many records were acknowledged."""
        self.copies: dict[int, list[bytes]] = defaultdict(list)
        """By partition, what one reader with an assignment of its own has read."""
        self.seen: dict[int, list[tuple[str, int]]] = defaultdict(list)
        """By partition, which member of the readers' group got which offset."""
        self.setbacks: list[KafkaError] = []
        """Why transactions did not succeed."""
        self.lost: list[TopicPartition] = []

    async def write(self, name: str) -> None:
        """Numbered records to every partition in turn; each one must be acknowledged."""
        deliveries = []
        async with Producer(self.bootstrap, linger_ms=2, request_timeout_ms=REQUEST_TIMEOUT_MS) as producer:
            number = 0
            while self.writing:
                try:
                    deliveries.append(
                        producer.post(SOURCE, b"%s:%d" % (name.encode(), number), partition=number % PARTITIONS)
                    )
                    number += 1
                except BufferFull:
                    await producer.room()
                await asyncio.sleep(PACE_S)
            await producer.flush()
            for delivery in deliveries:
                self.written[(await delivery).partition] += 1

    async def copy(self, name: str) -> None:
        """A member of a group: what it reads and how far it has read are written in one transaction."""
        async with Consumer(
            self.bootstrap,
            topics=[SOURCE],
            group="copiers",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        ) as consumer:
            while self.copying:
                try:
                    async with Producer(
                        self.bootstrap, transactional_id=name, request_timeout_ms=REQUEST_TIMEOUT_MS
                    ) as producer:
                        while self.copying:
                            await self._copy_some(consumer, producer)
                except ProducerUnusable as error:
                    self.setbacks.append(error)
                    consumer.rewind()

    async def _copy_some(self, consumer: Consumer, producer: Producer) -> None:
        records = await consumer.poll(timeout_ms=200)
        if not records:
            return
        try:
            async with producer.transaction() as transaction:
                for record in records:
                    producer.post(COPY, record.value, partition=record.partition)
                await transaction.send_offsets(consumer)
        except ProducerUnusable:
            raise
        except KafkaError as error:  # aborted: what was read is read again, by whoever has the partitions now
            self.setbacks.append(error)
            consumer.rewind()

    async def read(self, name: str) -> None:
        """A member of a group that commits by itself what it has moved past."""
        async with Consumer(
            self.bootstrap,
            topics=[COPY],
            group="readers",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            auto_commit_interval_ms=500,
            on_lost=self.lost.extend,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        ) as consumer:
            while self.copying:
                for record in await consumer.poll(timeout_ms=200):
                    self.seen[record.partition].append((name, record.offset))

    async def read_alone(self) -> None:
        """Partitions by hand, batch by batch."""
        async with Consumer(
            self.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        ) as consumer:
            consumer.assign([TopicPartition(COPY, partition) for partition in range(PARTITIONS)])
            while self.copying:
                if (batch := await consumer.poll_batch(timeout_ms=200)) is not None:
                    self.copies[batch.partition.partition] += [record.value for record in batch]

    async def until_copied(self, timeout_s: float) -> None:
        """Everything that was written has come to the readers of the copy."""
        deadline = time.monotonic() + timeout_s
        while not self._all_is_read():
            assert time.monotonic() < deadline, f"not all is read after {timeout_s} s: {self.anomalies()}"
            await asyncio.sleep(0.1)

    def _all_is_read(self) -> bool:
        return all(
            len(self.copies[partition]) >= count <= len({offset for _, offset in self.seen[partition]})
            for partition, count in self.written.items()
        )

    def anomalies(self) -> list[str]:
        """What a log without faults would not show."""
        found = []
        for partition, count in self.written.items():
            copies = self.copies[partition]
            if len(copies) != count or len(set(copies)) != count:
                found.append(
                    f"{partition}: {len(copies)} copies, {len(set(copies))} of them distinct, of {count} records"
                )
            for writer in {value.partition(b":")[0] for value in copies}:
                numbers = [int(value.partition(b":")[2]) for value in copies if value.startswith(writer + b":")]
                if numbers != sorted(numbers):
                    found.append(f"{partition}: records of {writer.decode()} out of order")
            offsets = [offset for _, offset in self.seen[partition]]
            doubled = len(offsets) - len(set(offsets))
            if doubled and not self.lost:
                found.append(f"{partition}: {doubled} records came twice to the readers, who lost no partition")
            if not self.lost and offsets != sorted(offsets):
                found.append(f"{partition}: out of order for the readers")
        return found
