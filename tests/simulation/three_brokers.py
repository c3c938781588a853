"""Three brokers and their clients for some simulated seconds, with faults by a plan, all from one seed.

Brokers are killed between two steps or in the middle of a disk operation, lose their power, are stopped in good order,
and come back; machines are cut off from each other, from the clients and from the metadata store, one way or both;
connections are reset, stalled and lost; disks are slow, full or broken. Meanwhile leaders are elected and replicas
moved. In the end all comes back, with unclean elections where nobody is left who is known to have everything: every
replica must be in sync again, and everything is read once more.

With half of the seeds one machine at a time loses its power, and only while all replicas are in sync: no election of a
leader may be unclean then, where two replicas must be in sync before a write is taken. Our own clients are there in
most of these, with groups and transactions, instead of some of the others.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

from barnabas.cluster import image as images
from barnabas.records.batch import headers
from tests.checker.checker import anomalies
from tests.checker.expectations import Expectations
from tests.checker.history import Fault, FinalLog, FinalReplica, TopicPartition, UncleanElection
from tests.simulation import own_clients
from tests.simulation.admin import UNCLEAN, Changer, Topic, Trimmer, create_topics, elect_leaders
from tests.simulation.brokers import Brokers
from tests.simulation.cluster_faults import ClusterFaults, draw_plan
from tests.simulation.consumer import Consumer, read_to_end
from tests.simulation.fault_plan import Blackout, Plan, Step
from tests.simulation.machine import Machine
from tests.simulation.own_clients import OwnClients
from tests.simulation.producer import Producer
from tests.simulation.virtual_loop import SimulationError
from tests.simulation.watched_metadata import WatchedMetadata, all_partitions, unclean_elections, waits_for_operator
from tests.simulation.world import Verdict, World

MAX_STEPS = 1_000_000
BROKER_IDS = (1, 2, 3)
HEALING_LIMIT_S = 400.0
LOOK_S = 1.0
PROMPT_S = 1.0  # where nothing is wrong an answer takes some hundredths
OWN_CLIENTS = 0.8  # in so many of the careful seeds

SETTINGS = {
    "auto.create.topics.enable": "false",
    "replica.lag.time.max.ms": "10000",
    "replica.fetch.wait.max.ms": "4000",
    "replica.socket.timeout.ms": "15000",
    "log.flush.offset.checkpoint.interval.ms": "20000",
    "log.retention.check.interval.ms": "10000",
    "log.segment.delete.delay.ms": "5000",
}
VARIED_SETTINGS = {
    "num.replica.fetchers": ("1", "2"),
    "replica.lag.max.messages": ("0", "0", "20"),
    "replica.fetch.max.bytes": ("1", "1000", "1048576"),
    "leader.imbalance.check.interval.seconds": ("10", "300"),
    "leader.imbalance.per.broker.percentage": ("0", "10"),
}
SAFE = Topic("safe", 2, (("min.insync.replicas", "2"),), 3)
ROLLING = Topic("rolling", 1, (("min.insync.replicas", "2"), ("segment.ms", "15000")), 3)
PAIR = Topic("pair", 1, (("min.insync.replicas", "2"),), 2)
HASTY = Topic("hasty", 1, (("min.insync.replicas", "1"),), 3)
SINGLE = Topic("single", 1)
FLEETING = Topic("fleeting", 2, (("min.insync.replicas", "2"),), 3)
TOPICS = (SAFE, ROLLING, PAIR, HASTY, SINGLE)
MOVED_TOPICS = (PAIR, PAIR, SINGLE, SAFE)
SAFE_TOPICS = frozenset(
    {SAFE.name, ROLLING.name, PAIR.name, *own_clients.INTERNAL_TOPICS, *(topic.name for topic in own_clients.TOPICS)}
)
PARTITIONS = [TopicPartition(topic.name, index) for topic in TOPICS for index in range(topic.partitions)]
BUSY_PARTITIONS = [*PARTITIONS, *(partition for partition in PARTITIONS if partition.topic in SAFE_TOPICS)]


def is_careful(seed: int) -> bool:
    return seed % 4 < 2  # the last bit says whether what is ready runs in another order


def plan_of(seed: int) -> Plan:
    rng = random.Random(f"{seed}/plan")
    plan = draw_plan(rng, BROKER_IDS, MOVED_TOPICS, count=rng.randint(3, 8), is_careful=is_careful(seed))
    end = rng.choice((None, Blackout(is_orderly=False), Blackout(is_orderly=True)))
    return plan if end is None else (*plan, Step(0.0, end))


class Run:
    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self._rng = world.stream("run")
        self.is_careful = is_careful(world.seed)
        self._has_own = self.is_careful and self._rng.random() < OWN_CLIENTS
        self.metadata = WatchedMetadata(self._note_change)
        settings = {**SETTINGS, **{key: self._rng.choice(values) for key, values in VARIED_SETTINGS.items()}}
        if self._has_own:
            settings |= own_clients.SETTINGS
        self._machines = {
            broker_id: Machine(world, self.metadata, broker_id, ("/disk/data",), settings) for broker_id in BROKER_IDS
        }
        self._lives: dict[TopicPartition, int] = {}
        self._stopping = False
        self._operator = self._brokers()
        self.producers: list[Producer] = []
        self.own: OwnClients | None = None

    # the course of a run

    async def main(self) -> None:
        await asyncio.gather(*(machine.start() for machine in self._machines.values()))
        admin = self._brokers()
        topics = (*TOPICS, *own_clients.TOPICS) if self._has_own else TOPICS
        ids = await create_topics(admin, topics)
        if self._has_own:
            bootstrap = ",".join(f"{host}:{port}" for host, port in (m.address for m in self._machines.values()))
            self.own = OwnClients(self._world, bootstrap)
            self.own.start()
        clients = [asyncio.ensure_future(client.run(lambda: self._stopping)) for client in self._make_clients(ids)]
        await self._suffer(admin)
        self._stopping = True
        await asyncio.gather(*clients)
        if self.own is not None:
            await self.own.finish()
        await self._black_out()
        await self._until_healed(quiet=True)
        for partition in PARTITIONS:
            self._world.history.record(FinalLog(partition, *await read_to_end(admin, partition, ids)))
        if self.own is not None:
            await self.own.read_finally()
        admin.close()
        self._operator.close()
        for machine in self._machines.values():
            machine.kill()
        self._compare_replicas()
        self._check_fleeting()

    async def _suffer(self, admin: Brokers) -> None:
        """What is planned happens, and is over."""
        careful = self._until_healed if self.is_careful else None
        faults = ClusterFaults(self._world, self._machines, self.metadata, admin, careful)
        for step in self._plan:
            if not isinstance(step.fault, Blackout):
                await asyncio.sleep(step.after_s)
                await faults.inject(step.fault)
        await faults.repaired()
        await self._until_healed()

    async def _black_out(self) -> None:
        machines = self._machines.values()
        for fault in (step.fault for step in self._plan if isinstance(step.fault, Blackout)):
            self._world.history.record(Fault("all stopped" if fault.is_orderly else "all killed"))
            if fault.is_orderly:
                await asyncio.gather(*(machine.stop() for machine in machines))
            else:
                for machine in machines:
                    machine.kill()
            await asyncio.gather(*(machine.start() for machine in machines))

    def _make_clients(self, ids: dict[str, bytes]) -> Iterator[Producer | Consumer | Trimmer | Changer]:
        world = self._world
        rng = world.stream("clients")
        for number in range(rng.randint(1, 2) if self._has_own else rng.randint(3, 5)):
            idempotent = rng.random() < 0.7
            partition = rng.choice(BUSY_PARTITIONS)
            name = f"{'i' if idempotent else 'p'}{number}"
            producer = Producer(
                name,
                self._brokers(),
                partition,
                ids[partition.topic],
                idempotent,
                -1 if idempotent else rng.choice((1, -1)),
                world.stream(name),
                world.clock,
                world.history,
            )
            self.producers.append(producer)
            yield producer
        yield Consumer("c0", self._brokers(), PARTITIONS, ids, world.stream("c0"), world.history)
        trimmed = [TopicPartition(ROLLING.name, 0)]
        yield Changer(self._brokers(), FLEETING, world.stream("changer"), world.history)
        yield Trimmer(self._brokers(), trimmed, world.stream("trimmer"), world.history, self._are_two_in_sync)

    def _brokers(self) -> Brokers:
        addresses = {machine.broker_id: machine.address for machine in self._machines.values()}
        return Brokers(self._world.network, addresses, lambda partition: self._lives.get(partition, 0))

    # the metadata

    def _are_two_in_sync(self, partition: TopicPartition) -> bool:
        registration = self.metadata.image.partition(*partition)
        return registration is not None and len(registration.isr) >= 2

    def _note_change(self, before: images.Image, after: images.Image) -> None:
        """See everything that is decided, in its order."""
        for partition in unclean_elections(before, after):
            self._lives[partition] = self._lives.get(partition, 0) + 1
            self._world.history.record(UncleanElection(partition, self._lives[partition]))

    async def _until_healed(self, *, quiet: bool = False) -> None:
        """Every broker is alive and knows it, and every replica in sync; with `quiet`, all end alike, and committed."""
        deadline = self._world.loop.time() + HEALING_LIMIT_S
        while problem := self._ailment(quiet):
            if self.metadata.problems:
                raise SimulationError(self.metadata.problems[0])
            if self._world.loop.time() > deadline:
                raise SimulationError(f"not healed after {HEALING_LIMIT_S} s: {problem}")
            if any(waits_for_operator(registration) for _, registration in all_partitions(self.metadata.image)):
                await elect_leaders(self._operator, UNCLEAN)
            await asyncio.sleep(LOOK_S)

    def _ailment(self, quiet: bool) -> str:
        for machine in self._machines.values():
            broker = machine.broker
            if broker is None:
                return f"{machine.host} does not serve"
            image = broker.metadata.image
            if image.index != self.metadata.next_index:
                return f"{machine.host} is at {image.index} of {self.metadata.next_index} records"
            fenced = [other.id for other in image.brokers.values() if other.fenced]
            if fenced:
                return f"brokers {fenced} are fenced"
            for partition, registration in all_partitions(image):
                if len(registration.isr) < len(registration.replicas) or registration.adding_replicas:
                    return f"{partition} is {registration}"
                if quiet and machine.broker_id in registration.replicas:
                    log = broker.replicas.get(*partition).log
                    leader = self._machines[registration.leader].broker
                    if leader is None or leader.metadata.image.index != image.index:
                        return f"the leader of {partition} has not heard of everything"
                    if leader.replicas.get(*partition).log.log_end_offset != log.log_end_offset:
                        return f"{partition} of {machine.host} ends at {log.log_end_offset}"
                    if leader is broker and log.high_watermark < log.log_end_offset:  # it has only begun to lead
                        return f"{partition} of {machine.host} is committed up to {log.high_watermark}"
        return ""

    # what is on the disks

    def _compare_replicas(self) -> None:
        own = [each for topic in own_clients.TOPICS for each in own_clients.partitions_of(topic)]
        for partition in (*PARTITIONS, *own):
            for machine in self._machines.values():
                segments = machine.segments(partition)
                if segments is not None:
                    found = tuple(
                        (header.base_offset, segment[position : position + header.size])
                        for segment in segments.values()
                        for position, header in headers(memoryview(segment))
                    )
                    self._world.history.record(FinalReplica(partition, machine.broker_id, found))

    def _check_fleeting(self) -> None:
        """Of a topic that was deleted nothing is left."""
        if FLEETING.name in self.metadata.image.topics:
            return  # it was made once more, though its client has not heard of that
        for machine in self._machines.values():
            for index in range(FLEETING.partitions):
                if machine.segments(TopicPartition(FLEETING.name, index)) is not None:
                    raise SimulationError(f"{machine.host} still has {FLEETING.name}-{index}")


def run(seed: int, plan: Plan | None = None) -> Verdict:
    """With a plan, that one instead of the seed's own."""
    world = World(seed, MAX_STEPS)
    planned = plan_of(seed) if plan is None else plan
    simulation = Run(world, planned)
    problems = world.run(simulation.main()) + simulation.metadata.problems
    idempotent = {producer.name for producer in simulation.producers if producer.idempotent}
    if simulation.own is not None:
        idempotent |= {producer.name for producer in simulation.own.producers}
    expected = Expectations(
        idempotent_producers=idempotent,
        safe_topics=SAFE_TOPICS if simulation.is_careful else (),
        hasty_producers={producer.name for producer in simulation.producers if producer.acks == 1},
        prompt_s=PROMPT_S,
    )
    problems += map(str, anomalies(world.history.events, expected))
    return Verdict(planned, world.history, world.loop.time(), problems)
