"""A group shard with a log of its own: operations are run, their records kept, and the log can be loaded again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from barnabas.coordinator.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from barnabas.coordinator.group_shard import GroupShard, GroupShardConfig
from barnabas.coordinator.outcome import CoordinatorRecord, Now, Outcome, Token
from barnabas.coordinator.subscriptions import TopicInfo, Topics
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

TOPICS: Topics = {"t": TopicInfo(b"t" * 16, 4), "u": TopicInfo(b"u" * 16, 2)}
NO_PRODUCER = -1
START = Now(1_000, 1_700_000_000_000)
WAITING = object()
"""Instead of a reply that is still owed."""


class Ended(NamedTuple):
    """A transaction's marker in the log."""

    producer_id: int
    committed: bool


class Member(NamedTuple):
    member_id: str
    generation_id: int


NOBODY = Member("", -1)


class Coordinator:
    def __init__(self, config: GroupShardConfig | None = None, topics: Topics = TOPICS) -> None:
        self.config = config or GroupShardConfig()
        self.topics = topics
        self.now = START
        self.log: list[tuple[CoordinatorRecord, int] | Ended] = []
        self.replies: dict[Token, Any] = {}
        self.shard = GroupShard(self.config, Random(1), topics)
        self.take(self.shard.loaded(self.now))

    def take(self, outcome: Outcome, producer_id: int = NO_PRODUCER) -> None:
        self.log += [(record, producer_id) for record in outcome.records]
        for token, reply in outcome.replies:
            assert token not in self.replies, f"{token} is answered twice"
            self.replies[token] = reply

    def do(self, operation: Callable[[Token], Outcome], producer_id: int = NO_PRODUCER) -> Any:
        """The reply to an operation, which is handed its token."""
        token = object()
        self.take(operation(token), producer_id)
        return self.replies.get(token, WAITING)

    def pass_time(self, ms: int) -> None:
        """Let time pass, with every deadline on the way."""
        end = Now(self.now.monotonic_ms + ms, self.now.wall_ms + ms)
        while (deadline := self.shard.next_deadline_ms) is not None and deadline <= end.monotonic_ms:
            self.now = Now(deadline, self.now.wall_ms + deadline - self.now.monotonic_ms)
            self.take(self.shard.expire(self.now))
        self.now = end

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.log.append(Ended(producer_id, committed))
        self.shard.replay_end(producer_id, committed)

    def reloaded(self) -> Coordinator:
        """A new shard from the log."""
        other = Coordinator(self.config, self.topics)
        other.shard = load(self.log, self.config, self.topics)
        other.log = list(self.log)
        other.now = self.now
        other.take(other.shard.loaded(self.now))
        return other

    # operations in short

    def commit(
        self,
        offset: int,
        *,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
        member: Member = NOBODY,
        instance: str | None = None,
        metadata: str | None = None,
        retention_ms: int = -1,
        version: int = 9,
    ) -> ErrorCode:
        info = self.topics.get(topic)
        request = OffsetCommitRequest(
            group,
            member.generation_id,
            member.member_id,
            instance,
            retention_ms,
            [
                OffsetCommitRequestTopic(
                    topic,
                    info.id if info else bytes(16),
                    [OffsetCommitRequestPartition(partition, offset, 7, metadata)],
                )
            ],
        )
        response = self.do(lambda token: self.shard.offset_commit(request, version, token, self.now))
        assert isinstance(response, OffsetCommitResponse)
        assert response.topics[0].partitions[0].partition_index == partition
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def commit_in_transaction(
        self,
        offset: int,
        producer_id: int,
        *,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
        member: Member = NOBODY,
        version: int = 5,
        metadata: str | None = None,
    ) -> ErrorCode:
        request = TxnOffsetCommitRequest(
            "x", group, producer_id, 0, member.generation_id, member.member_id, None,
            [TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(partition, offset, 7, metadata)])],
        )  # fmt: skip
        response = self.do(lambda token: self.shard.txn_offset_commit(request, version, token, self.now), producer_id)
        assert isinstance(response, TxnOffsetCommitResponse)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def fetch(
        self,
        topic: str = "t",
        partition: int = 0,
        *,
        group: str = "g",
        topic_id: bytes = bytes(16),
        require_stable: bool = False,
    ) -> tuple[int, int, str, ErrorCode]:
        topics = [OffsetFetchRequestTopics(topic, topic_id, [partition])]
        found = self.fetch_group(OffsetFetchRequestGroup(group, topics=topics), require_stable=require_stable)
        (only,) = found.topics[0].partitions
        assert only.partition_index == partition
        return only.committed_offset, only.committed_leader_epoch, only.metadata, ErrorCode(only.error_code)

    def fetch_group(self, request: OffsetFetchRequestGroup, *, require_stable: bool = False) -> Any:
        return self.do(lambda token: self.shard.offset_fetch(request, require_stable=require_stable, token=token))

    def fetch_all(self, group: str = "g", *, require_stable: bool = False) -> dict[tuple[str, int], tuple[int, int]]:
        found = self.fetch_group(OffsetFetchRequestGroup(group, topics=None), require_stable=require_stable)
        return {
            (topic.name, partition.partition_index): (partition.committed_offset, partition.error_code)
            for topic in found.topics
            for partition in topic.partitions
        }

    def join(
        self,
        group: str = "g",
        *,
        member_id: str = "",
        instance: str | None = None,
        topics: tuple[str, ...] = ("t",),
        protocol_type: str = "consumer",
        version: int = 3,
    ) -> Any:
        return self.replies.get(self.start_join(group, member_id, instance, topics, protocol_type, version), WAITING)

    def start_join(
        self,
        group: str,
        member_id: str = "",
        instance: str | None = None,
        topics: tuple[str, ...] = ("t",),
        protocol_type: str = "consumer",
        version: int = 3,
    ) -> Token:
        """The token of a JoinGroup, whose answer may come later."""
        token = object()
        protocol = JoinGroupRequestProtocol("range", encode_subscription(ConsumerProtocolSubscription(list(topics)), 1))
        request = JoinGroupRequest(group, 10_000, 30_000, member_id, instance, protocol_type, [protocol])
        self.take(self.shard.join_group(request, version, "c", "/127.0.0.1", token, self.now))
        return token

    def settle(
        self,
        group: str = "g",
        *,
        instance: str | None = None,
        topics: tuple[str, ...] = ("t",),
        protocol_type: str = "consumer",
        assignment: bytes = b"",
    ) -> Member:
        """A stable group of one member."""
        token = self.start_join(group, "", instance, topics, protocol_type)
        self.pass_time(self.config.classic.initial_rebalance_delay_ms)
        joined = self.replies[token]
        assert joined.error_code == ErrorCode.NONE
        member = Member(joined.member_id, joined.generation_id)
        synced = self.sync(group, member, instance, assignment=assignment)
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, assignment)
        return member

    def sync(self, group: str, member: Member, instance: str | None = None, *, assignment: bytes = b"") -> Any:
        request = SyncGroupRequest(
            group, member.generation_id, member.member_id, instance,
            assignments=[SyncGroupRequestAssignment(member.member_id, assignment)],
        )  # fmt: skip
        return self.do(lambda token: self.shard.sync_group(request, token, self.now))

    def heartbeat(self, group: str, member: Member) -> ErrorCode:
        request = HeartbeatRequest(group, member.generation_id, member.member_id)
        return ErrorCode(self.do(lambda token: self.shard.heartbeat(request, token, self.now)).error_code)

    def leave(self, group: str, member_id: str) -> ErrorCode:
        request = LeaveGroupRequest(group, member_id)
        return ErrorCode(self.do(lambda token: self.shard.leave_group(request, 2, token, self.now)).error_code)

    def consume(self, group: str, member_id: str, epoch: int, topics: tuple[str, ...] | None = None) -> Any:
        """A ConsumerGroupHeartbeat; with topics it says all that a member has to say of itself."""
        request = ConsumerGroupHeartbeatRequest(group, member_id, epoch)
        if topics is not None:
            request.rebalance_timeout_ms = 30_000
            request.subscribed_topic_names = list(topics)
            request.topic_partitions = []
        return self.do(
            lambda token: self.shard.consumer_group_heartbeat(request, 1, "c", "/127.0.0.1", token, self.now)
        )

    def listed(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[tuple[str, str, str, str]]:
        listed = self.do(lambda token: self.shard.list_groups(states, types, token))
        return [(group.group_id, group.protocol_type, group.group_state, group.group_type) for group in listed]

    def delete(self, *groups: str) -> list[ErrorCode]:
        results = self.do(lambda token: self.shard.delete_groups(groups, token, self.now))
        assert [result.group_id for result in results] == list(groups)
        return [ErrorCode(result.error_code) for result in results]


def load(log: list[tuple[CoordinatorRecord, int] | Ended], config: GroupShardConfig, topics: Topics) -> GroupShard:
    shard = GroupShard(config, Random(2), topics)
    for offset, entry in enumerate(log):
        if isinstance(entry, Ended):
            shard.replay_end(*entry)
        else:
            shard.replay(entry[0], offset, entry[1])
    return shard
