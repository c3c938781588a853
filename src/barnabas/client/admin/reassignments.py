"""Replicas that move to other brokers: begin, watch, call off, and let the preferred ones lead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.messages.k46_list_partition_reassignments import ListPartitionReassignmentsRequest

_PREFERRED = 0
_ELECTED = frozenset({ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED})


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move under way: `replicas` are the new ones, and behind them those that are being removed."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def alter_reassignments(
    client: Client, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, KafkaError]:
    """Move partitions to these replicas, or, with None, call off the move under way; what was refused, and why."""
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                topic,
                [ReassignablePartition(index, _listed(wanted[TopicPartition(topic, index)])) for index in indexes],
            )
            for topic, indexes in by_topic(wanted).items()
        ]
    )
    response = await client.metadata.ask_any(request)
    if response.error_code:
        raise refused(response.error_code, "cannot reassign partitions", response.error_message)
    return {
        partition: refused(result.error_code, f"cannot reassign {partition}", result.error_message)
        for topic in response.responses
        for result in topic.partitions
        if result.error_code
        for partition in (TopicPartition(topic.name, result.partition_index),)
    }


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


async def list_reassignments(client: Client) -> list[Reassignment]:
    """All moves that are under way."""
    response = await client.metadata.ask_any(ListPartitionReassignmentsRequest())
    if response.error_code:
        raise refused(response.error_code, "cannot list reassignments", response.error_message)
    return sorted(
        (
            Reassignment(
                TopicPartition(topic.name, move.partition_index),
                tuple(move.replicas),
                tuple(move.adding_replicas),
                tuple(move.removing_replicas),
            )
            for topic in response.topics
            for move in topic.partitions
        ),
        key=lambda move: move.partition,
    )


async def elect_preferred_leaders(
    client: Client, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError]:
    """Let the first replica of each partition lead, where it can; where it cannot, why."""
    wanted = [TopicPartitions(topic, indexes) for topic, indexes in by_topic(partitions).items()]
    if not wanted:
        return {}
    response = await client.metadata.ask_any(ElectLeadersRequest(_PREFERRED, wanted))
    if response.error_code:
        raise refused(response.error_code, "cannot elect leaders")
    return {
        partition: refused(result.error_code, f"cannot elect a leader for {partition}", result.error_message)
        for topic in response.replica_election_results
        for result in topic.partition_result
        if result.error_code not in _ELECTED
        for partition in (TopicPartition(topic.topic, result.partition_id),)
    }
