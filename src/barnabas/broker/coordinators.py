"""A coordinator: an internal topic, and a shard for each of its partitions that this broker leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.broker.coordinator_runtime import LOAD_PATIENCE_S, Producer, Shard, ShardDriver
from barnabas.broker.dispatch import Later
from barnabas.cluster.events import NewTopic
from barnabas.coordinator.outcome import Now, Outcome, Token
from barnabas.coordinator.placement import partition_of
from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.cluster.partition import Partition

S = TypeVar("S", bound=Shard)
R = TypeVar("R")


class Coordinator(Generic[S]):
    """Finds the shard of a group or transactional id, follows leadership, makes the topic when it is first needed."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        settings: NewTopic,
        make_shard: Callable[[Partition], S],
        on_committed: Callable[[ShardDriver[S], Outcome], None] = lambda driver, outcome: None,
        *,
        may_have_fewer_replicas: bool = False,
    ) -> None:
        """`settings` is the internal topic as it is to be made.

        It waits for as many brokers as it is to have replicas, since nobody would give it more later. If it may have
        fewer, as where nobody has said how many, it waits for those only that have ever been here.
        """
        self.topic = topic
        self._broker = broker
        self._settings = settings
        self._may_have_fewer_replicas = may_have_fewer_replicas
        self._make_shard = make_shard
        self._on_committed = on_committed
        self._drivers: dict[int, ShardDriver[S]] = {}
        self._epochs: dict[int, int] = {}
        self._waiting: set[asyncio.Future[None]] = set()

    # leadership

    def follow(self, partition: Partition) -> None:
        """The metadata of one of the topic's partitions have changed."""
        index = partition.log.partition
        if not partition.is_leader:
            self.drop(index)
        elif self._epochs.get(index) != partition.leader_epoch:
            self.drop(index)
            self._epochs[index] = partition.leader_epoch
            self._drivers[index] = ShardDriver(
                partition,
                lambda: self._make_shard(partition),
                self._broker.clock,
                self._broker.executor,
                self._on_committed,
                self._broker.manager.scrubber.suspect,
            )

    def drop(self, index: int) -> None:
        self._epochs.pop(index, None)
        driver = self._drivers.pop(index, None)
        if driver is not None:
            driver.close()

    def close(self) -> None:
        for waiting in self._waiting:
            waiting.cancel()
        for index in list(self._drivers):
            self.drop(index)

    # requests

    @property
    def has_topic(self) -> bool:
        return self.topic in self._broker.metadata.image.topics

    async def ensure_topic(self) -> int:
        """The number of the topic's partitions; it is made if it is not there yet."""
        image = self._broker.metadata.image
        if self.topic not in image.topics:
            wanted = self._settings
            if self._may_have_fewer_replicas:
                replicas = min(wanted.replication_factor, max(1, len(image.brokers)))
                wanted = replace(wanted, replication_factor=replicas)
            try:
                (created,) = await self._broker.create_topics((wanted,))
            except KafkaError as error:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
            if created.error and created.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, created.error.message)
        return len(self._broker.metadata.image.topics[self.topic].partitions)

    def partition_for(self, key: str) -> int:
        """The partition that a group or transactional id belongs to; NOT_COORDINATOR without the topic."""
        topic = self._broker.metadata.image.topics.get(self.topic)
        if topic is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return partition_of(key, len(topic.partitions))

    def leader_of(self, key: str) -> int:
        """The broker that coordinates a group or transactional id; -1 while there is none."""
        partition = (
            self._broker.metadata.image.partition(self.topic, self.partition_for(key)) if self.has_topic else None
        )
        return -1 if partition is None else partition.leader

    async def execute(
        self, key: str, operation: Callable[[S, Token, Now], Outcome], producer: Producer | None = None
    ) -> Any:
        """The reply to an operation on the shard of a key, for which it waits; KafkaError if that shard is not here."""
        driver = self.loaded(key) or await self.ready(key)
        return await driver.execute(operation, producer)

    def answer(
        self, key: str, operation: Callable[[S, Token, Now], Outcome], refused: Callable[[KafkaError], R]
    ) -> R | Later[R]:
        """What a handler returns: the response to an operation, or that to a shard's error, now or later.

        The operation may run after the handler has returned, so the module of a handler whose request has bytes says
        `KEEPS_REQUEST = True`.
        """
        later: Later[R] = Later(exclusive=True)

        def reply(response: Any) -> None:
            later.complete(refused(response) if isinstance(response, KafkaError) else response)

        driver = self.loaded(key)
        if driver is not None:
            driver.call(operation, reply)
            return later.response or later
        waiting = asyncio.ensure_future(self._call_when_ready(key, operation, reply))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        later.on_abandoned = waiting.cancel
        return later

    async def _call_when_ready(
        self, key: str, operation: Callable[[S, Token, Now], Outcome], reply: Callable[[Any], None]
    ) -> None:
        try:
            driver = await self.ready(key)
        except KafkaError as error:
            reply(error)
        else:
            driver.call(operation, reply)

    # shards

    def loaded(self, key: str) -> ShardDriver[S] | None:
        """The shard of a key, if it is here and serves."""
        topic = self._broker.metadata.image.topics.get(self.topic)
        driver = self._drivers.get(partition_of(key, len(topic.partitions))) if topic is not None else None
        return driver if driver is not None and driver.shard is not None else None

    async def ready(self, key: str) -> ShardDriver[S]:
        """The shard of a key, as soon as it serves; KafkaError if that is not here, or takes too long.

        FindCoordinator names a broker as soon as the metadata does. That broker may still have to make its log or to
        load it, or it has not read the metadata yet. NOT_COORDINATOR would be wrong in each case, and there are clients
        that do not survive it.
        """
        try:
            async with asyncio.timeout(LOAD_PATIENCE_S):
                if self.leader_of(key) != self._broker.broker_id and not self._broker.metadata.trouble:
                    await self._broker.metadata.refresh()
                while self.leader_of(key) == self._broker.broker_id:
                    await self._broker.replicas.settled()
                    driver = self._drivers.get(self.partition_for(key))
                    if driver is None:
                        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} could not be opened")
                    if await driver.ready():
                        return driver
        except TimeoutError:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def drivers(self) -> list[ShardDriver[S]]:
        return list(self._drivers.values())

    def driver(self, index: int) -> ShardDriver[S] | None:
        return self._drivers.get(index)
