"""What the cluster has of the topics that a stream reads, asked for anew before every micro-batch."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from barnabas.client.epoch_ends import look_up_epoch_ends
from barnabas.client.list_offsets import EARLIEST, LATEST, Isolation, look_up_offsets
from barnabas.client.metadata import TopicInfo, TopicPartition
from barnabas.client.outcomes import settled
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import uuid_text
from barnabas.spark.data_loss import Now
from barnabas.spark.options import Assign, Subscribe, SubscribePattern, Topics

if TYPE_CHECKING:
    from barnabas.client.client import Client
    from barnabas.spark.stream_places import Place

V = TypeVar("V")
_GONE_S = 3.0
"""How long the cluster must say that a topic is not there, before that is believed."""
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True)
class Sight:
    """The topics that are read and there, and where their partitions end."""

    topic_ids: Mapping[str, str]
    ends: Mapping[TopicPartition, int]
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


class Lookout:
    """Owned by the loop of its client."""

    def __init__(self, client: Client, topics: Topics, isolation: Isolation) -> None:
        self._client = client
        self._topics = topics
        self._isolation = isolation
        self._gone: frozenset[str] = frozenset()
        self.names = frozenset(_names(topics))
        """Of the topics that must be there; those of a pattern need not."""
        self.is_read = _choice(topics)
        """Whether the options say so, be it there or not."""

    async def look(self, known: Collection[TopicPartition] = ()) -> Sight:
        """Topics that were there before, or that are read by name, are not given up at once."""
        topics = await self._patient(known)
        there = [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]
        ends = await self._offsets(filter(self.is_read, there), LATEST)
        return Sight(
            {topic.name: uuid_text(topic.topic_id) for topic in topics},
            ends,
            {partition: self._client.metadata.leader_epoch(partition) for partition in ends},
        )

    def check(self, sight: Sight, known: Collection[TopicPartition]) -> None:
        """What was asked for by name, and was never there, is a mistake."""
        topics = self.names - sight.topic_ids.keys() - {each.topic for each in known}
        for topic in sorted(topics):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
        assigned = self._topics.partitions if isinstance(self._topics, Assign) else ()
        for partition in sorted(set(assigned) - sight.ends.keys() - set(known)):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition} does not exist")

    async def _patient(self, known: Collection[TopicPartition]) -> list[TopicInfo]:
        clock = self._client.clock
        deadline = clock.monotonic() + _GONE_S
        tries = 0
        while True:
            topics = await self._client.retrying(self._there)
            expected = self.names | {each.topic for each in known if self.is_read(each)}
            missing = expected - {topic.name for topic in topics}
            if missing <= self._gone or clock.monotonic() > deadline:
                self._gone = missing
                return topics
            await asyncio.sleep(self._client.backoff_seconds(tries))
            tries += 1

    async def _there(self) -> list[TopicInfo]:
        metadata = self._client.metadata
        try:
            await metadata.refresh(sorted(self.names) or None)
        except KafkaError as error:
            if not _is_unknown(error):
                raise
        return [topic for topic in metadata.cluster.topics.values() if self._is_chosen(topic)]

    def _is_chosen(self, topic: TopicInfo) -> bool:
        if self.names:
            return topic.name in self.names
        return not topic.is_internal and self.is_read(TopicPartition(topic.name, 0))

    async def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets that are there, of those partitions that are."""
        return await self._offsets(partitions, EARLIEST)

    async def now(self, start: Place, end: Place) -> dict[TopicPartition, Now | None]:
        """What is known of the partitions of a batch; None of those that are not there."""
        firsts = await self.beginnings(end.offsets)
        start_ends, end_ends = await asyncio.gather(
            self.epoch_ends(start, firsts),
            self.epoch_ends(end, firsts),
        )
        topics = self._client.metadata.cluster.topics
        return {
            partition: Now(
                uuid_text(topics[partition.topic].topic_id),
                firsts[partition],
                start_ends.get(partition),
                end_ends.get(partition),
            )
            if partition in firsts and partition.topic in topics
            else None
            for partition in end.offsets
        }

    async def epoch_ends(self, place: Place, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the leader epochs of a place ended, in partitions whose leader is another by now."""
        leader_epoch = self._client.metadata.leader_epoch
        asked = {each: place.epoch(each) for each in partitions if 0 <= place.epoch(each) < leader_epoch(each)}
        found = _known(await look_up_epoch_ends(self._client, asked))
        return {partition: end for partition, end in found.items() if end >= 0}

    async def _offsets(self, partitions: Iterable[TopicPartition], which: int) -> dict[TopicPartition, int]:
        found = await look_up_offsets(self._client, dict.fromkeys(partitions, which), self._isolation)
        return {partition: answer.offset for partition, answer in _known(found).items()}


def _names(topics: Topics) -> Iterable[str]:
    match topics:
        case Subscribe(names):
            return names
        case Assign(partitions):
            return {partition.topic for partition in partitions}
        case SubscribePattern():
            return ()


def _choice(topics: Topics) -> Callable[[TopicPartition], bool]:
    match topics:
        case Subscribe(names):
            chosen = frozenset(names)
            return lambda partition: partition.topic in chosen
        case Assign(partitions):
            return frozenset(partitions).__contains__
        case SubscribePattern(pattern):
            matches = re.compile(pattern).fullmatch
            return lambda partition: matches(partition.topic) is not None


def _known(answers: Mapping[TopicPartition, V | KafkaError]) -> dict[TopicPartition, V]:
    """Without the partitions that are not there."""
    return settled({each: answer for each, answer in answers.items() if not _is_unknown(answer)})


def _is_unknown(answer: object) -> bool:
    return isinstance(answer, KafkaError) and answer.code in _UNKNOWN
