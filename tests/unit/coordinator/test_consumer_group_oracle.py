"""Apache Kafka judges the consumer group: the same requests, drawn at random, to a real broker and to the state
machine, one after the other. Every answer must be the same, and so must the description, and the group that Kafka's log
holds.

All members ask for the `range` assignor, because of two assignments that are as even as each other `uniform` may pick
either. Left out of the comparison is the hash of the metadata, which is another function here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any

import pytest

from barnabas.coordinator import mixed_group
from barnabas.coordinator.consumer_group import ConsumerGroup, ConsumerGroupConfig
from barnabas.coordinator.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    encode_subscription,
)
from barnabas.coordinator.consumer_state import ConsumerGroupState
from barnabas.coordinator.group import CommittedPartition
from barnabas.coordinator.group_records import OffsetCommitKey
from barnabas.coordinator.outcome import Now
from barnabas.coordinator.records import decode_group_record
from barnabas.coordinator.subscriptions import TopicInfo, Topics
from barnabas.coordinator.timers import Timers
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest
from barnabas.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from tests.broker.wire_client import Client
from tests.peers import KafkaServer
from tests.unit.coordinator.conftest import MAX_CONSUMER_SIZE

SCRIPTS = [*range(10), *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(10, 30))]
STEPS = 60
CONFIG = ConsumerGroupConfig(assignment_interval_ms=0, max_size=MAX_CONSUMER_SIZE)
PARTITIONS = {"apples": 5, "pears": 3, "plums": 2}
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def kafka(judge: KafkaServer) -> Iterator[Client]:
    with Client(judge.address) as client:
        for name, count in PARTITIONS.items():
            client.create_topic(count, name=name)
        deadline = time.monotonic() + 30
        while client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0].error_code:
            assert time.monotonic() < deadline, "Kafka has no group coordinator"
            time.sleep(0.1)
        yield client


@pytest.fixture(scope="module")
def topics(kafka: Client) -> Topics:
    asked = [MetadataRequestTopic(name=name) for name in PARTITIONS]
    found = kafka.call(MetadataRequest(topics=asked), 12).topics
    return MappingProxyType({topic.name: TopicInfo(topic.topic_id, len(topic.partitions)) for topic in found})


@dataclass
class Member:
    """A client, of one protocol or the other, and what it knows."""

    member_id: str
    instance_id: str | None
    is_classic: bool
    topics: list[str]
    epoch: int = 0
    owned: set[tuple[bytes, int]] = field(default_factory=set)
    told: set[tuple[bytes, int]] = field(default_factory=set)


class Desk:
    """Gives every request to both, and fails where they differ."""

    def __init__(self, kafka: Client, topics: Topics, group_id: str) -> None:
        self.kafka = kafka
        self.topics = topics
        self.names = {topic.id: name for name, topic in topics.items()}
        self.group = ConsumerGroup(group_id, CONFIG, Timers(), Random(1))
        self.trace: list[Any] = []

    @property
    def group_id(self) -> str:
        return self.group.group_id

    def ours(self, request: Any, version: int) -> Any:
        group, topics, now = self.group, self.topics, Now(1, 1)
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            out = group.heartbeat(request, version, "test", "/127.0.0.1", topics, 0, now)
        elif isinstance(request, JoinGroupRequest):
            out = mixed_group.join(group, request, version, "test", "/127.0.0.1", topics, 0, now)
        elif isinstance(request, SyncGroupRequest):
            out = mixed_group.sync(group, request, topics, 0, now)
        elif isinstance(request, HeartbeatRequest):
            out = mixed_group.heartbeat(group, request, 0, now)
        else:
            out = mixed_group.leave(group, request, version, 0)
        return out.replies[0][1]

    def call(self, request: Any, version: int) -> Any:
        deadline = time.monotonic() + 20
        while True:
            theirs = self.kafka.call(request, version)
            busy = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
            if getattr(theirs, "error_code", 0) not in busy or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        ours = self.ours(request, version)
        self.trace.append((request, theirs))
        assert comparable(ours) == comparable(theirs), self.trace
        return theirs

    def commit(self, member_id: str, epoch: int, topic: str, partition: int) -> None:
        committed = [OffsetCommitRequestPartition(partition, 1, committed_metadata="")]
        request = OffsetCommitRequest(
            self.group_id, epoch, member_id, topics=[OffsetCommitRequestTopic(topic, partitions=committed)]
        )
        theirs = self.kafka.call(request, 9).topics[0].partitions[0].error_code
        ours = 0
        try:
            self.group.validate_offset_commit(
                member_id,
                None,
                epoch,
                is_transactional=False,
                api_version=9,
                partitions=[CommittedPartition(topic, self.topics[topic].id, partition)],
            )
        except KafkaError as refusal:
            ours = refusal.code
        self.trace.append((request, theirs))
        assert ours == theirs, (ours, theirs, self.trace)

    def compare_descriptions(self) -> None:
        [theirs] = self.kafka.call(ConsumerGroupDescribeRequest([self.group_id]), 1).groups
        ours = self.group.described(self.topics, CONFIG.assignors)
        for described in (ours, theirs):
            described.authorized_operations = 0
            described.members.sort(key=lambda member: member.member_id)
            for member in described.members:
                member.subscribed_topic_names.sort()
                for assignment in (member.assignment, member.target_assignment):
                    assignment.topic_partitions.sort(key=lambda topic: topic.topic_name)
                    for topic in assignment.topic_partitions:
                        topic.partitions.sort()
        assert ours == theirs, (ours, theirs, self.trace)

    def compare_logs(self) -> None:
        """Kafka's records, folded here, are the group that came about here."""
        folded = ConsumerGroupState(self.group_id)
        for record in self.kafka.read_all("__consumer_offsets"):
            key, value = decode_group_record(bytes(record.key or b""), record.value and bytes(record.value))
            if getattr(key, "group_id", None) == self.group_id and not isinstance(key, OffsetCommitKey):
                folded.fold(key, value)
        assert folded.group_epoch == self.group.group_epoch
        assert folded.assignment_epoch == self.group.assignment_epoch
        assert folded.targets == self.group.targets
        assert folded.members == self.group.members


