"""Where a leader epoch ended: by it a reader learns whether what it has read is still in the log (KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.client.client import Client
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.outcomes import refusal
from barnabas.client.routes import LEADERS, ask
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_CONSUMER = -1


async def look_up_epoch_ends(
    client: Client, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KafkaError]:
    """Per partition the offset after the last record of an epoch, or of those before it; -1 where nothing is known."""

    def request(led: list[TopicPartition]) -> OffsetForLeaderEpochRequest:
        return OffsetForLeaderEpochRequest(
            replica_id=_CONSUMER,
            topics=[
                OffsetForLeaderTopic(
                    topic,
                    [
                        OffsetForLeaderPartition(index, client.metadata.leader_epoch(partition), epochs[partition])
                        for index in indexes
                        for partition in (TopicPartition(topic, index),)
                    ],
                )
                for topic, indexes in by_topic(led).items()
            ],
        )

    return await ask(client, LEADERS, epochs, request, _read)


def _read(response: Any) -> dict[TopicPartition, int | KafkaError]:
    return {
        partition: refusal(found.error_code, f"leader epochs of {partition}") or found.end_offset
        for topic in response.topics
        for found in topic.partitions
        for partition in (TopicPartition(topic.topic, found.partition),)
    }
