"""One broker and its clients for some simulated seconds, with faults, all from one seed.

    python -m tests.simulation.one_broker SEED      runs a seed again and prints its history

The broker is killed between two steps or in the middle of a disk operation, with and without a power cut, also while it
is starting; it is stopped in good order; its connections are reset, stalled and lost. After every death it is started
again on the same disk, and what it finds there is compared with what was there before. In the end everything is read
once more, before and after a last restart.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from barnabas.coordination.memory import MemoryMetadata
from tests.checker.history import Fault, FinalLog, Polled, PowerCut, Recovered, TopicPartition
from tests.simulation.admin import Topic, Trimmer, create_topics
from tests.simulation.brokers import Brokers
from tests.simulation.checker import anomalies
from tests.simulation.consumer import Consumer, read_to_end
from tests.simulation.machine import Machine, SegmentBytes
from tests.simulation.producer import Producer
from tests.simulation.virtual_loop import SimulationError
from tests.simulation.world import Verdict, World, tell

DATA_DIRS = ("/disk-1/data", "/disk-2/data")
MAX_STEPS = 400_000
OPERATIONS_TO_FAULT = 60

SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "500",
}
PLAIN, ROLLING = Topic("plain", 2), Topic("rolling", 1, (("segment.ms", "1500"),))
SYNCED = Topic("synced", 2, (("flush.messages", "1"),))
SYNCED_ROLLING = Topic("synced-rolling", 1, (("flush.messages", "1"), ("segment.ms", "1000")))
EXPIRING = Topic("expiring", 1, (("segment.ms", "700"), ("retention.ms", "1500")))
TOPICS = (PLAIN, ROLLING, SYNCED, SYNCED_ROLLING, EXPIRING)
SYNCED_TOPICS = frozenset({SYNCED.name, SYNCED_ROLLING.name})
EXPIRING_TOPICS = frozenset({EXPIRING.name})
PARTITIONS = [TopicPartition(topic.name, index) for topic in TOPICS for index in range(topic.partitions)]
TRIMMED_PARTITIONS = [TopicPartition(topic.name, 0) for topic in (PLAIN, ROLLING, SYNCED_ROLLING)]


class Run:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.stream("faults")
        data_dirs = DATA_DIRS[: self._rng.randint(1, len(DATA_DIRS))]
        self._machine = Machine(world, MemoryMetadata(), 1, data_dirs, SETTINGS)
        self._log_before: dict[TopicPartition, SegmentBytes] = {}
        self._stopping = False
        self.producers: list[Producer] = []

    # the course of a run

    async def main(self) -> None:
        await self._start()
        admin = self._brokers()
        ids = await create_topics(admin, TOPICS)
        clients = [asyncio.ensure_future(client.run(lambda: self._stopping)) for client in self._make_clients(ids)]
        for _ in range(self._rng.randint(2, 4)):
            await asyncio.sleep(self._rng.random() * 2)
            await self._inject()
        await asyncio.sleep(self._rng.random())
        self._stopping = True
        await asyncio.gather(*clients)
        record = self._world.history.record
        for partition in PARTITIONS:
            start, records = await read_to_end(admin, partition, ids)
            record(Polled("verifier", self._machine.boot, partition, start, records))
        await self._restart_in_good_order()
        for partition in PARTITIONS:
            record(FinalLog(partition, *await read_to_end(admin, partition, ids)))
        admin.close()
        await self._machine.stop()

    def _make_clients(self, ids: dict[str, bytes]) -> Iterator[Producer | Consumer | Trimmer]:
        world = self._world
        rng = world.stream("clients")
        for number in range(rng.randint(2, 5)):
            idempotent = rng.random() < 0.6
            partition = PARTITIONS[rng.randrange(len(PARTITIONS))]
            name = f"{'i' if idempotent else 'p'}{number}"
            producer = Producer(
                name,
                self._brokers(),
                partition,
                ids[partition.topic],
                idempotent,
                rng.choice((1, -1)),
                world.stream(name),
                world.clock,
                world.history,
            )
            self.producers.append(producer)
            yield producer
        for number in range(2):
            name = f"c{number}"
            yield Consumer(name, self._brokers(), PARTITIONS, ids, world.stream(name), world.history)
        yield Trimmer(self._brokers(), TRIMMED_PARTITIONS, world.stream("trimmer"), world.history)

    def _brokers(self) -> Brokers:
        machine = self._machine
        return Brokers(self._world.network, {machine.broker_id: machine.address}, lambda _: machine.boot)

    # faults

    async def _inject(self) -> None:
        """One fault, drawn by chance."""
        kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (3, lambda: self._crash(power_cut=False, in_operation=False)),
            (3, lambda: self._crash(power_cut=False, in_operation=True)),
            (3, lambda: self._crash(power_cut=True, in_operation=False)),
            (4, lambda: self._crash(power_cut=True, in_operation=True)),
            (1, self._restart_in_good_order),
            (3, self._disturb_a_connection),
            (2, self._break_a_disk),
        ]
        ((_, inject),) = self._rng.choices(kinds, [weight for weight, _ in kinds])
        await inject()

    async def _crash(self, power_cut: bool, in_operation: bool) -> None:
        machine = self._machine
        if in_operation:
            machine.plan_death(self._rng.randint(1, OPERATIONS_TO_FAULT))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(machine.died.wait(), 10)
        self._kill(power_cut)
        await asyncio.sleep(self._rng.random())
        while True:
            if self._rng.random() < 0.15:
                machine.plan_death(self._rng.randint(1, OPERATIONS_TO_FAULT))
            if await self._start():
                break
            self._kill(power_cut=self._rng.random() < 0.5)
        machine.plan_death(0)

    async def _break_a_disk(self) -> None:
        """One operation fails, which takes its log directory offline until the broker is started again."""
        self._machine.plan_failure(self._rng.randint(1, OPERATIONS_TO_FAULT // 2))
        await asyncio.sleep(self._rng.random() * 3)
        self._machine.plan_failure(0)
        if self._rng.random() < 0.5:
            await self._crash(power_cut=False, in_operation=False)
        else:
            await self._restart_in_good_order()

    async def _disturb_a_connection(self) -> None:
        self._world.disturb_a_connection(self._rng)

    async def _restart_in_good_order(self) -> None:
        await self._machine.stop()
        self._log_before = self._logs()
        self._world.history.record(Fault("stopped in good order"))
        if not await self._start():
            raise SimulationError("the broker did not start after it was stopped in good order")

    def _kill(self, power_cut: bool) -> None:
        """See what the dead broker leaves, and let the power take its share."""
        machine = self._machine
        machine.kill(power_cut)
        self._log_before = self._logs()
        if power_cut:
            machine.lose_unsynced()
            self._world.history.record(PowerCut(machine.boot))

    async def _start(self) -> bool:
        if not await self._machine.start():
            return False
        after = self._logs()
        for partition, before in self._log_before.items():
            kept = after.get(partition, {})
            sizes = [sum(map(len, segments.values())) for segments in (before, kept)]
            self._world.history.record(Recovered(partition, sizes[0], sizes[1], _is_prefix(before, kept)))
        return True

    def _logs(self) -> dict[TopicPartition, SegmentBytes]:
        logs = {partition: self._machine.segments(partition) for partition in PARTITIONS}
        return {partition: segments for partition, segments in logs.items() if segments is not None}


def _is_prefix(before: SegmentBytes, after: SegmentBytes) -> bool:
    """Whether nothing but the end of a log is missing; whole segments at its beginning may be gone or back."""
    names = list(before)
    kept = [name for name in after if names and name >= names[0]]
    if not kept:
        return True
    *whole, last = kept
    if last not in names or names[names.index(last) - len(whole) : names.index(last)] != whole:
        return False
    return before[last].startswith(after[last]) and all(after[name] == before[name] for name in whole)


def run(seed: int) -> Verdict:
    world = World(seed, MAX_STEPS)
    simulation = Run(world)
    problems = world.run(simulation.main())
    idempotent = {producer.name for producer in simulation.producers if producer.idempotent}
    return world.history, problems + anomalies(world.history.events, SYNCED_TOPICS, EXPIRING_TOPICS, idempotent)


def judge(seed: int) -> tuple[str, list[str]]:
    """The digest of a seed's history, and what is wrong with it."""
    history, problems = run(seed)
    return history.digest, problems


if __name__ == "__main__":
    tell(run)
