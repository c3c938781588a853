"""Offsets that only the leader of a partition knows: first, next, and by time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.client.client import Client
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.offsets import Absolute, Beginning, End, Last, OffsetSpec
from barnabas.client.outcomes import refusal, settled
from barnabas.client.routes import LEADERS, ask
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


class Isolation(IntEnum):
    """How far a consumer may read: to the high watermark, or to the last stable offset."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FoundOffset(NamedTuple):
    """An offset and the timestamp of its record; both -1 where no record is that young."""

    offset: int
    timestamp_ms: int


async def list_offsets(
    client: Client,
    timestamps_ms: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, FoundOffset]:
    """Per partition the first offset at or after a time, or LATEST, EARLIEST or MAX_TIMESTAMP."""
    return settled(await look_up_offsets(client, timestamps_ms, isolation))


async def look_up_offsets(
    client: Client,
    timestamps_ms: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, FoundOffset | KafkaError]:
    """The same, where a partition's error is for the caller to see to."""

    def request(led: list[TopicPartition]) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=index,
                            current_leader_epoch=client.metadata.leader_epoch(TopicPartition(topic, index)),
                            timestamp=timestamps_ms[TopicPartition(topic, index)],
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(led).items()
            ],
        )

    return await ask(client, LEADERS, timestamps_ms, request, _read)


def _read(response: Any) -> dict[TopicPartition, FoundOffset | KafkaError]:
    return {
        partition: refusal(found.error_code, f"offsets of {partition}") or FoundOffset(found.offset, found.timestamp)
        for topic in response.topics
        for found in topic.partitions
        for partition in (TopicPartition(topic.name, found.partition_index),)
    }


async def resolve_offsets(
    client: Client,
    partitions: Iterable[TopicPartition],
    place: OffsetSpec,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The offset in each partition of a place that people write; a time after the last record is the end."""
    wanted = list(partitions)

    async def offsets_at(timestamp_ms: int) -> dict[TopicPartition, int]:
        found = await list_offsets(client, dict.fromkeys(wanted, timestamp_ms), isolation)
        return {partition: answer.offset for partition, answer in found.items()}

    match place:
        case Absolute(offset):
            return dict.fromkeys(wanted, offset)
        case Beginning():
            return await offsets_at(EARLIEST)
        case End():
            return await offsets_at(LATEST)
        case Last(count):
            first, end = await offsets_at(EARLIEST), await offsets_at(LATEST)
            return {partition: max(first[partition], end[partition] - count) for partition in wanted}
    found, end = await offsets_at(place.timestamp_ms), await offsets_at(LATEST)
    return {partition: end[partition] if found[partition] < 0 else found[partition] for partition in wanted}
