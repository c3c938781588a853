"""What a client knows about the cluster: brokers, topics, and who leads which partition.

The picture is immutable and replaced as a whole. It is asked for once per topic, and again when an answer shows that it
is out of date (NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, a connection that broke). Any broker can tell it;
those given at the start serve as long as no other is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from itertools import zip_longest
from random import Random
from typing import Any, NamedTuple

from barnabas.client.connections import Address, Connections
from barnabas.client.errors import CannotReach, NoAnswer, refused
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic

NO_LEADER = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The shape that most requests want."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    node_id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...] = ()
    """With the next one: told by `admin.topics` alone, Metadata knows nothing of them (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)


class Metadata:
    """The current picture, and the way to a newer one."""

    def __init__(self, connections: Connections, bootstrap: Iterable[Address], random: Random) -> None:
        self.cluster = ClusterInfo()
        self._newest: dict[str, TopicInfo] = {}
        """Of each topic that was ever seen, also if it is forgotten: the partitions under their latest leaders."""
        self._connections = connections
        self._bootstrap = list(bootstrap)
        self._random = random

    def known_addresses(self) -> list[Address]:
        """Whom to ask: the brokers of the last picture in random order, then those given at the start."""
        known = [broker.address for broker in self.cluster.brokers.values()]
        self._random.shuffle(known)
        return list(dict.fromkeys([*known, *self._bootstrap]))

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """A topic, from the picture or from the cluster; `create` lets the broker make it if it is configured to."""
        if name not in self.cluster.topics:
            await self.refresh([name], create=create)
        return self.cluster.topics[name]

    async def all_topics(self) -> list[TopicInfo]:
        await self.refresh(None)
        return sorted(self.cluster.topics.values(), key=lambda topic: topic.name)

    async def leader_of(self, partition: TopicPartition) -> BrokerInfo:
        """The broker that leads a partition now, as far as is known."""
        topic = await self.topic(partition.topic)
        if not 0 <= partition.partition < len(topic.partitions):
            count = len(topic.partitions)
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic.name!r} has no partition {partition.partition}; it has {count}, counted from 0",
            )
        leader = self.cluster.brokers.get(topic.partitions[partition.partition].leader)
        if leader is None:
            self.forget([topic.name])
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader at the moment")
        return leader

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The epoch that a leader must be of to be the one in the picture; -1 where that is not known."""
        topic = self.cluster.topics.get(partition.topic)
        return topic.partitions[partition.partition].leader_epoch if topic else -1

    def forget(self, topics: Iterable[str]) -> None:
        """Drop what an answer has proved wrong; the next look asks the cluster."""
        left = {name: topic for name, topic in self.cluster.topics.items() if name not in set(topics)}
        self.cluster = replace(self.cluster, topics=left)

    async def refresh(self, topics: Iterable[str] | None, *, create: bool = False) -> None:
        """Ask for some topics, or for all with None; an error of a topic that was asked for by name is raised."""
        names = None if topics is None else list(topics)
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=create,
        )
        response = await self.ask_any(request)
        found = {}
        problem: KafkaError | None = None
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE:
                found[topic.name] = self._newest[topic.name] = self._merged(topic_info(topic))
            elif names is not None:
                problem = problem or topic_error(topic.error_code, topic.name)
        if names is None:
            self._newest = dict(found)
        kept = {} if names is None else {n: t for n, t in self.cluster.topics.items() if n not in set(names)}
        brokers = {b.node_id: BrokerInfo(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self.cluster = ClusterInfo(response.cluster_id, response.controller_id, brokers, {**kept, **found})
        if problem is not None:
            raise problem

    def _merged(self, told: TopicInfo) -> TopicInfo:
        """What is told, but no leader that another has followed: who was away may not know it (KIP-320)."""
        known = self._newest.get(told.name)
        if known is None or known.topic_id != told.topic_id:
            return told
        pairs = zip_longest(told.partitions, known.partitions)
        newest = (old if new is None or (old and old.leader_epoch > new.leader_epoch) else new for new, old in pairs)
        return replace(told, partitions=tuple(newest))

    async def ask_any(self, message: Any, *, highest: int | None = None) -> Any:
        """The answer of the first broker that can be reached."""
        problem: KafkaError | None = None
        names = {broker.address: f"broker {broker.node_id}" for broker in self.cluster.brokers.values()}
        for address in self.known_addresses():
            try:
                name = names.get(address, "broker")
                return await self._connections.request(address, message, broker=name, highest=highest)
            except (CannotReach, NoAnswer) as error:
                problem = problem or error
        assert problem is not None
        raise problem


def topic_info(topic: Any) -> TopicInfo:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicInfo(
        topic.name,
        topic.topic_id,
        topic.is_internal,
        tuple(
            PartitionInfo(
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                tuple(partition.offline_replicas),
            )
            for partition in partitions
        ),
    )


def topic_error(code: int, name: str) -> KafkaError:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        allowed = "up to 249 letters, digits, '.', '_' and '-'"
        return KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} cannot be the name of a topic; it takes {allowed}"
        )
    return refused(code, f"topic {name!r}")
