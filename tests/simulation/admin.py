"""What the simulated clients ask for besides records: topics, offsets, and the deletion of records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.k21_delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.simulation.client import Client
from tests.simulation.history import History, TopicPartition, Trimmed, Trimming

RETRY_S = 0.1
LATEST, EARLIEST = -1, -2


class UnexpectedError(AssertionError):
    """An error code that no fault explains."""


def check_retriable(what: str, *errors: int) -> None:
    for error in map(ErrorCode, errors):
        if error != ErrorCode.NONE and not error.retriable:
            raise UnexpectedError(f"{what} was answered with {error.name}")


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    configs: tuple[tuple[str, str], ...] = ()


async def create_topics(client: Client, topics: Sequence[Topic]) -> dict[str, bytes]:
    """Create topics, in spite of lost answers; their ids."""
    creatable = [
        CreatableTopic(t.name, t.partitions, 1, [], [CreatableTopicConfig(*config) for config in t.configs])
        for t in topics
    ]
    while True:
        try:
            response, _ = await client.request(CreateTopicsRequest(creatable), 7)
        except OSError:
            continue
        errors = [result.error_code for result in response.topics]
        if all(error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) for error in errors):
            return await _topic_ids(client, [topic.name for topic in topics])
        check_retriable("CreateTopics", *errors)
        await asyncio.sleep(RETRY_S)


async def _topic_ids(client: Client, names: Sequence[str]) -> dict[str, bytes]:
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names])
    while True:
        try:
            response, _ = await client.request(request, 12)
        except OSError:
            continue
        check_retriable("Metadata", *(topic.error_code for topic in response.topics))
        if all(topic.error_code == ErrorCode.NONE for topic in response.topics):
            return {topic.name: topic.topic_id for topic in response.topics}
        await asyncio.sleep(RETRY_S)


async def list_offset(client: Client, partition: TopicPartition, timestamp: int) -> int:
    """The earliest or the latest offset of a partition."""
    wanted = ListOffsetsTopic(partition.topic, [ListOffsetsPartition(partition.partition, timestamp=timestamp)])
    while True:
        try:
            response, _ = await client.request(ListOffsetsRequest(-1, topics=[wanted]), 7)
        except OSError:
            continue
        result = response.topics[0].partitions[0]
        if result.error_code == ErrorCode.NONE:
            offset: int = result.offset
            return offset
        check_retriable("ListOffsets", result.error_code)
        await asyncio.sleep(RETRY_S)


class Trimmer:
    """Deletes the records at the beginning of some partitions, now and then."""

    def __init__(
        self, client: Client, partitions: Sequence[TopicPartition], rng: random.Random, history: History
    ) -> None:
        self._client = client
        self._partitions = partitions
        self._rng = rng
        self._history = history

    async def run(self, should_stop: Callable[[], bool]) -> None:
        while not should_stop():
            await asyncio.sleep(self._rng.random() * 3)
            partition = self._rng.choice(self._partitions)
            latest = await list_offset(self._client, partition, LATEST)
            await self._delete_below(partition, self._rng.randint(0, latest))

    async def _delete_below(self, partition: TopicPartition, offset: int) -> None:
        self._history.record(Trimming(partition, offset))
        asked = DeleteRecordsTopic(partition.topic, [DeleteRecordsPartition(partition.partition, offset)])
        try:
            response, _ = await self._client.request(DeleteRecordsRequest([asked], 30_000), 2)
        except OSError:
            return
        result = response.topics[0].partitions[0]
        if result.error_code == ErrorCode.NONE:
            self._history.record(Trimmed(partition, result.low_watermark))
        elif result.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:  # as it is when the end was lost meanwhile
            check_retriable("DeleteRecords", result.error_code)
