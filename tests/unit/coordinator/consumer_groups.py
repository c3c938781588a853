"""A consumer group and clients of it for tests: every outcome is replayed, as a coordinator that takes over would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any

from barnabas.coordinator.consumer_group import ConsumerGroup, ConsumerGroupConfig
from barnabas.coordinator.outcome import Now, Outcome
from barnabas.coordinator.records import decode_group_record
from barnabas.coordinator.subscriptions import TopicInfo, Topics
from barnabas.coordinator.timers import TimerKey, Timers
from barnabas.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

GROUP = "readers"
EAGER = ConsumerGroupConfig(assignment_interval_ms=0)


def topic_id(name: str, incarnation: int = 0) -> bytes:
    return f"{name}/{incarnation}".encode().ljust(16, b".")


def topics_of(partition_counts: Mapping[str, int]) -> Topics:
    return MappingProxyType({name: TopicInfo(topic_id(name), count) for name, count in partition_counts.items()})


class Coordinator:
    """One group with its clock, its timers and its log."""

    def __init__(self, topics: Mapping[str, int], config: ConsumerGroupConfig = EAGER) -> None:
        self.timers: Timers[TimerKey] = Timers()
        self.group = ConsumerGroup(GROUP, config, self.timers, Random(7))
        self.topics = topics_of(topics)
        self.now = Now(1_000, 1_700_000_000_000)
        self.log: list[tuple[bytes, bytes | None]] = []

    def pass_time(self, ms: int) -> None:
        self.now = Now(self.now.monotonic_ms + ms, self.now.wall_ms + ms)
        for key in self.timers.take_due(self.now.monotonic_ms):
            self.keep(self.group.expire(key, self.now))

    def set_topics(self, topics: Mapping[str, int]) -> None:
        self.topics = topics_of(topics)

    def keep(self, out: Outcome) -> Any:
        """Append the records, and give the reply, if there is one."""
        self.log += out.records
        return out.replies[-1][1] if out.replies else None

    def send(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        out = self.group.heartbeat(request, version, "client", "/127.0.0.1", self.topics, "token", self.now)
        assert [token for token, _ in out.replies] == ["token"]
        response: ConsumerGroupHeartbeatResponse = self.keep(out)
        if response.error_code:
            assert not out.records
        return response

    def replayed(self) -> ConsumerGroup:
        return replay(self.log)


def replay(log: Iterable[tuple[bytes, bytes | None]]) -> ConsumerGroup:
    group = ConsumerGroup(GROUP, EAGER, Timers(), Random(0))
    for key, value in log:
        group.fold(*decode_group_record(key, value))
    return group


def state_of(group: ConsumerGroup) -> dict[str, Any]:
    """All that the log must bring back."""
    return {
        name: value for name, value in vars(group).items() if name not in ("config", "timers", "_random", "_topics")
    }


class Client:
    """A consumer that does as it is told, at once or late. `owned` is what it works on."""

    def __init__(
        self,
        coordinator: Coordinator,
        member_id: str,
        topics: Iterable[str] | None = None,
        *,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 30_000,
    ) -> None:
        self.coordinator = coordinator
        self.member_id = member_id
        self.topics = None if topics is None else sorted(topics)
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.epoch = 0
        self.missed_an_answer = False
        self.owned: set[tuple[bytes, int]] = set()
        self.told: set[tuple[bytes, int]] = set()

    def heartbeat(self, *, full: bool = False, revokes: bool = True) -> ConsumerGroupHeartbeatResponse:
        """One round: say what it owns, hear what it shall own, give up the rest if it is quick."""
        full = full or self.epoch == 0 or self.missed_an_answer
        self.missed_an_answer = False
        response = self.coordinator.send(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=self.epoch,
                instance_id=self.instance_id,
                rebalance_timeout_ms=self.rebalance_timeout_ms if full else -1,
                subscribed_topic_names=self.topics if full else None,
                subscribed_topic_regex=self.regex if full else None,
                server_assignor=self.assignor if full else None,
                topic_partitions=self.reported(),
            )
        )
        if response.error_code:
            return response
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.told = {
                (topic.topic_id, partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            }
            self.owned |= self.told
        if revokes:
            self.owned &= self.told
        return response

    def reported(self) -> list[TopicPartitions]:
        if self.epoch == 0:
            self.owned.clear()
            self.told.clear()
        by_topic: dict[bytes, list[int]] = {}
        for topic, partition in sorted(self.owned):
            by_topic.setdefault(topic, []).append(partition)
        return [TopicPartitions(topic, partitions) for topic, partitions in by_topic.items()]

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        self.owned.clear()
        return self.coordinator.send(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
            )
        )

    @property
    def partitions(self) -> list[tuple[str, int]]:
        names = {topic.id: name for name, topic in self.coordinator.topics.items()}
        return sorted((names[topic], partition) for topic, partition in self.owned)


def settle(clients: Iterable[Client], rounds: int = 20) -> None:
    """Heartbeats in turn until all members have what they shall have."""
    clients = list(clients)
    group = clients[0].coordinator.group
    for _ in range(rounds):
        for client in clients:
            assert client.heartbeat().error_code == 0
        if group.state_name == "Stable":
            return
    raise AssertionError(f"the group is {group.state_name} after {rounds} rounds of heartbeats")
