"""Consumers, which write down what they read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.core.errors import ErrorCode
from barnabas.records.reader import read_records
from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from tests.checker.history import History, Polled, Record, TopicPartition
from tests.simulation.admin import EARLIEST, LATEST, list_offset
from tests.simulation.brokers import RETRY_S, Brokers, check_retriable
from tests.simulation.client import Client

MAX_WAIT_MS = 4000
VERSIONS = (4, 7, 11, 12, 13, 17)
FIRST_BY_TOPIC_ID = 13
FIRST_WITH_SESSIONS = 7
FIRST_FROM_FOLLOWERS = 11
NO_SESSION = (0, -1)
NEW_SESSION = (0, 0)


class _Session:
    """What a broker remembers of a consumer's questions, if it is asked to; begun anew when that is gone."""

    def __init__(self, first: tuple[int, int]) -> None:
        self._first = first
        self.ids = first
        self.asked: dict[TopicPartition, int] = {}  # in this session, or if there is none, in the last request

    def questions(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """What is to be asked now, so that the answer tells of all these positions."""
        if self.ids == NO_SESSION or not self.asked.keys() <= positions.keys():
            self.forget()
        changed = {p: offset for p, offset in positions.items() if self.asked.get(p) != offset}
        self.asked.update(changed)
        return changed

    def answered(self, response: Any) -> None:
        if response.error_code != ErrorCode.NONE or response.session_id == 0:
            self.ids = self._first
        else:
            self.ids = (response.session_id, self.ids[1] + 1)

    def forget(self) -> None:
        self.ids = self._first
        self.asked.clear()


class Consumer:
    """Reads some partitions from the beginning on, and from there again when its place is gone.

    Every broker is asked for what it leads, and by some consumers also for what it follows (KIP-392). In a fetch
    session it is asked only for what has changed since it was last.
    """

    def __init__(
        self,
        name: str,
        brokers: Brokers,
        partitions: Sequence[TopicPartition],
        topic_ids: dict[str, bytes],
        rng: random.Random,
        history: History,
    ) -> None:
        self.name = name
        self._brokers = brokers
        self._topic_ids = topic_ids
        self._positions = dict.fromkeys(partitions, 0)
        self._rng = rng
        self._history = history
        self._version = rng.choice(VERSIONS)
        self._max_bytes = rng.choice((1, 5_000, 1_000_000))
        has_sessions = self._version >= FIRST_WITH_SESSIONS and rng.random() < 0.6
        self._first_session = NEW_SESSION if has_sessions else NO_SESSION
        self._reads_followers = self._version >= FIRST_FROM_FOLLOWERS and rng.random() < 0.5
        self._served_by = brokers.hosted_by if self._reads_followers else brokers.led_by

    async def run(self, should_stop: Callable[[], bool]) -> None:
        await asyncio.gather(*(self._read_from(broker_id, should_stop) for broker_id in self._brokers.clients))

    async def _read_from(self, broker_id: int, should_stop: Callable[[], bool]) -> None:
        session = _Session(self._first_session)
        while not should_stop():
            if not self._brokers.are_known(self._positions):
                await self._brokers.look()
            positions = {p: self._positions[p] for p in self._served_by(broker_id, self._positions)}
            if positions:
                await self._poll(self._brokers.clients[broker_id], session, positions)
            await asyncio.sleep(self._rng.random() * 3)

    async def _poll(self, leader: Client, session: _Session, positions: dict[TopicPartition, int]) -> None:
        request = fetch_request(
            session.questions(positions), self._topic_ids, self._max_bytes, self._rng.randint(0, MAX_WAIT_MS)
        )
        request.session_id, request.session_epoch = session.ids
        asked = dict(session.asked)
        lives = {partition: self._brokers.life_of(partition) for partition in asked}
        try:
            response = await leader.request(request, self._version)
        except OSError:
            session.forget()
            for partition in asked:
                self._brokers.forget(partition)
            return
        check_retriable("Fetch", response.error_code)
        session.answered(response)
        for partition, data in _partitions_of(response, self._topic_ids, self._version):
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._positions[partition] = await list_offset(self._brokers, partition, EARLIEST)
            elif data.error_code != ErrorCode.NONE:
                check_retriable("Fetch", data.error_code)
                self._brokers.forget(partition)
            else:
                self._take(partition, data, asked[partition], lives[partition])

    def _take(self, partition: TopicPartition, data: Any, fetch_offset: int, life: int) -> None:
        if records := _records(data, fetch_offset):
            self._history.record(
                Polled(self.name, life, partition, fetch_offset, tuple(records), self._reads_followers)
            )
            if self._positions[partition] == fetch_offset:  # else another leader was quicker
                self._positions[partition] = records[-1][0] + 1


Log = tuple[int, tuple[Record, ...]]
"""The log start offset, and the records from there on."""


async def read_to_end(brokers: Brokers, partition: TopicPartition, topic_ids: dict[str, bytes]) -> Log:
    """The whole log of a partition, up to the end that its leader tells.

    Not to the high watermark of a fetch: that of somebody who has just begun to lead may lag behind (KIP-207).
    """
    log_start_offset = position = await list_offset(brokers, partition, EARLIEST)
    end_offset = await list_offset(brokers, partition, LATEST)
    found: list[Record] = []
    while position < end_offset:
        try:
            leader = await brokers.leader(partition)
            response = await leader.request(fetch_request({partition: position}, topic_ids, 1_000_000, 0), 12)
        except OSError:
            brokers.forget(partition)
            continue
        ((_, data),) = _partitions_of(response, topic_ids, 12)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # retention was quicker
            return await read_to_end(brokers, partition, topic_ids)
        if data.error_code != ErrorCode.NONE:
            check_retriable("Fetch", data.error_code)
            brokers.forget(partition)
        records = _records(data, position) if data.error_code == ErrorCode.NONE else []
        if records:
            found += records
            position = found[-1][0] + 1
        else:
            await asyncio.sleep(RETRY_S)
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
