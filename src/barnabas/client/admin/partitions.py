"""Partitions: more of them, and the range of offsets that each holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.client.client import Client
from barnabas.client.list_offsets import EARLIEST, LATEST, FoundOffset, Isolation, list_offsets
from barnabas.client.metadata import NO_LEADER, PartitionInfo, TopicInfo, TopicPartition
from barnabas.client.outcomes import alone, refusal, settled
from barnabas.client.routes import CONTROLLER, ask
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition with the range of offsets it holds; None while it has no leader to ask."""

    info: PartitionInfo
    log_start_offset: int | None
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many a topic is to have in all; `assignment` places the replicas of each new one by hand."""

    count: int
    assignment: Sequence[Sequence[int]] | None = None


class Partitions:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(
        self, topic: str, count: int, *, assignment: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> None:
        """Grow a topic to `count` partitions in all."""
        await alone(self.create_many({topic: NewPartitions(count, assignment)}, validate_only=validate_only))

    async def create_many(self, topics: Mapping[str, NewPartitions], *, validate_only: bool = False) -> None:
        def request(names: Iterable[str]) -> CreatePartitionsRequest:
            return CreatePartitionsRequest(
                [CreatePartitionsTopic(name, topics[name].count, _placed(topics[name])) for name in names],
                _TIMEOUT_MS,
                validate_only,
            )

        def read(response: Any) -> dict[str, KafkaError | None]:
            return {found.name: _growth(found, topics[found.name].count) for found in response.results}

        answers = await ask(self._client, CONTROLLER, topics, request, read)
        self._client.metadata.forget(topics)
        settled(answers)

    async def list_offsets(
        self,
        timestamps_ms: Mapping[TopicPartition, int],
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, FoundOffset]:
        """Per partition the first offset at or after a time, or EARLIEST, LATEST or MAX_TIMESTAMP."""
        return await list_offsets(self._client, timestamps_ms, isolation)

    async def states(self, topic: TopicInfo) -> list[PartitionState]:
        """The partitions of a topic with their offsets; those without a leader too."""
        led = [TopicPartition(topic.name, each.partition) for each in topic.partitions if each.leader != NO_LEADER]
        first = await list_offsets(self._client, dict.fromkeys(led, EARLIEST))
        end = await list_offsets(self._client, dict.fromkeys(led, LATEST))
        return [
            PartitionState(info, first[partition].offset, end[partition].offset)
            if (partition := TopicPartition(topic.name, info.partition)) in first
            else PartitionState(info, None, None)
            for info in topic.partitions
        ]


def _placed(wanted: NewPartitions) -> list[CreatePartitionsAssignment] | None:
    if wanted.assignment is None:
        return None
    return [CreatePartitionsAssignment(list(replicas)) for replicas in wanted.assignment]


def _growth(found: Any, count: int) -> KafkaError | None:
    return refusal(found.error_code, f"cannot grow topic {found.name!r} to {count} partitions", found.error_message)
