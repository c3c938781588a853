"""No acknowledged record is lost by an election that was not unclean, whatever happens to brokers in whatever order.

Beside the controller stands a model of what the brokers have on their disks. A record is acknowledged when enough
replicas are in sync, and then all of these have it; an unclean restart loses all that a broker had. Whoever leads must
have everything that was acknowledged, unless the controller has told of an unclean election.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.cluster import records as r
from barnabas.cluster.events import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    AlterConfigs,
    AlterReassignments,
    BalanceLeaders,
    BrokerHeartbeat,
    CreateTopics,
    ElectLeaders,
    Event,
    FenceBroker,
    NewTopic,
    Reassignment,
    UnregisterBroker,
)
from barnabas.cluster.fold import apply
from barnabas.cluster.image import EMPTY, TOPIC_RESOURCE, ConfigResource, Image, Partition
from barnabas.cluster.reassignment import list_reassignments
from barnabas.cluster.records import NO_LEADER
from barnabas.cluster.snapshot import snapshot_records
from barnabas.core.errors import KafkaError
from tests.unit.cluster.clusters import TestCluster, check_consistency

BROKERS = st.sampled_from([1, 2, 3, 4])
PARTITIONS = st.sampled_from([("orders", 0), ("orders", 1), ("audit", 0)])
SUBSETS = st.lists(BROKERS, unique=True, max_size=4).map(tuple)

Where = tuple[str, int]


class Replication(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = TestCluster(4)
        self.minimum = {"orders": 2, "audit": 1}
        self.unclean_is_allowed = {"orders": False, "audit": False}
        self.disks: dict[tuple[int, Where], frozenset[int]] = {}
        self.acknowledged: dict[Where, frozenset[int]] = {}
        self.last_record = 0

    @initialize()
    def create(self) -> None:
        orders = ((0, (1, 2, 3)), (1, (2, 3, 4)))
        configs = {"min.insync.replicas": "2"}
        self.cluster.submit(CreateTopics((NewTopic("orders", assignments=orders, configs=configs),)))
        self.cluster.create(4, 1, name="audit")

    @property
    def image(self) -> Image:
        return self.cluster.image

    def submit(self, event: Event[Any]) -> Any:
        """What an event does, or None if it was refused; what it did is compared with what is on the disks."""
        before = self.image
        try:
            reply = self.cluster.submit(event)
        except KafkaError:
            assert self.image is before
            return None
        told = " ".join(self.cluster.outcome.warnings)
        unclean = 0
        for topic in self.image.topics.values():
            for number, partition in enumerate(topic.partitions):
                where = (topic.name, number)
                old = before.topics[topic.name].partitions[number]
                self.check_epochs(old, partition)
                if f"{topic.name}-{number}" in told:
                    unclean += 1
                    self.check_unclean(where, old, partition, event)
                elif partition.leader != NO_LEADER:
                    missed = self.acknowledged.get(where, frozenset()) - self.disk(partition.leader, where)
                    assert not missed, f"{where} lost {set(missed)}: {old} became {partition} by {event}"
        assert unclean == self.cluster.outcome.unclean_elections
        return reply

    def check_epochs(self, old: Partition, new: Partition) -> None:
        assert new.partition_epoch == old.partition_epoch + (new != old)
        assert new.leader_epoch - old.leader_epoch in (0, 1)
        if new.leader != old.leader or not set(old.replicas) <= set(new.replicas):
            assert new.leader_epoch == old.leader_epoch + 1

    def check_unclean(self, where: Where, old: Partition, new: Partition, event: Event[Any]) -> None:
        assert new.leader_recovery_state == 1
        assert new.isr == (new.leader,)
        by_operator = isinstance(event, ElectLeaders) and event.election_type == UNCLEAN_ELECTION
        if not self.unclean_is_allowed[where[0]] and not by_operator:
            assert set(old.replicas) - set(old.adding_replicas) == {new.leader}, "nobody but the operator may choose"
        kept = self.disk(new.leader, where)
        self.acknowledged[where] = self.acknowledged.get(where, frozenset()) & kept

    def disk(self, broker: int, where: Where) -> frozenset[int]:
        return self.disks.get((broker, where), frozenset())

    def epoch_of(self, broker_id: int) -> int:
        broker = self.image.brokers.get(broker_id)
        return broker.epoch if broker else -1

    def beat(self, broker_id: int, **wishes: bool) -> None:
        self.submit(BrokerHeartbeat(broker_id, self.epoch_of(broker_id), self.image.index, **wishes))

    # brokers

    @rule(broker=BROKERS, is_clean=st.booleans(), comes_up=st.booleans())
    def restart(self, broker: int, is_clean: bool, comes_up: bool) -> None:
        is_clean = is_clean and broker in self.image.brokers
        if not is_clean:
            self.disks = {key: records for key, records in self.disks.items() if key[0] != broker}
        self.submit(self.cluster.registration(broker, is_clean=is_clean))
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                assert broker not in partition.isr
                assert is_clean or broker not in partition.eligible_leader_replicas
        if comes_up:
            self.beat(broker)

    @rule(broker=BROKERS)
    def heartbeat(self, broker: int) -> None:
        self.beat(broker)

    @rule()
    def all_is_well_again(self) -> None:
        """Who does not serve is started again, and everybody catches up."""
        for broker in (1, 2, 3, 4):
            if broker not in self.image.brokers or not self.image.brokers[broker].may_lead:
                self.restart(broker, True, True)
        for topic in self.image.topics.values():
            for number, partition in enumerate(topic.partitions):
                self.leader_alters_isr((topic.name, number), partition.replicas)

    @rule(broker=BROKERS)
    def shut_down(self, broker: int) -> None:
        self.beat(broker, want_shut_down=True)
        assert all(p.leader != broker for topic in self.image.topics.values() for p in topic.partitions)

    @rule(broker=BROKERS)
    def falls_silent(self, broker: int) -> None:
        self.submit(FenceBroker(broker, self.epoch_of(broker)))

    @rule(broker=BROKERS)
    def unregister(self, broker: int) -> None:
        self.submit(UnregisterBroker(broker))

    # partitions

    @rule()
    def produce(self) -> None:
        """Leaders take a record; where it may be acknowledged, everybody in sync follows the leader up to it."""
        self.last_record += 1
        for name, topic in self.image.topics.items():
            for number, partition in enumerate(topic.partitions):
                where = (name, number)
                log = self.disk(partition.leader, where) | {self.last_record}
                if partition.leader == NO_LEADER:
                    continue
                self.disks[partition.leader, where] = log
                if len(partition.isr) >= min(self.minimum[name], len(partition.replicas)):
                    self.disks |= {(replica, where): log for replica in partition.isr}
                    self.acknowledged[where] = log

    @rule(where=PARTITIONS)
    def followers_lag(self, where: Where) -> None:
        self.leader_alters_isr(where, ())

    @rule(where=PARTITIONS, members=SUBSETS)
    def leader_alters_isr(self, where: Where, members: tuple[int, ...]) -> None:
        """Whoever is to join has caught up with the leader before."""
        partition = self.cluster.partition(*where)
        if partition.leader == NO_LEADER:
            return
        isr = dict.fromkeys((partition.leader, *members))
        for replica in isr.keys() - set(partition.isr):
            if self.image.is_alive(replica) and replica in partition.replicas:
                self.disks[replica, where] = self.disk(partition.leader, where)
        self.submit(self.cluster.isr_change(*isr, name=where[0], number=where[1]))

    @rule(where=PARTITIONS, unclean=st.booleans())
    def operator_elects(self, where: Where, unclean: bool) -> None:
        self.submit(ElectLeaders(UNCLEAN_ELECTION if unclean else PREFERRED_ELECTION, (where,)))

    @rule()
    def balance(self) -> None:
        self.submit(BalanceLeaders())

    @rule(where=PARTITIONS, replicas=SUBSETS)
    def reassign(self, where: Where, replicas: tuple[int, ...]) -> None:
        self.submit(AlterReassignments((Reassignment(*where, replicas),)))

    @precondition(lambda self: any(list_reassignments(self.cluster.image)))
    @rule()
    def cancel_reassignments(self) -> None:
        moves = list(list_reassignments(self.image))
        self.submit(AlterReassignments(tuple(Reassignment(move.topic, move.partition, None) for move in moves)))

    @rule(name=st.sampled_from(["orders", "audit"]), minimum=st.integers(1, 3), unclean=st.sampled_from([0, 0, 0, 1]))
    def configure(self, name: str, minimum: int, unclean: int) -> None:
        self.minimum[name] = minimum
        self.unclean_is_allowed[name] = bool(unclean)
        values = (("min.insync.replicas", str(minimum)), ("unclean.leader.election.enable", str(bool(unclean)).lower()))
        self.submit(AlterConfigs(((ConfigResource(TOPIC_RESOURCE, name), values),)))

    @invariant()
    def image_is_consistent(self) -> None:
        check_consistency(self.image)

    def teardown(self) -> None:
        live = self.image
        replayed = apply(EMPTY, [r.decode(record) for record in self.cluster.log], len(self.cluster.log))
        assert replayed == live
        snapshot = [r.decode(r.encode(record)) for record in snapshot_records(live)]
        assert apply(EMPTY, snapshot, live.index) == live


TestReplication = Replication.TestCase
TestReplication.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


@pytest.mark.parametrize("seed", range(10))
def test_long_walks_lose_nothing_either(seed: int) -> None:
    """Many more steps than the machine takes, in exchange for failures that are not made short."""
    rng = Random(seed)
    world = Replication()
    world.create()
    actions: list[Callable[[int, Where, tuple[int, ...]], Any]] = [
        lambda broker, where, some: world.restart(broker, rng.random() < 0.6, rng.random() < 0.7),
        lambda broker, where, some: world.heartbeat(broker),
        lambda broker, where, some: world.shut_down(broker),
        lambda broker, where, some: world.falls_silent(broker),
        lambda broker, where, some: world.unregister(broker),
        lambda broker, where, some: world.all_is_well_again(),
        lambda broker, where, some: world.produce(),
        lambda broker, where, some: world.produce(),
        lambda broker, where, some: world.followers_lag(where),
        lambda broker, where, some: world.leader_alters_isr(where, some),
        lambda broker, where, some: world.operator_elects(where, unclean=rng.random() < 0.2),
        lambda broker, where, some: world.balance(),
        lambda broker, where, some: world.reassign(where, some),
        lambda broker, where, some: world.cancel_reassignments(),
        lambda broker, where, some: world.configure(where[0], rng.randint(1, 3), rng.random() < 0.1),
    ]
    for _ in range(1000):
        where = rng.choice([("orders", 0), ("orders", 1), ("audit", 0)])
        rng.choice(actions)(rng.randint(1, 4), where, tuple(rng.sample([1, 2, 3, 4], rng.randint(1, 3))))
        check_consistency(world.image)
    world.teardown()
