"""Consumers of a group that read in the background, and what they tell."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Self

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from barnabas import Consumer, TopicPartition

Options = dict[str, Any]

QUICK: Options = {"group_protocol": "classic", "heartbeat_interval_ms": 300, "session_timeout_ms": 6000}
EAGER: Options = {**QUICK, "partition_assignment_strategy": ["range"]}
COOPERATIVE: Options = {**QUICK, "partition_assignment_strategy": ["cooperative-sticky"]}
CONSUMER: Options = {"group_protocol": "consumer"}


def new_group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


def create_topic(address: str, partitions: int, name: str | None = None) -> str:
    name = name or f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    return name


def add_partitions(address: str, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(60)


def produce(address: str, topic: str, partitions: int, count: int) -> list[tuple[int, int]]:
    """So many records for every partition of a topic that is empty; where they are."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 5})
    for partition in range(partitions):
        for number in range(count):
            producer.produce(topic, str(number), partition=partition)
    assert producer.flush(60) == 0
    return [(partition, offset) for partition in range(partitions) for offset in range(count)]


async def until(done: Callable[[], object], timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, f"not within {timeout} s: {done}"
        await asyncio.sleep(0.02)


class Reader:
    """Reads until its block ends; what it owns follows the callbacks."""

    def __init__(self, address: str, group: str, pause: float = 0, **options: Any) -> None:
        self.owned: set[int] = set()
        self.topics: set[str] = set()
        self.seen: list[tuple[int, int]] = []
        self.changes: list[tuple[str, list[int]]] = []
        self._pause = pause
        self.consumer = Consumer(
            address,
            group=group,
            auto_offset_reset="earliest",
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
            **options,
        )
        self._task: asyncio.Task[None] | None = None

    def _note(self, what: str, partitions: Iterable[TopicPartition]) -> list[int]:
        numbers = [each.partition for each in partitions]
        self.changes.append((what, numbers))
        return numbers

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self.topics.update(each.topic for each in partitions)
        self.owned.update(self._note("assigned", partitions))

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self.owned.difference_update(self._note("revoked", partitions))

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self.owned.difference_update(self._note("lost", partitions))

    async def _read(self) -> None:
        async for record in self.consumer:
            self.seen.append((record.partition, record.offset))
            if self._pause:
                await asyncio.sleep(self._pause)

    async def __aenter__(self) -> Self:
        await self.consumer.__aenter__()
        self.start()
        return self

    def start(self) -> None:
        self._task = asyncio.create_task(self._read())

    async def stop(self) -> None:
        """Do not come back for records, but stay open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self.consumer.commit()  # the record at hand, too
        await self.consumer.close()

    async def crash(self) -> None:
        """Fall silent without a word to the group."""
        await self.stop()
        assert self.consumer._member is not None
        await self.consumer._member.close(leave=False)
        await self.consumer._close()


def shares(*readers: Reader) -> list[int]:
    return [len(reader.owned) for reader in readers]
