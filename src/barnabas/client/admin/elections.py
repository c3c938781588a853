"""Elections of leaders: of the preferred replica, or, as a last resort, of one that may have lost records."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.outcomes import refusal, settled
from barnabas.client.routes import CONTROLLER, ask, ask_one
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions

_TIMEOUT_MS = 30_000


class _ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class Elections:
    """Each call tells per partition whether a leader was elected; False is that none had to be."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def preferred(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, bool]:
        """Let the first replica of each of these partitions, or of all, lead."""
        return await self._elect(_ElectionType.PREFERRED, partitions)

    async def unclean(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, bool]:
        """Let any living replica lead where no complete one is left: records that it lacks are lost for good."""
        return await self._elect(_ElectionType.UNCLEAN, partitions)

    async def _elect(
        self, type: _ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, bool]:
        if partitions is None:
            request = ElectLeadersRequest(type, None, _TIMEOUT_MS)
            return settled(await ask_one(self._client, CONTROLLER, None, request, _read))

        def request_for(some: Iterable[TopicPartition]) -> ElectLeadersRequest:
            wanted = [TopicPartitions(topic, indexes) for topic, indexes in by_topic(some).items()]
            return ElectLeadersRequest(type, wanted, _TIMEOUT_MS)

        return settled(await ask(self._client, CONTROLLER, partitions, request_for, _read))


def _read(response: Any) -> dict[TopicPartition, bool | KafkaError]:
    if response.error_code:
        raise refused(response.error_code, "cannot elect leaders")
    return {
        partition: _outcome(found, partition)
        for topic in response.replica_election_results
        for found in topic.partition_result
        for partition in (TopicPartition(topic.topic, found.partition_id),)
    }


def _outcome(found: Any, partition: TopicPartition) -> bool | KafkaError:
    if found.error_code == ErrorCode.ELECTION_NOT_NEEDED:
        return False
    return refusal(found.error_code, f"cannot elect a leader for {partition}", found.error_message) or True
