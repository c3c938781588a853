"""A controller and its log in memory, without a store: what the tests of decisions stand on."""

from __future__ import annotations

from random import Random

from barnabas.cluster import records as r
from barnabas.cluster.brokers import SUPPORTED_FEATURES
from barnabas.cluster.controller import decide
from barnabas.cluster.events import BrokerHeartbeat, Event, RegisterBroker, Reply
from barnabas.cluster.fold import apply
from barnabas.cluster.image import EMPTY, Endpoint, Image
from barnabas.cluster.records import NO_LEADER
from barnabas.core.broker_config import BrokerConfig


class TestCluster:
    """Every event is decided and folded at once; records pass through bytes as they would on their way to others."""

    __test__ = False

    def __init__(self, brokers: int = 0, racks: tuple[str, ...] = (), **settings: str) -> None:
        self.image: Image = EMPTY
        self.log: list[bytes] = []
        self.rng = Random(1)
        self.config = BrokerConfig({key.replace("_", "."): value for key, value in settings.items()})
        for broker_id in range(1, brokers + 1):
            self.start(broker_id, racks[(broker_id - 1) % len(racks)] if racks else None)

    def submit(self, event: Event[Reply]) -> Reply:
        outcome = decide(self.image, event, self.rng, self.config)
        encoded = r.encode_all(outcome.records)
        self.log += encoded
        self.image = apply(self.image, [r.decode(record) for record in encoded], len(self.log))
        reply: Reply = outcome.reply
        return reply

    def register(self, broker_id: int, rack: str | None = None) -> int:
        endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092 + broker_id, 0),)
        directories = (bytes([broker_id]) * 16,)
        event = RegisterBroker(broker_id, self.rng.randbytes(16), endpoints, SUPPORTED_FEATURES, rack, directories)
        return self.submit(event).epoch

    def start(self, broker_id: int, rack: str | None = None) -> int:
        epoch = self.register(broker_id, rack)
        self.submit(BrokerHeartbeat(broker_id, epoch, self.image.index))
        return epoch


def check_consistency(image: Image) -> None:
    """What must hold in every image that can be reached."""
    assert {topic.id: name for name, topic in image.topics.items()} == dict(image.topic_names)
    for resource in image.configs:
        assert resource.type != 2 or resource.name in image.topics, "a topic's configuration goes with it"
    for topic in image.topics.values():
        assert topic.partitions
        for partition in topic.partitions:
            assert partition.replicas
            assert len(set(partition.replicas)) == len(partition.replicas) == len(partition.directories)
            assert partition.isr
            assert set(partition.isr) <= set(partition.replicas)
            if partition.leader != NO_LEADER:
                assert partition.leader in partition.isr
                assert image.brokers[partition.leader].may_lead
            else:
                assert not any(image.is_alive(b) and image.brokers[b].may_lead for b in partition.isr)
