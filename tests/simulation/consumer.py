"""Consumers, which write down what they read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.core.errors import ErrorCode
from barnabas.records.reader import read_records
from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from tests.simulation.admin import EARLIEST, RETRY_S, check_retriable, list_offset
from tests.simulation.client import Client
from tests.simulation.history import History, Polled, Record, TopicPartition

MAX_WAIT_MS = 500
VERSIONS = (4, 7, 11, 12, 13, 17)
FIRST_BY_TOPIC_ID = 13
FIRST_WITH_SESSIONS = 7
NO_SESSION = (0, -1)
NEW_SESSION = (0, 0)


class Consumer:
    """Reads some partitions from the beginning on, and from there again when its place is gone.

    In a fetch session it asks only for what has changed since it last asked; a session that is gone is begun anew.
    """

    def __init__(
        self,
        name: str,
        client: Client,
        partitions: Sequence[TopicPartition],
        topic_ids: dict[str, bytes],
        rng: random.Random,
        history: History,
    ) -> None:
        self.name = name
        self._client = client
        self._topic_ids = topic_ids
        self._positions = dict.fromkeys(partitions, 0)
        self._asked: dict[TopicPartition, int] = {}  # in this session
        self._rng = rng
        self._history = history
        self._version = rng.choice(VERSIONS)
        self._max_bytes = rng.choice((1, 5_000, 1_000_000))
        has_sessions = self._version >= FIRST_WITH_SESSIONS and rng.random() < 0.6
        self._first_session = NEW_SESSION if has_sessions else NO_SESSION
        self._session = self._first_session

    async def run(self, should_stop: Callable[[], bool]) -> None:
        while not should_stop():
            try:
                response, boot = await self._client.request(self._request(), self._version)
            except OSError:
                self._forget_session()
                continue
            self._take_session(response)
            for partition, data in _partitions_of(response, self._topic_ids, self._version):
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._positions[partition] = await list_offset(self._client, partition, EARLIEST)
                else:
                    self._take(partition, data, boot)
            await asyncio.sleep(self._rng.random() * 0.3)

    def _request(self) -> FetchRequest:
        changed = {p: offset for p, offset in self._positions.items() if self._asked.get(p) != offset}
        if self._first_session == NEW_SESSION:
            self._asked.update(changed)
        max_wait_ms = self._rng.randint(0, MAX_WAIT_MS)
        request = fetch_request(changed, self._topic_ids, self._max_bytes, max_wait_ms)
        request.session_id, request.session_epoch = self._session
        return request

    def _take_session(self, response: Any) -> None:
        check_retriable("Fetch", response.error_code)
        if response.error_code != ErrorCode.NONE or response.session_id == 0:
            self._forget_session()
        else:
            self._session = (response.session_id, self._session[1] + 1)

    def _forget_session(self) -> None:
        self._session = self._first_session
        self._asked.clear()

    def _take(self, partition: TopicPartition, data: Any, boot: int) -> None:
        check_retriable("Fetch", data.error_code)
        if records := _records(data, self._positions[partition]):
            self._history.record(Polled(self.name, boot, partition, self._positions[partition], tuple(records)))
            self._positions[partition] = records[-1][0] + 1


Log = tuple[int, tuple[Record, ...]]
"""The log start offset, and the records from there on."""


async def read_to_end(client: Client, partition: TopicPartition, topic_ids: dict[str, bytes]) -> Log:
    """The whole log of a partition, up to the high watermark that the last answer tells."""
    log_start_offset = await list_offset(client, partition, EARLIEST)
    found: list[Record] = []
    while True:
        position = found[-1][0] + 1 if found else log_start_offset
        try:
            response, _ = await client.request(fetch_request({partition: position}, topic_ids, 1_000_000, 0), 12)
        except OSError:
            continue
        ((_, data),) = _partitions_of(response, topic_ids, 12)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # retention was quicker
            return await read_to_end(client, partition, topic_ids)
        if data.error_code != ErrorCode.NONE:
            check_retriable("Fetch", data.error_code)
            await asyncio.sleep(RETRY_S)
            continue
        found += _records(data, position)
        if (found[-1][0] + 1 if found else log_start_offset) >= data.high_watermark:
            return log_start_offset, tuple(found)


def fetch_request(
    positions: dict[TopicPartition, int], topic_ids: dict[str, bytes], max_bytes: int, max_wait_ms: int
) -> FetchRequest:
    topics: dict[str, FetchTopic] = {}
    for (topic, index), offset in positions.items():
        wanted = FetchPartition(index, fetch_offset=offset, partition_max_bytes=max_bytes)
        topics.setdefault(topic, FetchTopic(topic, topic_ids[topic])).partitions.append(wanted)
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=list(topics.values()))


def _partitions_of(response: Any, topic_ids: dict[str, bytes], version: int) -> list[tuple[TopicPartition, Any]]:
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    by_id = version >= FIRST_BY_TOPIC_ID
    return [
        (TopicPartition(names[topic.topic_id] if by_id else topic.topic, data.partition_index), data)
        for topic in response.responses
        for data in topic.partitions
    ]


def _records(data: Any, from_offset: int) -> list[Record]:
    if not data.records:
        return []
    return [(r.offset, r.value) for r in read_records(data.records, from_offset=from_offset) if r.value is not None]
