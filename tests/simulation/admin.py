"""What the simulated clients ask for besides records: topics, offsets, elections, moves, deletion of records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.k21_delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.wire.messages.k43_elect_leaders import ElectLeadersRequest
from barnabas.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.checker.history import Fault, History, TopicPartition, Trimmed, Trimming
from tests.simulation.brokers import RETRY_S, Brokers, check_retriable

LATEST, EARLIEST = -1, -2
PREFERRED, UNCLEAN = 0, 1
LOOKS = 30


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    configs: tuple[tuple[str, str], ...] = ()
    replicas: int = 1


async def create_topics(brokers: Brokers, topics: Sequence[Topic]) -> dict[str, bytes]:
    """Create topics, in spite of lost answers, and of brokers that are missing for a while; their ids."""
    creatable = [
        CreatableTopic(t.name, t.partitions, t.replicas, [], [CreatableTopicConfig(*config) for config in t.configs])
        for t in topics
    ]
    while True:
        try:
            response = await brokers.request(CreateTopicsRequest(creatable), 7)
        except OSError:
            continue
        errors = [result.error_code for result in response.topics]
        if all(error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) for error in errors):
            ids = await _topic_ids(brokers, [topic.name for topic in topics])
            if ids is not None:
                return ids
        known = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_REPLICATION_FACTOR)
        check_retriable("CreateTopics", *(error for error in errors if error not in known))
        brokers.turn()
        await asyncio.sleep(RETRY_S)


async def _topic_ids(brokers: Brokers, names: Sequence[str]) -> dict[str, bytes] | None:
    """None if one is not there for long: a deletion that was asked for earlier, and arrived later, has hit it."""
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names])
    for _ in range(LOOKS):
        try:
            response = await brokers.request(request, 12)
        except OSError:
            continue
        check_retriable("Metadata", *(topic.error_code for topic in response.topics))
        if all(topic.error_code == ErrorCode.NONE for topic in response.topics):
            return {topic.name: topic.topic_id for topic in response.topics}
        await asyncio.sleep(RETRY_S)
    return None


async def list_offset(brokers: Brokers, partition: TopicPartition, timestamp: int) -> int:
    """The earliest or the latest offset of a partition."""
    wanted = ListOffsetsTopic(partition.topic, [ListOffsetsPartition(partition.partition, timestamp=timestamp)])
    while True:
        try:
            leader = await brokers.leader(partition)
            response = await leader.request(ListOffsetsRequest(-1, topics=[wanted]), 7)
        except OSError:
            brokers.forget(partition)
            continue
        result = response.topics[0].partitions[0]
        if result.error_code == ErrorCode.NONE:
            offset: int = result.offset
            return offset
        check_retriable("ListOffsets", result.error_code)
        brokers.forget(partition)
        await asyncio.sleep(RETRY_S)


async def elect_leaders(brokers: Brokers, election: int) -> None:
    """Ask once for the leaders that come first, or for any that live; in vain, if nobody answers or lives."""
    try:
        response = await brokers.request(ElectLeadersRequest(election, None), 2)
    except OSError:
        return
    results = [result for topic in response.replica_election_results for result in topic.partition_result]
    check_retriable("ElectLeaders", response.error_code, *(result.error_code for result in results))


async def reassign(brokers: Brokers, partition: TopicPartition, replicas: list[int]) -> None:
    """Ask once for other replicas; in vain, if nobody answers."""
    wanted = ReassignableTopic(partition.topic, [ReassignablePartition(partition.partition, replicas)])
    try:
        response = await brokers.request(AlterPartitionReassignmentsRequest(topics=[wanted]), 1)
    except OSError:
        return
    results = [result for topic in response.responses for result in topic.partitions]
    check_retriable("AlterPartitionReassignments", response.error_code, *(result.error_code for result in results))


class Changer:
    """Creates and deletes a topic, again and again."""

    def __init__(self, brokers: Brokers, topic: Topic, rng: random.Random, history: History) -> None:
        self._brokers = brokers
        self._topic = topic
        self._rng = rng
        self._history = history

    async def run(self, should_stop: Callable[[], bool]) -> None:
        while not should_stop():
            await create_topics(self._brokers, [self._topic])
            self._history.record(Fault("topic created", self._topic.name))
            await asyncio.sleep(self._rng.random() * 20)
            await self._delete()
            self._history.record(Fault("topic deleted", self._topic.name))
            await asyncio.sleep(self._rng.random() * 20)

    async def _delete(self) -> None:
        request = DeleteTopicsRequest([DeleteTopicState(self._topic.name)])
        while True:
            try:
                response = await self._brokers.request(request, 6)
            except OSError:
                continue
            error = response.responses[0].error_code
            if error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                return
            check_retriable("DeleteTopics", error)
            self._brokers.turn()
            await asyncio.sleep(RETRY_S)


class Trimmer:
    """Deletes the records at the beginning of some partitions, now and then.

    A deletion counts if enough replicas are in sync, before and after: another that leads later may not know of it.
    """

    def __init__(
        self,
        brokers: Brokers,
        partitions: Sequence[TopicPartition],
        rng: random.Random,
        history: History,
        are_enough_in_sync: Callable[[TopicPartition], bool] = lambda _: True,
    ) -> None:
        self._are_enough_in_sync = are_enough_in_sync
        self._brokers = brokers
        self._partitions = partitions
        self._rng = rng
        self._history = history

    async def run(self, should_stop: Callable[[], bool]) -> None:
        while not should_stop():
            await asyncio.sleep(self._rng.random() * 25)
            partition = self._rng.choice(self._partitions)
            latest = await list_offset(self._brokers, partition, LATEST)
            await self._delete_below(partition, self._rng.randint(0, latest))

    async def _delete_below(self, partition: TopicPartition, offset: int) -> None:
        self._history.record(Trimming(partition, offset))
        were_enough_in_sync = self._are_enough_in_sync(partition)
        asked = DeleteRecordsTopic(partition.topic, [DeleteRecordsPartition(partition.partition, offset)])
        try:
            leader = await self._brokers.leader(partition)
            response = await leader.request(DeleteRecordsRequest([asked], 30_000), 2)
        except OSError:
            self._brokers.forget(partition)
            return
        result = response.topics[0].partitions[0]
        if result.error_code == ErrorCode.NONE:
            if were_enough_in_sync and self._are_enough_in_sync(partition):
                self._history.record(Trimmed(partition, result.low_watermark))
        elif result.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:  # as it is when the end was lost meanwhile
            check_retriable("DeleteRecords", result.error_code)
            self._brokers.forget(partition)
