"""Our own clients at work on a cluster, and the wait until they are through with their work.

Orders are sent by an idempotent producer; copiers put each of them into the ledger exactly once, beside what other
transactions write there; readers, alone and in a group, read the ledger, committed transactions only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from barnabas.client import metadata
from barnabas.client.consumer import Consumer
from barnabas.core.errors import KafkaError
from tests.checker.history import NO_OFFSET, CommitsAsked, CommitsTold, Drained, FinalLog, Record, TopicPartition
from tests.simulation.admin import Topic
from tests.simulation.own_producers import OwnProducer, own_client
from tests.simulation.own_readers import GROUP_SETTINGS, PROTOCOLS, OwnCopier, OwnMember, OwnReader, by_partition
from tests.simulation.own_transactions import OwnTransactions
from tests.simulation.virtual_loop import SimulationError
from tests.simulation.world import World

ORDERS = Topic("orders", 2, (("min.insync.replicas", "2"),), 3)
LEDGER = Topic("ledger", 2, (("min.insync.replicas", "2"),), 3)
TOPICS = (ORDERS, LEDGER)
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
SETTINGS = {
    **GROUP_SETTINGS,
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
COPIERS, MEMBERS = "copiers", "members"
READING_LIMIT_S = 600.0
LOOK_S = 5.0

T = TypeVar("T")


def partitions_of(topic: Topic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for index in range(topic.partitions)]


class OwnClients:
    """Some of them, drawn from the seed."""

    def __init__(self, world: World, bootstrap: str) -> None:
        self._world = world
        self._asker = own_client(world, "asker", bootstrap)
        rng = world.stream("own clients")
        orders, ledger = partitions_of(ORDERS), partitions_of(LEDGER)
        self.producers = [OwnProducer(world, "op0", bootstrap, orders)]
        transactions = [OwnTransactions(world, f"ot{n}", bootstrap, ledger) for n in range(rng.randint(0, 2))]
        protocol = rng.choice(PROTOCOLS)
        self._copiers = [
            OwnCopier(world, f"oc{n}", bootstrap, ORDERS.name, COPIERS, protocol, ledger)
            for n in range(rng.randint(0 if transactions else 1, 2))
        ]
        protocol = rng.choice(PROTOCOLS)
        self._members = [
            OwnMember(world, f"om{n}", bootstrap, LEDGER.name, MEMBERS, protocol) for n in range(rng.randint(0, 2))
        ]
        self._readers = [] if self._members else [OwnReader(world, "or0", bootstrap, ledger)]
        self._writers: list[OwnProducer | OwnTransactions] = [*self.producers, *transactions]
        self._stopped: set[str] = set()
        self._tasks: dict[str, asyncio.Future[None]] = {}

    def start(self) -> None:
        for each in (*self._writers, *self._copiers, *self._members, *self._readers):
            self._tasks[each.name] = asyncio.ensure_future(each.run(self._should_stop(each.name)))

    def _should_stop(self, name: str) -> Callable[[], bool]:
        return lambda: name in self._stopped

    async def finish(self) -> None:
        """Let the writers come to an end, then those who read what they wrote."""
        await self._stop(each.name for each in self._writers)
        if self._copiers:
            await self._drain(COPIERS, self._copiers, partitions_of(ORDERS))
        if self._members:
            await self._drain(MEMBERS, self._members, partitions_of(LEDGER))
        for reader in self._readers:
            await self._drain_alone(reader)

    async def read_finally(self) -> None:
        for partition in (*partitions_of(ORDERS), *partitions_of(LEDGER)):
            self._world.history.record(FinalLog(partition, *await self._read(partition), read_committed=True))
        await self._asker.close()

    async def _stop(self, names: Iterable[str]) -> None:
        chosen = list(names)
        self._stopped.update(chosen)
        await asyncio.gather(*(self._tasks[name] for name in chosen))

    async def _drain(
        self, group: str, members: Sequence[OwnCopier | OwnMember], partitions: Sequence[TopicPartition]
    ) -> None:
        """Until the group has committed everything, and so has read it."""
        ends = {partition: await self._end(partition) for partition in partitions}

        async def unread() -> str:
            committed = await self._committed(group, partitions)
            left = {str(p): f"{committed[p]} of {end}" for p, end in ends.items() if committed[p] < end}
            return str(left) if left else ""

        await self._until_read(group, unread)
        await self._stop(each.name for each in members)
        names = tuple(name for each in members for name in each.names)
        self._world.history.record(Drained(names, tuple(partitions)))

    async def _drain_alone(self, reader: OwnReader) -> None:
        ends = {partition: await self._end(partition) for partition in reader.positions}

        async def unread() -> str:
            left = {str(p): f"{reader.positions[p]} of {end}" for p, end in ends.items() if reader.positions[p] < end}
            return str(left) if left else ""

        await self._until_read(reader.name, unread)
        await self._stop([reader.name])
        self._world.history.record(Drained((reader.name,), tuple(reader.positions)))

    async def _until_read(self, name: str, unread: Callable[[], Awaitable[str]]) -> None:
        deadline = self._world.loop.time() + READING_LIMIT_S
        while problem := await unread():
            if self._world.loop.time() > deadline:
                raise SimulationError(f"{name} did not read everything within {READING_LIMIT_S} s: {problem}")
            for task in self._tasks.values():
                if task.done():
                    task.result()
            await asyncio.sleep(LOOK_S)

    async def _committed(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        record = self._world.history.record
        record(CommitsAsked("asker", group, tuple(partitions)))
        async with Consumer(self._asker, group=group, default_api_timeout_ms=15_000) as consumer:
            found = await self._patiently(
                lambda: consumer.committed(*(metadata.TopicPartition(*partition) for partition in partitions))
            )
        places = {TopicPartition(*partition): place for partition, place in found.items()}
        committed = {p: NO_OFFSET if (place := places[p]) is None else place.offset for p in partitions}
        record(CommitsTold("asker", group, tuple(committed.items())))
        return committed

    async def _end(self, partition: TopicPartition) -> int:
        """Behind the last record that a reader may see."""
        _, records = await self._read(partition)
        return records[-1][0] + 1 if records else 0

    async def _read(self, partition: TopicPartition) -> tuple[int, tuple[Record, ...]]:
        """The log start offset, and all records that are committed."""
        wanted = metadata.TopicPartition(*partition)
        found: list[Record] = []
        async with Consumer(self._asker, isolation_level="read_committed") as consumer:
            start = (await self._patiently(lambda: consumer.beginning_offsets(wanted)))[wanted]
            end = (await self._patiently(lambda: consumer.end_offsets(wanted)))[wanted]
            consumer.assign({wanted: start})
            while await consumer.position(wanted) < end:
                found += by_partition(await consumer.poll(500)).get(partition, ())
        return start, tuple(found)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except KafkaError as error:
                if not error.retriable:
                    raise
