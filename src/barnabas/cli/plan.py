"""A plan of reassignments: made by balancing, or read from a file in Kafka's format; checked, shown, written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.cli.cluster_state import ClusterState
from barnabas.client.metadata import PartitionInfo, TopicPartition
from barnabas.cluster.balance import Place, balance

Plan = Mapping[TopicPartition, tuple[int, ...]]
"""The new replicas of the partitions that change, the preferred leader first."""
_VERSION = 1


class PlanError(ValueError):
    """A plan that cannot be made, read or carried out; nothing was done."""


def propose(
    state: ClusterState, drain: Iterable[int] = (), factor: int | None = None, only: Sequence[str] = ()
) -> Plan:
    """An even spread over all brokers but the drained ones; with a factor, that many replicas; or of `only` some."""
    drained = set(drain)
    racks = {broker.node_id: broker.rack for broker in state.cluster.brokers}
    if unknown := sorted(drained - racks.keys() - set(state.missing)):
        raise PlanError(f"{_unknown(unknown[0], state)}; it cannot be drained")
    if down := sorted((state.cluster.fenced | set(state.missing)) - drained):
        raise PlanError(f"broker {down[0]} does not serve; start it, or move its replicas away with --drain {down[0]}")
    names = {topic.name for topic in state.topics}
    if strangers := [topic for topic in only if topic not in names]:
        raise PlanError(f"topic {strangers[0]!r} does not exist")
    targets = {broker: rack for broker, rack in racks.items() if broker not in drained}
    chosen = set(only) or names
    factors = None if factor is None else dict.fromkeys(chosen, factor)
    before = {Place(*partition): info.replicas for partition, info in state.partitions.items()}
    try:
        plan = balance(before, targets, factors, chosen)
    except ValueError as error:
        raise PlanError(f"{error}; start more, or have fewer replicas with --replication-factor") from None
    return {TopicPartition(*place): replicas for place, replicas in plan.items()}


def parse(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """A plan as kafka-reassign-partitions writes and reads it."""
    try:
        found = json.loads(text)
        if found.get("version", _VERSION) != _VERSION:
            raise PlanError(f"version {found['version']} is not known; {_VERSION} is")
        plan: dict[TopicPartition, tuple[int, ...]] = {}
        for entry in found["partitions"]:
            partition = TopicPartition(str(entry["topic"]), int(entry["partition"]))
            if partition in plan:
                raise PlanError(f"{partition} is in it more than once")
            if any(directory != "any" for directory in entry.get("log_dirs", ())):
                raise PlanError(f'{partition} names a log directory; a broker chooses it here, so say "any"')
            plan[partition] = tuple(int(replica) for replica in entry["replicas"])
    except PlanError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        form = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
        raise PlanError(f"it is not of the form {form}: {_explained(error)}") from None
    return plan


def _explained(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def check(plan: Plan, state: ClusterState) -> Plan:
    """What of a plan is not so already; PlanError if any of it cannot be done."""
    partitions = state.partitions
    registered = {broker.node_id for broker in state.cluster.brokers}
    for partition, replicas in plan.items():
        if partition not in partitions:
            raise PlanError(f"partition {partition} does not exist")
        if not replicas:
            raise PlanError(f"{partition} would have no replicas")
        if len(set(replicas)) < len(replicas):
            raise PlanError(f"{partition} would have two replicas on one broker")
        if unknown := [replica for replica in replicas if replica not in registered]:
            raise PlanError(f"{_unknown(unknown[0], state)}, but {partition} is to go there")
        if down := [r for r in replicas if r in state.cluster.fenced and r not in partitions[partition].replicas]:
            raise PlanError(f"broker {down[0]} does not serve, but {partition} is to go there; start it first")
    return {partition: replicas for partition, replicas in plan.items() if replicas != partitions[partition].replicas}


def _unknown(broker: int, state: ClusterState) -> str:
    registered = ", ".join(str(each.node_id) for each in state.cluster.brokers)
    return f"there is no broker {broker} (there are {registered})"


def to_kafka(plan: Plan) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "partitions": [
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for (topic, number), replicas in plan.items()
        ],
    }


def rows(plan: Plan, before: Mapping[TopicPartition, PartitionInfo]) -> list[dict[str, Any]]:
    """What each partition gains and loses."""
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(before[partition].replicas),
            "new_replicas": list(replicas),
            "adds": [replica for replica in replicas if replica not in before[partition].replicas],
            "removes": [replica for replica in before[partition].replicas if replica not in replicas],
        }
        for partition, replicas in plan.items()
    ]


def broker_rows(plan: Plan, state: ClusterState) -> list[dict[str, object]]:
    """What each broker has, and will have."""
    before = {partition: info.replicas for partition, info in state.partitions.items()}
    after = {**before, **plan}

    def counts(assignment: Mapping[TopicPartition, tuple[int, ...]]) -> tuple[Counter[int], Counter[int]]:
        leaders = Counter(replicas[0] for replicas in assignment.values())
        return Counter(replica for replicas in assignment.values() for replica in replicas), leaders

    (replicas, leaders), (new_replicas, new_leaders) = counts(before), counts(after)
    return [
        {
            "broker": broker,
            "replicas": replicas[broker],
            "new_replicas": new_replicas[broker],
            "preferred_leaders": leaders[broker],
            "new_preferred_leaders": new_leaders[broker],
        }
        for broker in sorted({each.node_id for each in state.cluster.brokers} | set(replicas))
    ]
