"""Whatever happens in whatever order: the image stays consistent, epochs only rise, and replay gives the same image."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.cluster import records as r
from barnabas.cluster.delta import changes
from barnabas.cluster.events import (
    AllocateProducerIds,
    AlterConfigs,
    BrokerHeartbeat,
    ConfigChange,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Event,
    FenceBroker,
    IncrementalAlterConfigs,
    NewPartitions,
    NewTopic,
    TopicReference,
    UnregisterBroker,
)
from barnabas.cluster.fold import apply
from barnabas.cluster.image import BROKER_RESOURCE, EMPTY, TOPIC_RESOURCE, ConfigResource
from barnabas.cluster.snapshot import snapshot_records
from barnabas.core.errors import KafkaError
from tests.unit.cluster.clusters import TestCluster, check_consistency

BROKERS = st.integers(1, 4)
TOPICS = st.sampled_from(["orders", "a.b", "a_b", "audit", "x/y"])
CONFIGS = st.dictionaries(
    st.sampled_from(["retention.ms", "max.message.bytes", "no.such.key"]),
    st.sampled_from(["1000", "-5", "x"]),
    max_size=2,
)
ASSIGNMENT = st.lists(st.lists(BROKERS, max_size=3).map(tuple), max_size=3)


class Cluster(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = TestCluster()
        self.epochs: dict[tuple[bytes, int], tuple[int, int]] = {}
        self.blocks: list[range] = []

    def submit(self, event: Event[Any]) -> Any:
        """What an event does, or None if it was refused; a refusal changes nothing."""
        before = self.cluster.image
        try:
            reply = self.cluster.submit(event)
        except KafkaError:
            assert self.cluster.image is before
            return None
        self.check_delta(before)
        return reply

    def check_delta(self, before: Any) -> None:
        after = self.cluster.image
        delta = changes(before, after)
        assert {topic.id for topic in delta.created} == after.topic_names.keys() - before.topic_names.keys()
        assert {topic.id for topic in delta.deleted} == before.topic_names.keys() - after.topic_names.keys()
        for name, topic in after.topics.items():
            old = before.topics.get(name)
            if old and old.id == topic.id:
                changed = [
                    i for i, p in enumerate(topic.partitions) if i >= len(old.partitions) or p != old.partitions[i]
                ]
                assert delta.partitions.get(name, ()) == tuple(changed)

    def epoch_of(self, broker_id: int) -> int:
        broker = self.cluster.image.brokers.get(broker_id)
        return broker.epoch if broker else 0

    @rule(broker_id=BROKERS, rack=st.sampled_from([None, "one", "two"]))
    def broker_starts(self, broker_id: int, rack: str | None) -> None:
        before = self.epoch_of(broker_id)
        known = broker_id in self.cluster.image.brokers
        assert self.cluster.register(broker_id, rack) > before or not known
        assert self.cluster.image.brokers[broker_id].fenced

    @rule(broker_id=BROKERS, lag=st.sampled_from([0, 0, 0, 100]), fence=st.booleans(), shut_down=st.booleans())
    def heartbeat(self, broker_id: int, lag: int, fence: bool, shut_down: bool) -> None:
        index = self.cluster.image.index - lag
        self.submit(BrokerHeartbeat(broker_id, self.epoch_of(broker_id), index, fence, shut_down))

    @rule(broker_id=BROKERS)
    def broker_is_silent(self, broker_id: int) -> None:
        self.submit(FenceBroker(broker_id, self.epoch_of(broker_id)))

    @rule(broker_id=BROKERS)
    def broker_is_stale(self, broker_id: int) -> None:
        assert self.submit(FenceBroker(broker_id, self.epoch_of(broker_id) - 1)) is None

    @rule(broker_id=BROKERS)
    def broker_is_unregistered(self, broker_id: int) -> None:
        self.submit(UnregisterBroker(broker_id))

    @rule(name=TOPICS, partitions=st.integers(-2, 5), factor=st.integers(-2, 4), configs=CONFIGS, dry=st.booleans())
    def create(self, name: str, partitions: int, factor: int, configs: dict[str, str], dry: bool) -> None:
        self.submit(CreateTopics((NewTopic(name, partitions, factor, configs=configs), NewTopic("other")), dry))

    @rule(name=TOPICS, assignment=ASSIGNMENT)
    def create_by_hand(self, name: str, assignment: list[tuple[int, ...]]) -> None:
        self.submit(CreateTopics((NewTopic(name, assignments=tuple(enumerate(assignment))),)))

    @rule(name=TOPICS, by_id=st.booleans())
    def delete(self, name: str, by_id: bool) -> None:
        topic = self.cluster.image.topics.get(name)
        reference = TopicReference(topic_id=topic.id) if by_id and topic else TopicReference(name)
        self.submit(DeleteTopics((reference, TopicReference("other"))))

    @rule(name=TOPICS, count=st.integers(-1, 8), assignment=st.none() | ASSIGNMENT.map(tuple))
    def grow(self, name: str, count: int, assignment: tuple[tuple[int, ...], ...] | None) -> None:
        self.submit(CreatePartitions((NewPartitions(name, count, assignment),)))

    @rule(name=TOPICS, operation=st.integers(0, 4), key=st.sampled_from(["retention.ms", "cleanup.policy"]))
    def alter_topic(self, name: str, operation: int, key: str) -> None:
        change = ConfigChange(key, operation, "delete" if key == "cleanup.policy" else "77")
        self.submit(IncrementalAlterConfigs(((ConfigResource(TOPIC_RESOURCE, name), (change,)),)))

    @rule(name=st.sampled_from(["", "1", "9"]), values=st.sampled_from([(), (("log.retention.ms", "5000"),)]))
    def alter_brokers(self, name: str, values: tuple[tuple[str, str], ...]) -> None:
        self.submit(AlterConfigs(((ConfigResource(BROKER_RESOURCE, name), values),)))

    @rule(broker_id=BROKERS)
    def producer_ids(self, broker_id: int) -> None:
        block = self.submit(AllocateProducerIds(broker_id, self.epoch_of(broker_id)))
        if block:
            self.blocks.append(range(block.first, block.first + block.count))

    @invariant()
    def image_is_consistent(self) -> None:
        image = self.cluster.image
        check_consistency(image)
        for name in self.cluster.image.topics:
            assert sum(name.replace(".", "_") == other.replace(".", "_") for other in image.topics) == 1

    @invariant()
    def epochs_never_go_back(self) -> None:
        for topic in self.cluster.image.topics.values():
            for number, partition in enumerate(topic.partitions):
                now = (partition.leader_epoch, partition.partition_epoch)
                before = self.epochs.get((topic.id, number), (0, 0))
                assert now[0] >= before[0]
                assert now[1] >= before[1]
                self.epochs[topic.id, number] = now

    @invariant()
    def producer_ids_are_given_once(self) -> None:
        for earlier, later in zip(self.blocks, self.blocks[1:]):
            assert earlier.stop == later.start

    def teardown(self) -> None:
        live = self.cluster.image
        replayed = apply(EMPTY, [r.decode(record) for record in self.cluster.log], len(self.cluster.log))
        assert replayed == live
        snapshot = [r.decode(r.encode(record)) for record in snapshot_records(live)]
        assert apply(EMPTY, snapshot, live.index) == live


TestController = Cluster.TestCase
TestController.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