def comparable(response: Any) -> Any:
    """The answer, without the order and the words that are nobody's business."""
    if getattr(response, "error_code", 0):
        return type(response), response.error_code
    if getattr(response, "assignment", None) is not None and hasattr(response.assignment, "topic_partitions"):
        response.assignment.topic_partitions.sort(key=lambda topic: topic.topic_id)
        for topic in response.assignment.topic_partitions:
            topic.partitions.sort()
    elif getattr(response, "assignment", None) is not None:
        assigned = decode_assignment(response.assignment).assigned_partitions
        return sorted((topic.topic, sorted(topic.partitions)) for topic in assigned), response.protocol_name
    return response


class Script:
    def __init__(self, desk: Desk, random: Random) -> None:
        self.desk = desk
        self.random = random
        self.members = [Member("anchor", None, False, ["apples"])]  # stays, so that the group stays what it is
        self.beat(self.members[0])
        self.born = 0

    def step(self) -> None:
        random = self.random
        member = random.choice(self.members)
        action = random.choice(["beat"] * 8 + ["come"] * 3 + ["leave", "subscribe", "commit", "commit", "odd", "lost"])
        if action == "come":
            self.come()
        elif action == "leave" and member.member_id != "anchor":
            self.leave(member)
        elif action == "subscribe":
            member.topics = self.draw_topics()
            self.beat(member, full=True)
        elif action == "commit":
            owned = sorted(member.owned) or [(self.desk.topics["apples"].id, 0)]
            topic_id, partition = random.choice(owned)
            epoch = max(0, member.epoch - random.choice([0, 0, 1, 2, -1]))
            self.desk.commit(member.member_id, epoch, self.desk.names[topic_id], partition)
        elif action == "odd":
            self.odd(member)
        else:
            self.beat(member, full=random.random() < 0.2, revokes=random.random() < 0.7, lost=action == "lost")

    def draw_topics(self) -> list[str]:
        return sorted(self.random.sample(sorted(PARTITIONS), self.random.randint(1, 3)))

    def come(self) -> None:
        random = self.random
        self.born += 1
        instance_id = random.choice([None, None, None, "i1", "i2"])
        if any(member.instance_id == instance_id is not None for member in self.members):
            instance_id = None
        member = Member(f"m{self.born}", instance_id, random.random() < 0.4, self.draw_topics())
        if member.is_classic:
            if instance_id is not None:
                return  # would be given an id that both draw for themselves
            self.join(member)
        else:
            self.beat(member)
        if member.epoch > 0:
            self.members.append(member)

    def beat(self, member: Member, *, full: bool = False, revokes: bool = True, lost: bool = False) -> None:
        if member.is_classic:
            self.beat_classic(member, full)
            return
        full = full or lost or member.epoch == 0
        response = self.desk.call(
            ConsumerGroupHeartbeatRequest(
                group_id=self.desk.group_id,
                member_id=member.member_id,
                member_epoch=member.epoch,
                instance_id=member.instance_id,
                rebalance_timeout_ms=HOUR_MS if full else -1,
                subscribed_topic_names=member.topics if full else None,
                subscribed_topic_regex="" if full else None,
                server_assignor="range" if full else None,
                topic_partitions=self.reported(member),
            ),
            1,
        )
        if response.error_code == ErrorCode.FENCED_MEMBER_EPOCH:
            member.epoch = 0  # two answers in a row were lost: it drops everything, and joins again
            member.owned.clear()
            self.beat(member)
        if response.error_code:
            return
        if lost:
            return
        member.epoch = response.member_epoch
        if response.assignment is not None:
            member.told = {
                (topic.topic_id, partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            }
            member.owned |= member.told
        if revokes:
            member.owned &= member.told

    def reported(self, member: Member) -> list[TopicPartitions]:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(member.owned):
            by_topic.setdefault(topic_id, []).append(partition)
        return [TopicPartitions(topic_id, partitions) for topic_id, partitions in by_topic.items()]

    def beat_classic(self, member: Member, again: bool) -> None:
        request = HeartbeatRequest(self.desk.group_id, member.epoch, member.member_id)
        error = self.desk.call(request, 4).error_code
        if error == ErrorCode.REBALANCE_IN_PROGRESS or again:
            self.join(member)

    def join(self, member: Member) -> None:
        owned = [TopicPartition(self.desk.names[topic.topic_id], topic.partitions) for topic in self.reported(member)]
        subscription = ConsumerProtocolSubscription(member.topics, owned_partitions=owned)
        protocol = JoinGroupRequestProtocol("cooperative-sticky", encode_subscription(subscription, 1))
        request = JoinGroupRequest(
            group_id=self.desk.group_id,
            session_timeout_ms=HOUR_MS,
            rebalance_timeout_ms=HOUR_MS,
            member_id=member.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        response = self.desk.call(request, 9)
        if response.error_code:
            return
        member.epoch = response.generation_id
        sync = SyncGroupRequest(
            self.desk.group_id, member.epoch, member.member_id, None, "consumer", "cooperative-sticky"
        )
        synced = self.desk.call(sync, 5)
        if not synced.error_code:
            member.owned = {
                (self.desk.topics[topic.topic].id, partition)
                for topic in decode_assignment(synced.assignment).assigned_partitions
                for partition in topic.partitions
            }

    def leave(self, member: Member) -> None:
        self.members = [other for other in self.members if other is not member]
        if member.is_classic:
            self.desk.call(LeaveGroupRequest(self.desk.group_id, members=[MemberIdentity(member.member_id)]), 5)
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.desk.group_id,
            member_id=member.member_id,
            member_epoch=-2 if member.instance_id else -1,
            instance_id=member.instance_id,
        )
        self.desk.call(request, 1)

    def odd(self, member: Member) -> None:
        """What no client should send."""
        random = self.random
        any_id = random.choice([member.member_id, "nobody"])
        epoch = member.epoch + random.choice([-2, -1, 1])
        request = random.choice(
            [
                ConsumerGroupHeartbeatRequest(
                    group_id=self.desk.group_id,
                    member_id=any_id,
                    member_epoch=max(1, epoch),
                    topic_partitions=random.choice([None, [TopicPartitions(self.desk.topics["plums"].id, [0, 1])]]),
                ),
                HeartbeatRequest(self.desk.group_id, epoch, any_id),
                SyncGroupRequest(self.desk.group_id, epoch, any_id, None, "consumer", "range"),
                LeaveGroupRequest(self.desk.group_id, members=[MemberIdentity("nobody")]),
            ]
        )
        if isinstance(request, ConsumerGroupHeartbeatRequest) and member.is_classic:
            return  # would make it a member of the consumer protocol
        self.desk.call(request, {12: 4, 13: 5, 14: 5, 68: 1}[type(request).__schema__.key])  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", SCRIPTS)
def test_every_answer_is_that_of_apache_kafka(kafka: Client, topics: Topics, seed: int) -> None:
    desk = Desk(kafka, topics, f"script-{seed}-{time.time_ns()}")
    script = Script(desk, Random(seed))
    for _ in range(STEPS):
        script.step()
        desk.compare_descriptions()
    desk.compare_logs()


REFUSED: list[dict[str, Any]] = [
    {"instance_id": ""},
    {"rack_id": ""},
    {"member_id": ""},
    {"member_id": "", "member_epoch": 1},
    {"rebalance_timeout_ms": -1},
    {"topic_partitions": None},
    {"topic_partitions": [TopicPartitions(bytes(16), [0])]},
    {"subscribed_topic_names": None},
    {"member_epoch": -3},
    {"member_epoch": -2},
    {"server_assignor": "guess"},
    {"subscribed_topic_regex": "("},
    {"subscribed_topic_regex": "(?=a)"},
    {"member_id": "nobody", "member_epoch": 1},
    {"member_id": "nobody", "member_epoch": -1},
    {"member_epoch": -2, "instance_id": "i"},
    {"member_epoch": 1, "instance_id": "i"},
]


def test_what_is_wrong_is_refused_with_the_same_code(kafka: Client, topics: Topics) -> None:
    desk = Desk(kafka, topics, f"refusals-{time.time_ns()}")
    joining: dict[str, Any] = {
        "group_id": desk.group_id,
        "member_id": "m",
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["apples"],
        "topic_partitions": [],
    }
    desk.call(ConsumerGroupHeartbeatRequest(**joining), 1)
    for fields in REFUSED:
        response = desk.call(ConsumerGroupHeartbeatRequest(**{**joining, **fields}), 1)
        assert response.error_code, fields
    desk.compare_descriptions()
