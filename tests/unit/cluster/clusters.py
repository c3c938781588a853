"""A controller and its log in memory, without a store: what the tests of decisions stand on."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from barnabas.cluster import records as r
from barnabas.cluster.brokers import SUPPORTED_FEATURES
from barnabas.cluster.controller import decide
from barnabas.cluster.events import (
    AlterPartition,
    BrokerHeartbeat,
    CreateTopics,
    Event,
    FenceBroker,
    NewTopic,
    RegisterBroker,
    Reply,
)
from barnabas.cluster.fold import apply
from barnabas.cluster.image import EMPTY, Endpoint, Image, Partition
from barnabas.cluster.outcome import Outcome
from barnabas.cluster.records import NO_LEADER
from barnabas.core.broker_config import BrokerConfig


class TestCluster:
    """Every event is decided and folded at once; records pass through bytes as they would on their way to others."""

    __test__ = False

    def __init__(self, brokers: int = 0, racks: tuple[str, ...] = (), **settings: str) -> None:
        self.image: Image = EMPTY
        self.log: list[bytes] = []
        self.outcome = Outcome([], None)
        self.rng = Random(1)
        self.config = BrokerConfig({key.replace("_", "."): value for key, value in settings.items()})
        for broker_id in range(1, brokers + 1):
            self.start(broker_id, racks[(broker_id - 1) % len(racks)] if racks else None)

    def submit(self, event: Event[Reply]) -> Reply:
        outcome = self.outcome = decide(self.image, event, self.rng, self.config)
        encoded = r.encode_all(outcome.records)
        self.log += encoded
        self.image = apply(self.image, [r.decode(record) for record in encoded], len(self.log))
        reply: Reply = outcome.reply
        return reply

    def registration(self, broker_id: int, rack: str | None = None, is_clean: bool = True) -> RegisterBroker:
        before = self.image.brokers.get(broker_id)
        previous = before.epoch if before and is_clean else -1
        endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092 + broker_id, 0),)
        directories = (bytes([broker_id]) * 16,)
        incarnation = self.rng.randbytes(16)
        return RegisterBroker(broker_id, incarnation, endpoints, SUPPORTED_FEATURES, rack, directories, previous)

    def register(self, broker_id: int, rack: str | None = None, is_clean: bool = True) -> int:
        return self.submit(self.registration(broker_id, rack, is_clean)).epoch

    def start(self, broker_id: int, rack: str | None = None, is_clean: bool = True) -> int:
        epoch = self.register(broker_id, rack, is_clean)
        self.submit(BrokerHeartbeat(broker_id, epoch, self.image.index))
        return epoch

    def fence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.submit(FenceBroker(broker_id, self.image.brokers[broker_id].epoch))

    def create(self, *replicas: int, name: str = "orders", **configs: str) -> None:
        """A topic with one partition, on these brokers."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        (created,) = self.submit(CreateTopics((NewTopic(name, assignments=((0, replicas),), configs=settings),)))
        assert created.error is None, created.error

    def partition(self, name: str = "orders", number: int = 0) -> Partition:
        return self.image.topics[name].partitions[number]

    def isr_change(self, *isr: int, name: str = "orders", number: int = 0, **changes: Any) -> AlterPartition:
        """What the leader of a partition would ask for."""
        partition = self.partition(name, number)
        brokers = self.image.brokers
        members = tuple((broker, brokers[broker].epoch if broker in brokers else -1) for broker in isr)
        asked = AlterPartition(
            partition.leader,
            brokers[partition.leader].epoch if partition.leader in brokers else -1,
            self.image.topics[name].id,
            number,
            partition.leader_epoch,
            partition.partition_epoch,
            members,
        )
        return replace(asked, **changes)


def check_consistency(image: Image) -> None:
    """What must hold in every image that can be reached."""
    assert {topic.id: name for name, topic in image.topics.items()} == dict(image.topic_names)
    for resource in image.configs:
        assert resource.type != 2 or resource.name in image.topics, "a topic's configuration goes with it"
    for topic in image.topics.values():
        assert topic.partitions
        for partition in topic.partitions:
            check_partition(image, partition)


def check_partition(image: Image, partition: Partition) -> None:
    replicas, isr, eligible = partition.replicas, partition.isr, partition.eligible_leader_replicas
    assert replicas
    assert len(set(replicas)) == len(replicas) == len(partition.directories)
    for members in (isr, eligible, partition.last_known_elr, partition.adding_replicas, partition.removing_replicas):
        assert set(members) <= set(replicas)
        assert len(set(members)) == len(members)
    assert not set(isr) & set(eligible)
    assert not set(partition.adding_replicas) & set(partition.removing_replicas)
    assert all(image.brokers[broker].may_lead for broker in isr), "in sync is only who lives"
    if partition.leader == NO_LEADER:
        assert not isr
        assert eligible or partition.last_known_elr
        assert not any(image.brokers[broker].may_lead for broker in eligible if broker in image.brokers)
    else:
        assert partition.leader in isr
        assert not partition.last_known_elr
