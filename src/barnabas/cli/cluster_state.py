"""A cluster as its brokers tell it, and what of it is not as it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from barnabas.client.admin.cluster import Cluster, ClusterDescription
from barnabas.client.admin.configs import ConfigResource, Configs, ResourceType
from barnabas.client.admin.reassignments import Reassignment, Reassignments
from barnabas.client.admin.topics import Topics
from barnabas.client.client import Client
from barnabas.client.metadata import NO_LEADER, PartitionInfo, TopicInfo, TopicPartition
from barnabas.core.dataclass import dataclass

MIN_ISR = "min.insync.replicas"
NO_CONTROLLER = -1


@dataclass(frozen=True, slots=True)
class ClusterState:
    cluster: ClusterDescription
    topics: Sequence[TopicInfo]
    moves: Sequence[Reassignment]

    @property
    def partitions(self) -> dict[TopicPartition, PartitionInfo]:
        return {TopicPartition(topic.name, each.partition): each for topic in self.topics for each in topic.partitions}

    @property
    def alive(self) -> list[int]:
        return [each.node_id for each in self.cluster.brokers if each.node_id not in self.cluster.fenced]

    @property
    def missing(self) -> list[int]:
        """Brokers that have replicas and are not registered."""
        named = {broker for partition in self.partitions.values() for broker in partition.replicas}
        return sorted(named - {each.node_id for each in self.cluster.brokers})


async def look(client: Client) -> ClusterState:
    """Everything as it is now."""
    return ClusterState(
        await Cluster(client).describe(),
        list((await Topics(client).describe_many()).values()),
        await Reassignments(client).list(),
    )


async def min_in_sync(client: Client, state: ClusterState) -> dict[str, int]:
    """How many replicas of each topic have to be in sync."""
    topics = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in state.topics]
    found = await Configs(client).describe_many(topics, [MIN_ISR])
    return {topic.name: int(entries[MIN_ISR].value or 1) for topic, entries in found.items()}


def broker_rows(state: ClusterState) -> list[dict[str, object]]:
    """A row for each broker that is registered, or has replicas without being it."""
    partitions = state.partitions.values()
    leaders = Counter(partition.leader for partition in partitions)
    replicas = Counter(broker for partition in partitions for broker in partition.replicas)
    in_sync = Counter(broker for partition in partitions for broker in partition.isr)

    def row(broker: int, address: str | None, rack: str | None, what: str) -> dict[str, object]:
        return {
            "broker": broker,
            "address": address,
            "rack": rack,
            "controller": broker == state.cluster.controller_id,
            "state": what,
            "leaders": leaders[broker],
            "replicas": replicas[broker],
            "in_sync": in_sync[broker],
        }

    registered = (
        row(each.node_id, str(each.address), each.rack, "fenced" if each.node_id in state.cluster.fenced else "alive")
        for each in state.cluster.brokers
    )
    return [*registered, *(row(broker, None, None, "missing") for broker in state.missing)]


def health(state: ClusterState, min_isr: Mapping[str, int]) -> dict[str, Any]:
    """What is wrong: partitions by the kind of their trouble, and brokers that do not serve."""
    troubles: dict[str, list[dict[str, object]]] = {"offline": [], "under_min_isr": [], "under_replicated": []}
    adding = {move.partition: move.adding for move in state.moves}
    for partition, info in state.partitions.items():
        needed = min(min_isr.get(partition.topic, 1), len(info.replicas))
        for trouble in _troubles(info, needed, adding.get(partition, ())):
            troubles[trouble].append(
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "leader": None if info.leader == NO_LEADER else info.leader,
                    "replicas": list(info.replicas),
                    "isr": list(info.isr),
                    "min_isr": needed,
                    "elr": list(info.eligible_leader_replicas),
                }
            )
    fenced, missing = sorted(state.cluster.fenced), state.missing
    has_controller = state.cluster.controller_id != NO_CONTROLLER
    return {
        "healthy": has_controller and not (fenced or missing or any(troubles.values())),
        "controller": state.cluster.controller_id if has_controller else None,
        "brokers": {"alive": state.alive, "fenced": fenced, "missing": missing},
        "partitions": len(state.partitions),
        "reassigning": len(state.moves),
        **troubles,
    }


def _troubles(info: PartitionInfo, needed: int, adding: Sequence[int]) -> Iterator[str]:
    if info.leader == NO_LEADER:
        yield "offline"
    if len(info.isr) < needed:
        yield "under_min_isr"
    if len(info.isr) < sum(replica not in adding for replica in info.replicas):  # what comes is not missed yet
        yield "under_replicated"
