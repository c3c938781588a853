"""Our own consumers in the simulation: alone, in groups of both protocols, and copying exactly once.

Every consumer that is opened has a name of its own, for it begins where its group, or the log, says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.client import metadata
from barnabas.client.consume.consumed import ConsumerRecord
from barnabas.client.consumer import Consumer
from barnabas.client.errors import CommitFailed
from barnabas.client.group.values import OffsetAndMetadata
from barnabas.client.produce.transaction_errors import ProducerUnusable
from barnabas.client.producer import Producer
from barnabas.core.errors import KafkaError
from tests.checker import history as events
from tests.checker.history import (
    UNTOLD,
    Assigned,
    Committed,
    Committing,
    Offsets,
    Outcome,
    Polled,
    Revoked,
    TopicPartition,
    TransactionBegun,
    TransactionEnding,
)
from tests.simulation.own_producers import LIFE, Sends, ended, own_client, transactional_producer
from tests.simulation.world import World

GROUP_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "20000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "3000",
}
WAIT_MS = 4_000
CLASSIC: dict[str, Any] = {"group_protocol": "classic", "session_timeout_ms": 20_000, "heartbeat_interval_ms": 3_000}
PROTOCOLS: list[dict[str, Any]] = [
    {**CLASSIC, "partition_assignment_strategy": ("range",)},
    {**CLASSIC, "partition_assignment_strategy": ("cooperative-sticky",)},
    {"group_protocol": "consumer"},
]


def plain(partition: metadata.TopicPartition) -> TopicPartition:
    return TopicPartition(*partition)


def told(offsets: Mapping[metadata.TopicPartition, OffsetAndMetadata]) -> Offsets:
    return tuple((plain(partition), place.offset) for partition, place in sorted(offsets.items()))


class OwnReader:
    """A consumer that reads some partitions from their beginning, committed transactions only."""

    def __init__(self, world: World, name: str, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        self.name = name
        self.names = [name]
        self.positions: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)
        self._rng = world.stream(name)
        self._history = world.history
        self._client = own_client(world, name, bootstrap)

    async def run(self, should_stop: Callable[[], bool]) -> None:
        self._history.record(Assigned(self.name, tuple((partition, 0) for partition in self.positions)))
        options: dict[str, Any] = {
            "isolation_level": "read_committed",
            "fetch_max_wait_ms": WAIT_MS,
            "fetch_max_bytes": self._rng.choice((500, 50_000)),
        }
        async with Consumer(self._client, **options) as consumer:
            consumer.assign({metadata.TopicPartition(*partition): 0 for partition in self.positions})
            while not should_stop():
                for partition, polled in by_partition(await self._poll(consumer)).items():
                    self._history.record(Polled(self.name, LIFE, partition, UNTOLD, polled, read_committed=True))
                    self.positions[partition] = polled[-1][0] + 1
                await asyncio.sleep(self._rng.random() * 5)
        await self._client.close()

    async def _poll(self, consumer: Consumer) -> list[ConsumerRecord]:
        try:
            return await consumer.poll(WAIT_MS, self._rng.choice((3, 500)))
        except KafkaError as error:
            if not error.retriable:
                raise
            return []  # it has had no answer for so long that it tells; it goes on where it was


class _Member:
    """What the two kinds of members have in common: they come, poll and go, and come again under another name."""

    def __init__(
        self, world: World, name: str, bootstrap: str, topic: str, group: str, protocol: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.names: list[str] = []
        self.group = group
        self._rng = world.stream(name)
        self._history = world.history
        self._client = own_client(world, name, bootstrap)
        self._topic = topic
        self._protocol = protocol

    def _new_consumer(self) -> Consumer:
        name = f"{self.name}.{len(self.names) + 1}"
        self.names.append(name)

        def assigned(partitions: list[metadata.TopicPartition]) -> None:
            positions = tuple((plain(partition), UNTOLD) for partition in partitions)
            self._history.record(Assigned(name, positions, self.group))

        def revoked(partitions: list[metadata.TopicPartition]) -> None:
            self._history.record(Revoked(name, tuple(map(plain, partitions))))

        return Consumer(
            self._client,
            topics=[self._topic],
            group=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            on_assigned=assigned,
            on_revoked=revoked,
            fetch_max_wait_ms=WAIT_MS,
            max_poll_interval_ms=60_000,
            default_api_timeout_ms=15_000,
            **self._protocol,
        )

    async def run(self, should_stop: Callable[[], bool]) -> None:
        while not should_stop():
            try:
                await self._live(should_stop)
            except KafkaError as error:
                if not error.retriable and not isinstance(error, ProducerUnusable | CommitFailed):
                    raise
                self._history.trace(self.name, str(error))
                await asyncio.sleep(self._rng.random() * 3)
        await self._client.close()

    async def _live(self, should_stop: Callable[[], bool]) -> None:
        raise NotImplementedError


class OwnMember(_Member):
    """Reads and commits, and now and then leaves."""

    async def _live(self, should_stop: Callable[[], bool]) -> None:
        async with self._new_consumer() as consumer:
            name = self.names[-1]
            while not should_stop() and self._rng.random() < 0.97:
                for partition, polled in by_partition(await consumer.poll(WAIT_MS, 20)).items():
                    self._history.record(Polled(name, LIFE, partition, UNTOLD, polled, read_committed=True))
                await asyncio.sleep(self._rng.random() * 4)
                if self._rng.random() < 0.6:
                    await self._commit(name, consumer)

    async def _commit(self, name: str, consumer: Consumer) -> None:
        offsets = consumer.passed()
        if not offsets:
            return
        committing = told(offsets)
        self._history.record(Committing(name, self.group, committing))
        try:
            await consumer.commit(offsets)
        except KafkaError as error:
            self._history.record(events.CommitFailed(name, self.group, committing, definite=False))
            if not error.retriable and not isinstance(error, CommitFailed):
                raise
        else:
            self._history.record(Committed(name, self.group, committing))


class OwnCopier(_Member):
    """Writes something for every record that it reads, and commits both in one transaction."""

    def __init__(
        self,
        world: World,
        name: str,
        bootstrap: str,
        topic: str,
        group: str,
        protocol: Mapping[str, Any],
        targets: Sequence[TopicPartition],
    ) -> None:
        super().__init__(world, name, bootstrap, topic, group, protocol)
        self._targets = targets
        self._sends = Sends(world, name)
        self._count = 0

    async def _live(self, should_stop: Callable[[], bool]) -> None:
        async with transactional_producer(self._client, self.name) as producer, self._new_consumer() as consumer:
            while not should_stop() and self._rng.random() < 0.97:
                polled = by_partition(await consumer.poll(WAIT_MS, 5))
                if polled and not await self._copy(self.names[-1], producer, consumer, polled):
                    consumer.rewind()
                    again = tuple((plain(partition), UNTOLD) for partition in consumer.assignment())
                    self._history.record(Assigned(self.names[-1], again, self.group))
                await asyncio.sleep(self._rng.random() * 3)

    async def _copy(
        self,
        reader: str,
        producer: Producer,
        consumer: Consumer,
        polled: dict[TopicPartition, tuple[events.Record, ...]],
    ) -> bool:
        self._count += 1
        transaction = f"{self.name}#{self._count}"
        record = self._history.record
        record(TransactionBegun(self.name, transaction))
        for partition, records in polled.items():
            record(Polled(reader, LIFE, partition, UNTOLD, records, read_committed=True, transaction=transaction))
        posted = []

        async def copy() -> None:
            async with producer.transaction() as open_transaction:
                for _, value in (each for records in polled.values() for each in records):
                    target = self._rng.choice(self._targets)
                    posted.append((target, *self._sends.post(producer, target, transaction, value)))
                record(Committing(reader, self.group, told(consumer.passed()), transaction))
                await open_transaction.send_offsets(consumer)
                record(TransactionEnding(self.name, transaction, Outcome.COMMITTED))

        is_committed = await ended(record, self.name, transaction, copy())
        if is_committed:
            for each in posted:
                await self._sends.settle(*each)
        return is_committed


def by_partition(records: Sequence[ConsumerRecord]) -> dict[TopicPartition, tuple[events.Record, ...]]:
    found: dict[TopicPartition, list[events.Record]] = {}
    for each in records:
        found.setdefault(TopicPartition(each.topic, each.partition), []).append((each.offset, each.value))
    return {partition: tuple(polled) for partition, polled in found.items()}
