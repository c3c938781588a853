"""A group of our own members on one broker, with faults by a plan, all from one seed.

Members come, leave, fall silent, freeze and come back; the broker is killed and started again; connections are reset
and lost. Every member goes on in each of its partitions where the group has committed, and commits the next number. Two
members may believe for a while that a partition is theirs, but the group must take the numbers of one of them only:
none is lost, taken back or taken twice. In the end, without faults, every partition has one owner.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from barnabas.client.errors import CommitFailed
from barnabas.client.group.member import GroupMember
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.values import OffsetAndMetadata, Subscription
from barnabas.client.metadata import TopicPartition
from barnabas.core.errors import KafkaError
from tests.checker import history as events
from tests.checker.checker import anomalies
from tests.checker.expectations import Expectations
from tests.checker.history import (
    NO_OFFSET,
    UNTOLD,
    Assigned,
    CommitsAsked,
    CommitsTold,
    Committed,
    Committing,
    Fault,
    Revoked,
)
from tests.simulation import fault_plan
from tests.simulation.admin import Topic, create_topics
from tests.simulation.brokers import Brokers
from tests.simulation.fault_plan import Crash, Disturb, Freeze, Join, Part, Plan, Silence, chosen, some
from tests.simulation.machine import Machine
from tests.simulation.own_producers import own_client
from tests.simulation.own_readers import GROUP_SETTINGS, PROTOCOLS, plain, told
from tests.simulation.simulated_process import Process
from tests.simulation.watched_metadata import WatchedMetadata
from tests.simulation.world import Verdict, World

MAX_STEPS = 2_000_000
BROKER_ID = 1
SETTINGS = {
    **GROUP_SETTINGS,
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}
TOPIC = Topic("work", 4)
PARTITIONS = [TopicPartition(TOPIC.name, number) for number in range(TOPIC.partitions)]
GROUP = "group"
EXPECTED = Expectations(counting_groups={GROUP}, lag_s=1.0)  # nothing is stalled here


class Worker:
    """One member, and its caller."""

    def __init__(self, world: World, name: str, address: str, options: GroupOptions) -> None:
        self.name = name
        self.taken: Counter[TopicPartition] = Counter()
        """How many of its numbers the group has taken."""
        self.owned: dict[TopicPartition, int | None] = {}
        """The number that was committed last; None while that is to be asked for."""
        self._world = world
        self._rng = world.stream(name)
        self._record = world.history.record
        self.pause = 0.0
        self._client = own_client(world, name, address)
        self._member = GroupMember(self._client, options, Subscription(frozenset([TOPIC.name])))
        self._process = Process(world.loop, name)
        self._task: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """As a process of its own, on the machine of all clients."""
        await self._process.start(self._member.start())
        self._task = self._process.start(self._work())

    def freeze(self, seconds: float) -> None:
        self._record(Fault("suspended", self.name))
        self._process.stop()
        self._world.loop.call_later(seconds, self._go_on)

    def check(self) -> None:
        assert self._task is not None
        if self._task.done():
            self._task.result()

    async def stop(self, leave: bool) -> None:
        self.check()
        self._go_on()
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        self.owned.clear()
        await self._member.close(leave)
        await self._client.close()

    def _go_on(self) -> None:
        if self._process.stopped:
            self._record(Fault("goes on", self.name))
            self._process.go_on()

    async def _work(self) -> None:
        while True:
            self._member.polled()
            self._member.raise_problem()
            while (change := self._member.take_change()) is not None:
                gone = (*change.revoked, *change.lost)
                for partition in gone:
                    self.owned.pop(partition)
                self._record(Revoked(self.name, tuple(map(plain, gone))))
                await asyncio.sleep(self._rng.random() * 3)
                self._record(Assigned(self.name, tuple((plain(each), UNTOLD) for each in change.assigned), GROUP))
                self.owned.update(dict.fromkeys(change.assigned))
                self._member.done(change)
            for partition in list(self.owned):
                await self._count(partition)
            pause, self.pause = self.pause, 0.0
            await asyncio.sleep(pause or self._rng.random() * 3)

    async def _count(self, partition: TopicPartition) -> None:
        number = self.owned[partition]
        try:
            if number is None:
                self.owned[partition] = await self._committed(partition)
            else:
                await self._commit(partition, number + 1)
        except KafkaError as error:
            if not error.retriable and not isinstance(error, CommitFailed):
                raise
            self.owned[partition] = None

    async def _committed(self, partition: TopicPartition) -> int:
        self._record(CommitsAsked(self.name, GROUP, (plain(partition),)))
        found = (await self._member.committed([partition]))[partition]
        self._record(CommitsTold(self.name, GROUP, ((plain(partition), found.offset if found else NO_OFFSET),)))
        return found.offset if found else 0

    async def _commit(self, partition: TopicPartition, number: int) -> None:
        offsets = {partition: OffsetAndMetadata(number)}
        self._record(Committing(self.name, GROUP, told(offsets)))
        try:
            await self._member.commit(offsets)
        except (KafkaError, asyncio.CancelledError):
            self._record(events.CommitFailed(self.name, GROUP, told(offsets), definite=False))
            raise
        self._record(Committed(self.name, GROUP, told(offsets)))
        self.taken[partition] += 1
        self.owned[partition] = number


def plan_of(seed: int) -> Plan:
    rng = random.Random(f"{seed}/plan")
    kinds: fault_plan.Kinds = [
        (1, lambda rng: [Join()]),
        (1, lambda rng: [Part(round(rng.random(), 4), leaves=rng.random() < 0.5)]),
        (1, lambda rng: [Freeze(round(rng.random(), 4), 10 + some(rng, 40))]),
        (1, lambda rng: [Silence(round(rng.random(), 4), 15 + some(rng, 30))]),
        # No stalls: a commit that arrives after a later one, which its member sent elsewhere, wins in Kafka too.
        (1, lambda rng: [fault_plan.draw_disturbance(rng, "reset", "lose")]),
        (1, lambda rng: [Crash(BROKER_ID, some(rng, 30))]),
    ]
    return fault_plan.draw(rng, kinds, rng.randint(4, 8), 15.0)


class Run:
    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self._machine = Machine(world, WatchedMetadata(), BROKER_ID, ["/disk-1/data"], SETTINGS)
        protocol = PROTOCOLS[world.seed % len(PROTOCOLS)]
        self._options = GroupOptions(
            group_id=GROUP, max_poll_interval_ms=20_000, default_api_timeout_ms=15_000, **protocol
        )
        self._started = 0
        self.workers: list[Worker] = []

    async def main(self) -> None:
        await self._machine.start()
        brokers = Brokers(self._world.network, {BROKER_ID: self._machine.address}, lambda _: self._machine.boot)
        await create_topics(brokers, [TOPIC])
        brokers.close()
        for _ in range(2):
            await self._join()
        for step in self._plan:
            await asyncio.sleep(step.after_s)
            await self._inject(step.fault)
        await self._settle()
        for worker in self.workers:
            await worker.stop(leave=True)
        await self._machine.stop()

    async def _join(self) -> None:
        self._started += 1
        host, port = self._machine.address
        worker = Worker(self._world, f"w{self._started}", f"{host}:{port}", self._options)
        self._world.history.record(Fault("join", worker.name))
        await worker.start()
        self.workers.append(worker)

    async def _inject(self, fault: fault_plan.Fault) -> None:
        match fault:
            case Join():
                await self._join()
            case Part() if len(self.workers) > 1:
                worker = self.workers.pop(chosen(fault.where, len(self.workers)))
                self._world.history.record(Fault("part", worker.name, "leaves" if fault.leaves else "says nothing"))
                await worker.stop(fault.leaves)
            case Part():
                pass  # somebody must be there in the end
            case Silence():
                worker = self.workers[chosen(fault.where, len(self.workers))]
                self._world.history.record(Fault("silence", worker.name, f"{fault.seconds} s"))
                worker.pause = fault.seconds
            case Freeze():
                worker = self.workers[chosen(fault.where, len(self.workers))]
                worker.freeze(fault.seconds)
            case Disturb():
                self._world.disturb(fault)
            case Crash():
                self._machine.kill()
                await asyncio.sleep(fault.down_s)
                while not await self._machine.start():
                    pass
            case _:
                raise TypeError(f"{fault} does not happen to a group")

    async def _settle(self) -> None:
        """Every partition has one owner, and every owner counts."""
        before = self._taken()
        for _ in range(600):
            await asyncio.sleep(1)
            for worker in self.workers:
                worker.check()
            owned = sorted(partition for worker in self.workers for partition in worker.owned)
            counted = self._taken() - before
            if owned == PARTITIONS and all(counted[partition] > 3 for partition in PARTITIONS):
                return
        owners = {worker.name: sorted(worker.owned) for worker in self.workers}
        raise AssertionError(f"the group does not settle: {owners}, {counted}")

    def _taken(self) -> Counter[TopicPartition]:
        return sum((worker.taken for worker in self.workers), Counter())


def run(seed: int, plan: Plan | None = None) -> Verdict:
    """With a plan, that one instead of the seed's own."""
    world = World(seed, MAX_STEPS)
    planned = plan_of(seed) if plan is None else plan
    problems = world.run(Run(world, planned).main())
    problems += map(str, anomalies(world.history.events, EXPECTED))
    return Verdict(planned, world.history, world.loop.time(), problems)
