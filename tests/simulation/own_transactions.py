"""Our own transactions in the simulation, each of which writes, and then reads what others have written there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from barnabas.client import metadata
from barnabas.client.consumer import Consumer
from barnabas.client.produce.transaction_errors import ProducerUnusable
from barnabas.client.producer import Producer
from barnabas.core.errors import KafkaError
from tests.checker.history import (
    UNTOLD,
    Assigned,
    Outcome,
    Polled,
    TopicPartition,
    TransactionBegun,
    TransactionEnding,
)
from tests.simulation.own_producers import LIFE, ChangedMind, Sends, ended, own_client, transactional_producer
from tests.simulation.own_readers import WAIT_MS, by_partition
from tests.simulation.world import World

GLANCE_MS = 200


class OwnTransactions:
    """One transaction after the other; some are aborted. After one whose end is not known a new producer takes over,
    and a new consumer, which goes on where the one before it was."""

    def __init__(self, world: World, name: str, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        self.name = name
        self._rng = world.stream(name)
        self._history = world.history
        self._partitions = partitions
        self._positions = dict.fromkeys(partitions, 0)
        self._sends = Sends(world, name)
        self._client = own_client(world, name, bootstrap)
        self._reading_client = own_client(world, f"{name}/reads", bootstrap)
        self._count = 0
        self._lives = 0
        self._is_settled = True

    async def run(self, should_stop: Callable[[], bool]) -> None:
        while not should_stop() or not self._is_settled:
            try:
                await self._live(should_stop)
            except KafkaError as error:
                if not error.retriable and not isinstance(error, ProducerUnusable):
                    raise
                self._is_settled = False
        await self._client.close()
        await self._reading_client.close()

    async def _live(self, should_stop: Callable[[], bool]) -> None:
        reads = Consumer(self._reading_client, isolation_level="read_committed", fetch_max_wait_ms=WAIT_MS)
        async with transactional_producer(self._client, self.name) as producer, reads as consumer:
            self._is_settled = True  # whatever was open is aborted, or was committed
            self._lives += 1
            consumer.assign({metadata.TopicPartition(*each): offset for each, offset in self._positions.items()})
            self._history.record(Assigned(self._reader, tuple(self._positions.items())))
            while not should_stop():
                await self._transaction(producer, consumer)
                await asyncio.sleep(self._rng.random() * 3)

    @property
    def _reader(self) -> str:
        return f"{self.name}.{self._lives}"

    async def _transaction(self, producer: Producer, consumer: Consumer) -> None:
        self._count += 1
        transaction = f"{self.name}#{self._count}"
        wanted = Outcome.COMMITTED if self._rng.random() < 0.8 else Outcome.ABORTED
        record = self._history.record
        record(TransactionBegun(self.name, transaction))
        posted = []

        async def write() -> None:
            async with producer.transaction():
                for _ in range(self._rng.randint(1, 4)):
                    partition = self._rng.choice(self._partitions)
                    posted.append((partition, *self._sends.post(producer, partition, transaction)))
                    await asyncio.sleep(self._rng.random())
                await self._look(consumer, transaction)
                record(TransactionEnding(self.name, transaction, wanted))
                if wanted is Outcome.ABORTED:
                    raise ChangedMind

        if await ended(record, self.name, transaction, write()):
            for each in posted:
                await self._sends.settle(*each)

    async def _look(self, consumer: Consumer, transaction: str) -> None:
        for partition, seen in by_partition(await consumer.poll(GLANCE_MS)).items():
            self._history.record(
                Polled(self._reader, LIFE, partition, UNTOLD, seen, read_committed=True, transaction=transaction)
            )
            self._positions[partition] = seen[-1][0] + 1
