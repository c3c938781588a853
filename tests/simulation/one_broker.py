"""One broker and its clients for some simulated seconds, with faults by a plan, all from one seed.

The broker is killed between two steps or in the middle of a disk operation, with and without a power cut, also while it
is starting; it is stopped in good order; its connections are reset, stalled and lost. After every death it is started
again on the same disk, and what it finds there is compared with what was there before. In the end everything is read
once more, before and after a last restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator

from tests.checker.checker import anomalies
from tests.checker.expectations import Expectations
from tests.checker.history import Fault, FinalLog, Polled, PowerCut, Recovered, TopicPartition
from tests.simulation import fault_plan
from tests.simulation.admin import Topic, Trimmer, create_topics
from tests.simulation.brokers import Brokers
from tests.simulation.consumer import Consumer, read_to_end
from tests.simulation.fault_plan import BreakDisk, Crash, Disturb, Plan, Stop, some
from tests.simulation.machine import Machine, SegmentBytes
from tests.simulation.producer import Producer
from tests.simulation.virtual_loop import SimulationError
from tests.simulation.watched_metadata import WatchedMetadata
from tests.simulation.world import Verdict, World

DATA_DIRS = ("/disk-1/data", "/disk-2/data")
MAX_STEPS = 400_000
IN_OPERATION_S = 60.0  # how long a death in a disk operation is waited for
BROKER_ID = 1

SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "20000",
    "log.retention.check.interval.ms": "10000",
    "log.segment.delete.delay.ms": "5000",
}
PLAIN, ROLLING = Topic("plain", 2), Topic("rolling", 1, (("segment.ms", "15000"),))
SYNCED = Topic("synced", 2, (("flush.messages", "1"),))
SYNCED_ROLLING = Topic("synced-rolling", 1, (("flush.messages", "1"), ("segment.ms", "10000")))
EXPIRING = Topic("expiring", 1, (("segment.ms", "7000"), ("retention.ms", "15000")))
TOPICS = (PLAIN, ROLLING, SYNCED, SYNCED_ROLLING, EXPIRING)
SYNCED_TOPICS = frozenset({SYNCED.name, SYNCED_ROLLING.name})
EXPIRING_TOPICS = frozenset({EXPIRING.name})
PARTITIONS = [TopicPartition(topic.name, index) for topic in TOPICS for index in range(topic.partitions)]
TRIMMED_PARTITIONS = [TopicPartition(topic.name, 0) for topic in (PLAIN, ROLLING, SYNCED_ROLLING)]


def plan_of(seed: int) -> Plan:
    rng = random.Random(f"{seed}/plan")

    def crash(power_cut: bool, in_operation: bool) -> list[fault_plan.Fault]:
        operations, starting = fault_plan.draw_operations(rng, in_operation), fault_plan.draw_operations(rng, 0.15)
        return [Crash(BROKER_ID, some(rng, 10), operations, power_cut, starting)]

    kinds: fault_plan.Kinds = [
        (3, lambda rng: crash(power_cut=False, in_operation=False)),
        (3, lambda rng: crash(power_cut=False, in_operation=True)),
        (3, lambda rng: crash(power_cut=True, in_operation=False)),
        (4, lambda rng: crash(power_cut=True, in_operation=True)),
        (1, lambda rng: [Stop(BROKER_ID, 0.0)]),
        (3, lambda rng: [fault_plan.draw_disturbance(rng)]),
        (2, lambda rng: [fault_plan.draw_broken_disk(rng, BROKER_ID)]),
    ]
    return fault_plan.draw(rng, kinds, rng.randint(2, 4), 10.0)


class Run:
    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self._rng = world.stream("run")
        data_dirs = DATA_DIRS[: self._rng.randint(1, len(DATA_DIRS))]
        self._machine = Machine(world, WatchedMetadata(), BROKER_ID, data_dirs, SETTINGS)
        self._log_before: dict[TopicPartition, SegmentBytes] = {}
        self._stopping = False
        self.producers: list[Producer] = []

    # the course of a run

    async def main(self) -> None:
        await self._start()
        admin = self._brokers()
        ids = await create_topics(admin, TOPICS)
        clients = [asyncio.ensure_future(client.run(lambda: self._stopping)) for client in self._make_clients(ids)]
        for step in self._plan:
            await asyncio.sleep(step.after_s)
            await self._inject(step.fault)
        await asyncio.sleep(self._rng.random() * 10)
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

    async def _inject(self, fault: fault_plan.Fault) -> None:
        match fault:
            case Crash():
                await self._crash(fault)
            case Stop():
                await self._restart_in_good_order()
            case BreakDisk():
                await self._break_the_disk(fault)
            case Disturb():
                self._world.disturb(fault)
            case _:
                raise TypeError(f"{fault} does not happen to a broker that is alone")

    async def _crash(self, fault: Crash) -> None:
        machine = self._machine
        if fault.operations:
            machine.plan_death(fault.operations)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(machine.died.wait(), IN_OPERATION_S)
        self._kill(fault.power_cut)
        await asyncio.sleep(fault.down_s)
        machine.plan_death(fault.starting)
        while not await self._start():
            self._kill(fault.power_cut)
        machine.plan_death(0)

    async def _break_the_disk(self, fault: BreakDisk) -> None:
        """One log directory is offline until the broker is started again."""
        self._machine.plan_failure(fault.operations, fault.is_full)
        await asyncio.sleep(fault.seconds)
        self._machine.mend_disk()
        if fault.is_orderly:
            await self._restart_in_good_order()
        else:
            await self._crash(Crash(BROKER_ID, fault.down_s))

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


def run(seed: int, plan: Plan | None = None) -> Verdict:
    """With a plan, that one instead of the seed's own."""
    world = World(seed, MAX_STEPS)
    planned = plan_of(seed) if plan is None else plan
    simulation = Run(world, planned)
    problems = world.run(simulation.main())
    idempotent = {producer.name for producer in simulation.producers if producer.idempotent}
    expected = Expectations(SYNCED_TOPICS, EXPIRING_TOPICS, idempotent_producers=idempotent)
    problems += map(str, anomalies(world.history.events, expected))
    return Verdict(planned, world.history, world.loop.time(), problems)
