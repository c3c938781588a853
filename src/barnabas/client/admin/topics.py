"""Topics: create, list, describe, grow, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.list_offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.metadata import NO_LEADER, PartitionInfo, TopicInfo, TopicPartition, topic_error
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.k75_describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest

BROKER_DEFAULT = -1
"""As a number of partitions or replicas: what the broker is configured to choose."""
_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition with the range of offsets it holds; None while it has no leader to ask."""

    info: PartitionInfo
    log_start_offset: int | None
    end_offset: int | None


async def create_topic(
    client: Client,
    name: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    assignment: Sequence[Sequence[int]] = (),
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> CreatedTopic:
    """Create a topic; `assignment` places the replicas of each partition by hand and stands for both numbers."""
    topic = CreatableTopic(
        name=name,
        num_partitions=BROKER_DEFAULT if assignment else partitions,
        replication_factor=BROKER_DEFAULT if assignment else replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(assignment)
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS, validate_only=validate_only)
    result = (await client.ask_controller(request)).topics[0]
    if result.error_code:
        raise refused(result.error_code, f"cannot create topic {name!r}", result.error_message)
    return CreatedTopic(result.name, result.topic_id, result.num_partitions, result.replication_factor)


async def list_topics(client: Client, *, internal: bool = False) -> list[TopicInfo]:
    """All topics by name; those that Kafka keeps for itself only on request."""
    return [topic for topic in await client.metadata.all_topics() if internal or not topic.is_internal]


async def describe_topic(client: Client, name: str) -> TopicInfo:
    """The topic as the cluster sees it now."""
    await client.metadata.refresh([name])
    return client.metadata.cluster.topics[name]


async def describe_topics(client: Client, names: Iterable[str] | None = None) -> list[TopicInfo]:
    """These topics by name, or all of them, with what Metadata does not tell: eligible leader replicas (KIP-966)."""
    found: dict[str, TopicInfo] = {}
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name) for name in names or ()])
    if names is not None and not request.topics:
        return []
    while True:
        response = await client.metadata.ask_any(request)
        for topic in response.topics:
            if topic.error_code:
                raise topic_error(topic.error_code, topic.name)
            page = tuple(_partition_info(partition) for partition in topic.partitions)
            before = found.get(topic.name) or TopicInfo(topic.name, topic.topic_id, topic.is_internal, ())
            found[topic.name] = replace(before, partitions=before.partitions + page)
        if response.next_cursor is None:
            return [found[name] for name in sorted(found)]
        request.cursor = response.next_cursor


def _partition_info(partition: Any) -> PartitionInfo:
    return PartitionInfo(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
        tuple(partition.eligible_leader_replicas or ()),
        tuple(partition.last_known_elr or ()),
    )


async def partition_states(client: Client, topic: TopicInfo) -> list[PartitionState]:
    led = [TopicPartition(topic.name, p.partition) for p in topic.partitions if p.leader != NO_LEADER]
    first = await list_offsets(client, dict.fromkeys(led, EARLIEST))
    end = await list_offsets(client, dict.fromkeys(led, LATEST))
    states = []
    for info in topic.partitions:
        partition = TopicPartition(topic.name, info.partition)
        if partition in first:
            states.append(PartitionState(info, first[partition].offset, end[partition].offset))
        else:
            states.append(PartitionState(info, None, None))
    return states


async def create_partitions(client: Client, name: str, count: int) -> None:
    """Grow a topic to `count` partitions in all."""
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)], timeout_ms=_TIMEOUT_MS
    )
    result = (await client.ask_controller(request)).results[0]
    if result.error_code:
        raise refused(result.error_code, f"cannot grow topic {name!r} to {count} partitions", result.error_message)
    client.metadata.forget([name])


async def delete_topic(client: Client, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=_TIMEOUT_MS)
    result = (await client.ask_controller(request)).responses[0]
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise refused(result.error_code, f"cannot delete topic {name!r}", "it does not exist")
    if result.error_code:
        raise refused(result.error_code, f"cannot delete topic {name!r}", result.error_message)
    client.metadata.forget([name])
