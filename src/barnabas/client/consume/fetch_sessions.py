"""Fetch requests to one broker, in a session (KIP-227): the broker remembers what it was asked for.

A session begins with a request that names all partitions. Those that follow name only what has changed, and answers
tell only of partitions with news: with a thousand partitions and records in three of them, requests and answers are of
three. Whatever goes wrong ends the session; the next request begins a new one. A broker without room for sessions
answers with id 0, and every request is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from barnabas.client.consume.fetch_options import FetchOptions
from barnabas.client.consume.positions import PartitionState
from barnabas.client.metadata import Metadata, TopicPartition
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import ZERO_UUID
from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
"""The broker remembers something else: begin anew."""

_LAST_VERSION_BY_NAME = 12
_LAST_EPOCH = 2**31 - 1


class _Told(NamedTuple):
    """What the broker knows of a partition."""

    topic_id: bytes
    leader_epoch: int
    offset: int
    last_epoch: int


class FetchSession:
    """One broker's. At most one request is under way; `plan` makes it, `answered` or `lost` must follow."""

    def __init__(self, metadata: Metadata, options: FetchOptions) -> None:
        self._metadata = metadata
        self._options = options
        self._id = 0
        self._epoch = 0
        self._told: dict[TopicPartition, _Told] = {}
        self._names: dict[bytes, str] = {}
        self.highest_version: int | None = None
        """Of the request that was planned last: one topic without an id, and all go by name."""

    def plan(self, states: Sequence[PartitionState]) -> FetchRequest:
        """The request after which the broker fetches these partitions from their offsets, and no others."""
        wanted = {state.partition: self._wanted(state) for state in states}
        highest = _LAST_VERSION_BY_NAME if any(told.topic_id == ZERO_UUID for told in wanted.values()) else None
        if highest != self.highest_version:
            self.lost()
        self.highest_version = highest
        known = self._told if self._epoch else {}
        changed = {partition: told for partition, told in wanted.items() if known.get(partition) != told}
        gone = [
            (partition, told)
            for partition, told in known.items()
            if partition not in wanted or wanted[partition].topic_id != told.topic_id
        ]
        self._told = wanted
        self._names = {told.topic_id: partition.topic for partition, told in wanted.items()}
        options = self._options
        return FetchRequest(
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            isolation_level=options.isolation_level,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=self._topics(changed),
            forgotten_topics_data=_forgotten(gone),
            rack_id=options.client_rack,
        )

    def _wanted(self, state: PartitionState) -> _Told:
        assert state.fetch_offset is not None
        epoch = self._metadata.leader_epoch(state.partition)
        return _Told(state.topic_id or ZERO_UUID, epoch, state.fetch_offset, state.fetch_epoch)

    def _topics(self, changed: dict[TopicPartition, _Told]) -> list[FetchTopic]:
        topics: dict[str, FetchTopic] = {}
        for (name, index), told in changed.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchTopic(topic=name, topic_id=told.topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=told.leader_epoch,
                    fetch_offset=told.offset,
                    last_fetched_epoch=told.last_epoch,
                    partition_max_bytes=self._options.max_partition_fetch_bytes,
                )
            )
        return list(topics.values())

    def answered(self, response: Any) -> Iterator[tuple[TopicPartition, Any]]:
        """What a good response says of each partition that it has news of."""
        if self._epoch == 0:
            self._id = response.session_id
        self._epoch = 0 if self._id == 0 else self._epoch % _LAST_EPOCH + 1
        for topic in response.responses:
            name = topic.topic or self._names.get(topic.topic_id, "")
            for data in topic.partitions:
                yield TopicPartition(name, data.partition_index), data

    def lost(self, *, unknown: bool = False) -> None:
        """Begin anew; the broker gives up the old session then, unless it has said that it does not know it."""
        self._epoch = 0
        if unknown:
            self._id = 0


def _forgotten(gone: list[tuple[TopicPartition, _Told]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for (name, index), told in gone:
        topic = topics.setdefault((name, told.topic_id), ForgottenTopic(topic=name, topic_id=told.topic_id))
        topic.partitions.append(index)
    return list(topics.values())
