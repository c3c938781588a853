"""Three brokers and their clients for some simulated seconds, with faults, all from one seed.

    python -m tests.simulation.three_brokers SEED      runs a seed again and prints its history

Brokers are killed between two steps or in the middle of a disk operation, lose their power, are stopped in good order,
and come back; machines are cut off from each other, from the clients and from the metadata store, one way or both;
connections are reset, stalled and lost; disks are slow. Meanwhile leaders are elected and replicas moved. In the end
all comes back, with unclean elections where nobody is left who is known to have everything: every replica must be in
sync again, and everything is read once more.

With an even seed one machine at a time loses its power, and only while all replicas are in sync: no election of a
leader may be unclean then, where two replicas must be in sync before a write is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from barnabas.cluster import image as images
from barnabas.cluster import records as r
from barnabas.cluster.fold import apply
from barnabas.cluster.partition_change import RECOVERING
from barnabas.coordination.memory import MemoryMetadata
from barnabas.coordination.store import Answer, Done
from barnabas.records.batch import headers
from tests.checker.history import Fault, FinalLog, FinalReplica, TopicPartition, UncleanElection
from tests.simulation.admin import UNCLEAN, Changer, Topic, Trimmer, create_topics, elect_leaders
from tests.simulation.brokers import Brokers
from tests.simulation.checker import anomalies
from tests.simulation.cluster_faults import ClusterFaults
from tests.simulation.consumer import Consumer, read_to_end
from tests.simulation.machine import Machine
from tests.simulation.producer import Producer
from tests.simulation.virtual_loop import SimulationError
from tests.simulation.world import Verdict, World, tell

MAX_STEPS = 1_000_000
BROKER_IDS = (1, 2, 3)
HEALING_LIMIT_S = 60.0
LOOK_S = 0.1

SETTINGS = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.backoff.ms": "300",
    "replica.socket.timeout.ms": "2000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "500",
}
VARIED_SETTINGS = {
    "num.replica.fetchers": ("1", "2"),
    "replica.lag.max.messages": ("0", "0", "20"),
    "replica.fetch.max.bytes": ("1", "1000", "1048576"),
    "leader.imbalance.check.interval.seconds": ("1", "300"),
    "leader.imbalance.per.broker.percentage": ("0", "10"),
}
SAFE = Topic("safe", 2, (("min.insync.replicas", "2"),), 3)
ROLLING = Topic("rolling", 1, (("min.insync.replicas", "2"), ("segment.ms", "1500")), 3)
PAIR = Topic("pair", 1, (("min.insync.replicas", "2"),), 2)
HASTY = Topic("hasty", 1, (("min.insync.replicas", "1"),), 3)
SINGLE = Topic("single", 1)
FLEETING = Topic("fleeting", 2, (("min.insync.replicas", "2"),), 3)
TOPICS = (SAFE, ROLLING, PAIR, HASTY, SINGLE)
MOVED_TOPICS = (PAIR, PAIR, SINGLE, SAFE)
SAFE_TOPICS = frozenset({SAFE.name, ROLLING.name, PAIR.name})
PARTITIONS = [TopicPartition(topic.name, index) for topic in TOPICS for index in range(topic.partitions)]
BUSY_PARTITIONS = [*PARTITIONS, *(partition for partition in PARTITIONS if partition.topic in SAFE_TOPICS)]


class Run:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.stream("run")
        self._metadata = WatchedMetadata(self._note_change)
        settings = {**SETTINGS, **{key: self._rng.choice(values) for key, values in VARIED_SETTINGS.items()}}
        self._machines = {
            broker_id: Machine(world, self._metadata, broker_id, ("/disk/data",), settings) for broker_id in BROKER_IDS
        }
        self.is_careful = world.seed % 2 == 0
        self._lives: dict[TopicPartition, int] = {}
        self._stopping = False
        self._operator = self._brokers()
        self.producers: list[Producer] = []

    # the course of a run

    async def main(self) -> None:
        await asyncio.gather(*(machine.start() for machine in self._machines.values()))
        admin = self._brokers()
        ids = await create_topics(admin, TOPICS)
        clients = [asyncio.ensure_future(client.run(lambda: self._stopping)) for client in self._make_clients(ids)]
        faults = ClusterFaults(
            self._world,
            self._machines,
            self._metadata,
            admin,
            MOVED_TOPICS,
            self._until_healed if self.is_careful else None,
        )
        for _ in range(self._rng.randint(3, 8)):
            await asyncio.sleep(self._rng.random() * 1.2)
            await faults.inject()
        await faults.repaired()
        await self._until_healed()
        self._stopping = True
        await asyncio.gather(*clients)
        await self._end_of_all()
        await self._until_healed(quiet=True)
        for partition in PARTITIONS:
            self._world.history.record(FinalLog(partition, *await read_to_end(admin, partition, ids)))
        admin.close()
        self._operator.close()
        for machine in self._machines.values():
            machine.kill()
        self._compare_replicas()
        self._check_fleeting()

    async def _end_of_all(self) -> None:
        """Sometimes all brokers go down together once more."""
        fate = self._rng.choice(("nothing", "all killed", "all stopped"))
        self._world.history.record(Fault(fate))
        machines = self._machines.values()
        if fate == "all killed":
            for machine in machines:
                machine.kill()
        elif fate == "all stopped":
            await asyncio.gather(*(machine.stop() for machine in machines))
        if fate != "nothing":
            await asyncio.gather(*(machine.start() for machine in machines))

    def _make_clients(self, ids: dict[str, bytes]) -> Iterator[Producer | Consumer | Trimmer | Changer]:
        world = self._world
        rng = world.stream("clients")
        for number in range(rng.randint(3, 5)):
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
        registration = self._metadata.image.partition(*partition)
        return registration is not None and len(registration.isr) >= 2

    def _note_change(self, before: images.Image, after: images.Image) -> None:
        """See everything that is decided, in its order."""
        for partition, new in _partitions(after):
            old = before.partition(*partition)
            if old is None or old.leader_epoch == new.leader_epoch or new.leader_recovery_state != RECOVERING:
                continue
            if new.leader >= 0 and new.leader not in (*old.isr, *old.eligible_leader_replicas):
                self._lives[partition] = self._lives.get(partition, 0) + 1
                self._world.history.record(UncleanElection(partition, self._lives[partition]))

    async def _until_healed(self, *, quiet: bool = False) -> None:
        """Every broker is alive and knows it, and every replica in sync; with `quiet`, all end alike, and committed."""
        deadline = self._world.loop.time() + HEALING_LIMIT_S
        while problem := self._ailment(quiet):
            if self._world.loop.time() > deadline:
                raise SimulationError(f"not healed after {HEALING_LIMIT_S} s: {problem}")
            if any(_waits_for_operator(registration) for _, registration in _partitions(self._metadata.image)):
                await elect_leaders(self._operator, UNCLEAN)
            await asyncio.sleep(LOOK_S)

    def _ailment(self, quiet: bool) -> str:
        for machine in self._machines.values():
            broker = machine.broker
            if broker is None:
                return f"{machine.host} does not serve"
            image = broker.metadata.image
            if image.index != self._metadata.next_index:
                return f"{machine.host} is at {image.index} of {self._metadata.next_index} records"
            fenced = [other.id for other in image.brokers.values() if other.fenced]
            if fenced:
                return f"brokers {fenced} are fenced"
            for partition, registration in _partitions(image):
                if len(registration.isr) < len(registration.replicas) or registration.adding_replicas:
                    return f"{partition} is {registration}"
                if quiet and machine.broker_id in registration.replicas:
                    log = broker.replicas.get(*partition).log
                    leader = self._machines[registration.leader].broker
                    if leader is None or leader.replicas.get(*partition).log.log_end_offset != log.log_end_offset:
                        return f"{partition} of {machine.host} ends at {log.log_end_offset}"
                    if leader is broker and log.high_watermark < log.log_end_offset:  # it has only begun to lead
                        return f"{partition} of {machine.host} is committed up to {log.high_watermark}"
        return ""

    # what is on the disks

    def _compare_replicas(self) -> None:
        for partition in PARTITIONS:
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
        if FLEETING.name in self._metadata.image.topics:
            return  # it was made once more, though its client has not heard of that
        for machine in self._machines.values():
            for index in range(FLEETING.partitions):
                if machine.segments(TopicPartition(FLEETING.name, index)) is not None:
                    raise SimulationError(f"{machine.host} still has {FLEETING.name}-{index}")


def _waits_for_operator(registration: images.Partition) -> bool:
    """Nobody is left who is known to have everything."""
    return registration.leader < 0 and not registration.isr and not registration.eligible_leader_replicas


def _partitions(image: images.Image) -> Iterator[tuple[TopicPartition, images.Partition]]:
    for topic in image.topics.values():
        for index, registration in enumerate(topic.partitions):
            yield TopicPartition(topic.name, index), registration


class WatchedMetadata(MemoryMetadata):
    """The store itself, and somebody who sees every change at the moment at which it counts."""

    def __init__(self, watcher: Callable[[images.Image, images.Image], None]) -> None:
        super().__init__()
        self._watcher = watcher
        self.image = images.EMPTY

    def append(self, epoch: int, index: int, append_id: bytes, records: tuple[bytes, ...]) -> Answer:
        answer = super().append(epoch, index, append_id, records)
        if isinstance(answer, Done):
            before = self.image
            self.image = apply(before, map(r.decode, records), self.next_index)
            self._watcher(before, self.image)
        return answer


def run(seed: int) -> Verdict:
    world = World(seed, MAX_STEPS)
    simulation = Run(world)
    problems = world.run(simulation.main())
    idempotent = {producer.name for producer in simulation.producers if producer.idempotent}
    hasty = {producer.name for producer in simulation.producers if producer.acks == 1}
    safe = SAFE_TOPICS if simulation.is_careful else frozenset[str]()
    return world.history, problems + anomalies(
        world.history.events, idempotent_producers=idempotent, safe_topics=safe, hasty_producers=hasty
    )


def judge(seed: int) -> tuple[str, list[str]]:
    """The digest of a seed's history, and what is wrong with it."""
    history, problems = run(seed)
    return history.digest, problems


if __name__ == "__main__":
    tell(run)
