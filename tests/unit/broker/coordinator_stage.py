"""A coordinator of `Notes` shards, on metadata whose changes take effect when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from barnabas.broker.coordinators import Coordinator
from barnabas.cluster.events import NewTopic
from barnabas.cluster.image import Image, Topic
from barnabas.cluster.image import Partition as Registration
from barnabas.coordinator.placement import partition_of
from barnabas.core.errors import ErrorCode, KafkaError
from tests.unit.broker.shards import ME, HeldExecutor, Notes, RunningClock

TOPIC = "topic"
PARTITIONS = 4
SETTINGS = NewTopic(TOPIC, PARTITIONS, 3, configs={"cleanup.policy": "compact"})


class Metadata:
    """An image in which the topic appears when it is created, and what was asked for."""

    def __init__(self, registered: int = 1, error: KafkaError | None = None) -> None:
        self.image = Image(brokers={number: SimpleNamespace(fenced=number > 0) for number in range(registered)})  # type: ignore[misc]
        self.error = error
        self.created: list[NewTopic] = []

        self.trouble = ""
        self.arriving: Callable[[], None] = lambda: None
        """What the store's list has that was not read yet."""

    def add_topic(self, partitions: int = PARTITIONS, leader: int = ME) -> None:
        registrations = tuple(Registration((leader,), (leader,), leader, 0, 0) for _ in range(partitions))
        self.image = Image(brokers=self.image.brokers, topics={TOPIC: Topic(TOPIC, bytes(16), registrations)})

    async def create_topics(self, topics: tuple[NewTopic, ...]) -> list[Any]:
        self.created += topics
        if self.error is None or self.error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            self.add_topic()
        return [SimpleNamespace(error=self.error)]

    async def refresh(self) -> None:
        self.arriving()


class Replicas:
    """Changes of the metadata, which take effect when the test says so."""

    def __init__(self) -> None:
        self.applied = asyncio.Event()
        self.applied.set()

    async def settled(self) -> None:
        await self.applied.wait()


def coordinator(
    metadata: Metadata,
    replicas: Replicas | None = None,
    executor: HeldExecutor | None = None,
    *,
    may_have_fewer_replicas: bool = True,
) -> Coordinator[Notes]:
    broker: Any = SimpleNamespace(
        broker_id=ME,
        metadata=metadata,
        replicas=replicas or Replicas(),
        create_topics=metadata.create_topics,
        clock=RunningClock(),
        executor=executor or HeldExecutor(),
        manager=SimpleNamespace(scrubber=SimpleNamespace(suspect=lambda log, offset: None)),
    )
    return Coordinator(
        broker, TOPIC, SETTINGS, lambda partition: Notes(), may_have_fewer_replicas=may_have_fewer_replicas
    )


def key_of(index: int) -> str:
    """A key that belongs to a partition."""
    return next(key for key in map(str, range(1000)) if partition_of(key, PARTITIONS) == index)
