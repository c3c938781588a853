"""Whatever happens to a shard, its log alone gives the same groups and offsets, and nobody waits for ever."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.coordinator.consumer_protocol import ConsumerProtocolAssignment, TopicPartition, encode_assignment
from barnabas.coordinator.group_shard import GroupShardConfig
from barnabas.coordinator.outcome import Token
from barnabas.coordinator.subscriptions import TopicInfo
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.unit.coordinator.group_shards import NOBODY, TOPICS, Coordinator, Member

CONFIG = GroupShardConfig(offsets_retention_ms=200_000, offsets_retention_check_interval_ms=20_000)
ASSIGNMENT = encode_assignment(ConsumerProtocolAssignment([TopicPartition("t", [0, 1])]), 1)
CLUSTERS = (
    TOPICS,
    {**TOPICS, "t": TopicInfo(TOPICS["t"].id, 9)},
    {"u": TOPICS["u"]},
    {**TOPICS, "t": TopicInfo(b"n" * 16, 2)},
)

GROUPS = st.sampled_from(("g", "h"))
TOPIC_NAMES = st.sampled_from(("t", "u"))
PARTITIONS = st.integers(0, 1)
OFFSETS = st.integers(0, 9)
PRODUCERS = st.integers(1, 2)
NUMBERS = st.integers(0, 20)


class Shard(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(CONFIG)
        self.joining: list[tuple[str, Token]] = []
        self.consumers: dict[tuple[str, str], int] = {}

    def classic_members(self, group: str) -> list[Member]:
        """Everybody who was ever told a generation, each once, with the latest."""
        replies = [self.coordinator.replies.get(token) for name, token in self.joining if name == group]
        generations = {
            reply.member_id: reply.generation_id
            for reply in replies
            if reply is not None and reply.error_code == ErrorCode.NONE
        }
        return [Member(member_id, generation_id) for member_id, generation_id in generations.items()]

    # offsets

    @rule(group=GROUPS, topic=TOPIC_NAMES, partition=PARTITIONS, offset=OFFSETS, number=NUMBERS)
    def commit(self, group: str, topic: str, partition: int, offset: int, number: int) -> None:
        members = [NOBODY, *self.classic_members(group)]
        members += [Member(member_id, epoch) for (name, member_id), epoch in self.consumers.items() if name == group]
        member = members[-1 - number % len(members)]
        self.coordinator.commit(offset, group=group, topic=topic, partition=partition, member=member)

    @rule(group=GROUPS, partition=PARTITIONS, offset=OFFSETS, retention_ms=st.sampled_from((1, 100_000)))
    def commit_for_a_while(self, group: str, partition: int, offset: int, retention_ms: int) -> None:
        self.coordinator.commit(offset, group=group, partition=partition, retention_ms=retention_ms, version=4)

    @rule(group=GROUPS, partition=PARTITIONS, offset=OFFSETS, producer_id=PRODUCERS)
    def commit_in_transaction(self, group: str, partition: int, offset: int, producer_id: int) -> None:
        self.coordinator.commit_in_transaction(offset, producer_id, group=group, partition=partition)

    @rule(producer_id=PRODUCERS, committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.coordinator.end_transaction(producer_id, committed=committed)

    @rule(group=GROUPS, topic=TOPIC_NAMES, partition=PARTITIONS)
    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        topics = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)])]
        request = OffsetDeleteRequest(group, topics)
        self.coordinator.do(lambda token: self.coordinator.shard.offset_delete(request, token))

    # classic members

    @rule(group=GROUPS, topic=TOPIC_NAMES, instance=st.sampled_from((None, None, "i")))
    def join(self, group: str, topic: str, instance: str | None) -> None:
        self.joining.append((group, self.coordinator.start_join(group, "", instance, (topic,))))

    @rule(group=GROUPS, topic=TOPIC_NAMES, number=NUMBERS)
    def join_again(self, group: str, topic: str, number: int) -> None:
        members = self.classic_members(group)
        if members:
            member = members[-1 - number % len(members)]
            self.joining.append((group, self.coordinator.start_join(group, member.member_id, None, (topic,))))

    @rule(group=GROUPS, number=NUMBERS)
    def sync(self, group: str, number: int) -> None:
        members = self.classic_members(group)
        if members:
            self.coordinator.sync(group, members[-1 - number % len(members)], assignment=ASSIGNMENT)

    @rule(group=GROUPS)
    def complete_a_rebalance(self, group: str) -> None:
        """All that are in a group come to its next generation, and get their assignments."""
        for member in self.classic_members(group):
            self.joining.append((group, self.coordinator.start_join(group, member.member_id)))
        self.coordinator.pass_time(CONFIG.classic.initial_rebalance_delay_ms)
        for member in self.classic_members(group):
            self.coordinator.sync(group, member, assignment=ASSIGNMENT)

    @rule(group=GROUPS, number=NUMBERS)
    def heartbeat(self, group: str, number: int) -> None:
        members = self.classic_members(group)
        if members:
            self.coordinator.heartbeat(group, members[-1 - number % len(members)])

    @rule(group=GROUPS, number=NUMBERS)
    def leave(self, group: str, number: int) -> None:
        members = self.classic_members(group)
        if members:
            self.coordinator.leave(group, members[-1 - number % len(members)].member_id)

    # members of the consumer protocol

    @rule(group=GROUPS, member_id=st.sampled_from(("m", "n")), topic=TOPIC_NAMES)
    def consume(self, group: str, member_id: str, topic: str) -> None:
        self.note(group, self.coordinator.consume(group, member_id, 0, (topic,)))

    @rule(group=GROUPS, member_id=st.sampled_from(("m", "n")))
    def go_on_consuming(self, group: str, member_id: str) -> None:
        epoch = self.consumers.get((group, member_id), 1)
        self.note(group, self.coordinator.consume(group, member_id, epoch))

    @rule(group=GROUPS, member_id=st.sampled_from(("m", "n")))
    def stop_consuming(self, group: str, member_id: str) -> None:
        self.coordinator.consume(group, member_id, -1)

    @rule(group=GROUPS)
    def go_over(self, group: str) -> None:
        """Classic members settle, and a member of the consumer protocol comes to them."""
        self.joining.append((group, self.coordinator.start_join(group)))
        self.complete_a_rebalance(group)
        self.consume(group, "m", "t")

    def note(self, group: str, reply: Any) -> None:
        if reply.error_code == ErrorCode.NONE:
            self.consumers[group, reply.member_id] = reply.member_epoch

    # the world

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.coordinator.delete(group)

    @rule(cluster=st.sampled_from(CLUSTERS))
    def change_topics(self, cluster: dict[str, TopicInfo]) -> None:
        coordinator = self.coordinator
        coordinator.topics = cluster
        coordinator.take(coordinator.shard.topics_changed(cluster, coordinator.now))

    @rule(ms=st.sampled_from((1, 3_000, 9_000, 30_000, 250_000)))
    def pass_time(self, ms: int) -> None:
        self.coordinator.pass_time(ms)

    @invariant()
    def the_log_gives_the_same(self) -> None:
        live, loaded = self.coordinator, self.coordinator.reloaded()
        assert live.fetch_all("g") == loaded.fetch_all("g")
        assert live.fetch_all("h", require_stable=True) == loaded.fetch_all("h", require_stable=True)
        groups = live.listed()
        assert {name: type_ for name, _, _, type_ in groups} == {name: type_ for name, _, _, type_ in loaded.listed()}
        settled = [name for name, _, state, type_ in groups if type_ == "consumer" or state in ("Empty", "Stable")]
        assert described(live, settled) == described(loaded, settled)

    def teardown(self) -> None:
        """Without a sign of life, members are put out, offsets forgotten, and groups too."""
        coordinator = self.coordinator
        for producer_id in (1, 2):
            coordinator.end_transaction(producer_id, committed=True)
        coordinator.pass_time(2_000_000)
        assert all(token in coordinator.replies for _, token in self.joining)
        assert (coordinator.listed(), coordinator.fetch_all("g"), coordinator.fetch_all("h")) == ([], {}, {})
        assert coordinator.reloaded().listed() == []


def described(coordinator: Coordinator, names: list[str]) -> list[Any]:
    shard = coordinator.shard
    classic = coordinator.do(lambda token: shard.describe_groups(names, 6, token))
    consumer = coordinator.do(lambda token: shard.consumer_group_describe(names, token))
    return [*classic, *consumer]


TestShard = Shard.TestCase
TestShard.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
