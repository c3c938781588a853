"""The fetch request for some partitions of one broker, and what its response says of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from barnabas.client.fetch_options import FetchOptions
from barnabas.client.metadata import Metadata, TopicPartition
from barnabas.client.positions import PartitionState
from barnabas.core.ids import ZERO_UUID
from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic

_LAST_VERSION_BY_NAME = 12
_NO_SESSION_EPOCH = -1


class FetchPlan:
    """A request that stands on its own: the broker keeps nothing of it."""

    def __init__(self, metadata: Metadata, options: FetchOptions, states: Sequence[PartitionState]) -> None:
        topics: dict[str, FetchTopic] = {}
        by_name = False
        for state in states:
            assert state.fetch_offset is not None
            name, index = state.partition
            if name not in topics:
                topic_id = state.topic_id or ZERO_UUID
                by_name = by_name or topic_id == ZERO_UUID
                topics[name] = FetchTopic(topic=name, topic_id=topic_id)
            topics[name].partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=metadata.leader_epoch(state.partition),
                    fetch_offset=state.fetch_offset,
                    last_fetched_epoch=state.fetch_epoch,
                    partition_max_bytes=options.max_partition_fetch_bytes,
                )
            )
        self.names = {topic.topic_id: name for name, topic in topics.items()}
        self.highest_version = _LAST_VERSION_BY_NAME if by_name else None
        self.request = FetchRequest(
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            isolation_level=options.isolation_level,
            session_id=0,
            session_epoch=_NO_SESSION_EPOCH,
            topics=list(topics.values()),
            rack_id=options.client_rack,
        )


def answers_by_partition(response: Any, names: Mapping[bytes, str]) -> Iterator[tuple[TopicPartition, Any]]:
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for data in topic.partitions:
            yield TopicPartition(name, data.partition_index), data
