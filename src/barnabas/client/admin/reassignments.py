"""Replicas that move to other brokers: begin, watch, call off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.outcomes import refusal, settled
from barnabas.client.routes import CONTROLLER, ask, ask_one
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move under way: `replicas` are the new ones, and behind them those that are being removed."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Reassignments:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def alter(self, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Move partitions to these replicas, or, with None, call off the move under way."""

        def request(some: Iterable[TopicPartition]) -> AlterPartitionReassignmentsRequest:
            return AlterPartitionReassignmentsRequest(
                timeout_ms=_TIMEOUT_MS,
                topics=[
                    ReassignableTopic(
                        topic,
                        [
                            ReassignablePartition(index, _listed(wanted[TopicPartition(topic, index)]))
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(some).items()
                ],
            )

        settled(await ask(self._client, CONTROLLER, wanted, request, _read_altered))

    async def cancel(self, partitions: Iterable[TopicPartition]) -> None:
        """Call off moves; a partition that does not move has NO_REASSIGNMENT_IN_PROGRESS as its error."""
        await self.alter(dict.fromkeys(partitions))

    async def list(self, partitions: Iterable[TopicPartition] | None = None) -> list[Reassignment]:
        """The moves that are under way, of these partitions or of all, in their order."""
        wanted = None
        if partitions is not None:
            wanted = [ListPartitionReassignmentsTopics(topic, some) for topic, some in by_topic(partitions).items()]
        request = ListPartitionReassignmentsRequest(_TIMEOUT_MS, wanted)
        return await ask_one(self._client, CONTROLLER, None, request, _read_list)


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _read_altered(response: Any) -> dict[TopicPartition, KafkaError | None]:
    if response.error_code:
        raise refused(response.error_code, "cannot reassign partitions", response.error_message)
    return {
        partition: refusal(found.error_code, f"cannot reassign {partition}", found.error_message)
        for topic in response.responses
        for found in topic.partitions
        for partition in (TopicPartition(topic.name, found.partition_index),)
    }


def _read_list(response: Any) -> list[Reassignment]:
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
