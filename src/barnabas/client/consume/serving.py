"""Who serves a partition to a consumer: its leader, or a replica that the leader has named as nearer (KIP-392)."""

from __future__ import annotations

from barnabas.client.consume.positions import PartitionState
from barnabas.client.metadata import BrokerInfo, ClusterInfo, topic_error
from barnabas.core.errors import ErrorCode, KafkaError


def serving_broker(cluster: ClusterInfo, state: PartitionState, now: float) -> BrokerInfo | None:
    """None if it is not known, or if nobody leads the partition."""
    topic = cluster.topics.get(state.partition.topic)
    if topic is None or state.partition.partition >= len(topic.partitions):
        return None
    if state.read_replica is not None:
        replica = cluster.brokers.get(state.read_replica)
        if replica is not None and now < state.read_replica_until:
            return replica
        state.read_replica = None
    return cluster.brokers.get(topic.partitions[state.partition.partition].leader)


def why_unserved(cluster: ClusterInfo, state: PartitionState, problem: KafkaError | None) -> KafkaError:
    """The reason, where `problem` is what came of asking for the topics of this and other partitions."""
    name, index = state.partition
    if problem is not None and problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return problem
    topic = cluster.topics.get(name)
    if topic is None:
        return topic_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    if index >= len(topic.partitions):
        count = len(topic.partitions)
        message = f"topic {name!r} has no partition {index}; it has {count}, counted from 0"
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {state.partition} has no leader at the moment")
