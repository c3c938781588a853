"""Producers and consumers that go on through every fault, and write down what they send, are told and read.

A producer has its own partition order: it sends the same values again, in the same order, until they are acknowledged.
With idempotence up to five batches are under way at once; without, one, and a repeated one may be there twice.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.core.errors import ErrorCode
from barnabas.core.seams import Clock
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from barnabas.records.builder import BatchBuilder
from barnabas.records.reader import read_records
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest
from tests.simulation.client import REQUEST_TIMEOUT_S, Client
from tests.simulation.history import (
    Acknowledged,
    History,
    Polled,
    ProducerIdGiven,
    Record,
    Sent,
    SequenceForgotten,
    TopicPartition,
)

RETRY_S = 0.1
MAX_IN_FLIGHT = 5
MAX_WAIT_MS = 500
PRODUCE_VERSIONS = (3, 7, 9, 12, 13)  # the last by topic id
FETCH_VERSIONS = (4, 7, 11, 12, 13, 17)
FIRST_FETCH_BY_TOPIC_ID = 13
FIRST_FETCH_WITH_SESSIONS = 7
NO_SESSION = (0, -1)
NEW_SESSION = (0, 0)
_FORGOTTEN = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


class UnexpectedError(AssertionError):
    """An error code that no fault explains."""


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    configs: tuple[tuple[str, str], ...] = ()


class _Batch(NamedTuple):
    values: tuple[bytes, ...]
    base_sequence: int


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
        errors = [ErrorCode(result.error_code) for result in response.topics]
        if all(error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) for error in errors):
            return await _topic_ids(client, [topic.name for topic in topics])
        _check_retriable("CreateTopics", *errors)
        await asyncio.sleep(RETRY_S)


async def _topic_ids(client: Client, names: Sequence[str]) -> dict[str, bytes]:
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names])
    while True:
        try:
            response, _ = await client.request(request, 12)
        except OSError:
            continue
        _check_retriable("Metadata", *(ErrorCode(topic.error_code) for topic in response.topics))
        if all(topic.error_code == ErrorCode.NONE for topic in response.topics):
            return {topic.name: topic.topic_id for topic in response.topics}
        await asyncio.sleep(RETRY_S)


class Producer:
    """Sends to one partition until it is told to stop, and then until all is acknowledged."""

    def __init__(
        self,
        name: str,
        client: Client,
        partition: TopicPartition,
        topic_id: bytes,
        idempotent: bool,
        rng: random.Random,
        clock: Clock,
        history: History,
    ) -> None:
        self.name = name
        self.idempotent = idempotent
        self._client = client
        self._partition = partition
        self._topic_id = topic_id
        self._rng = rng
        self._clock = clock
        self._history = history
        self._acks = rng.choice((1, -1))
        self._version = rng.choice(PRODUCE_VERSIONS)
        self._max_value_bytes = rng.choice((20, 200, 2_000))
        self._count = 0
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        self._next_sequence = 0 if idempotent else NO_SEQUENCE
        self._counting_since_boot = 0
        self._unacknowledged: deque[_Batch] = deque()

    async def run(self, should_stop: Callable[[], bool]) -> None:
        await self._begin()
        while self._unacknowledged or not should_stop():
            if not should_stop():
                self._add_batches()
                await asyncio.sleep(self._rng.random() * 0.3)
            await self._send()

    async def _begin(self) -> None:
        """Get a producer id, and number what is unacknowledged from 0."""
        if not self.idempotent:
            return
        while True:
            try:
                response, boot = await self._client.request(InitProducerIdRequest(None), 4)
            except OSError:
                continue
            if response.error_code == ErrorCode.NONE:
                break
            _check_retriable("InitProducerId", ErrorCode(response.error_code))
            await asyncio.sleep(RETRY_S)
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
        self._counting_since_boot = boot
        self._history.record(ProducerIdGiven(self.name, self._producer_id, self._producer_epoch))
        self._next_sequence = 0
        renumbered = [_Batch(values, self._take_sequence(len(values))) for values, _ in self._unacknowledged]
        self._unacknowledged = deque(renumbered)

    def _take_sequence(self, count: int) -> int:
        sequence = self._next_sequence
        if self.idempotent:
            self._next_sequence += count
        return sequence

    def _add_batches(self) -> None:
        wanted = self._rng.randint(1, MAX_IN_FLIGHT) if self.idempotent else 1
        while len(self._unacknowledged) < wanted:
            values = tuple(self._new_value() for _ in range(self._rng.randint(1, 5)))
            self._history.record(Sent(self.name, self._partition, values))
            self._unacknowledged.append(_Batch(values, self._take_sequence(len(values))))

    def _new_value(self) -> bytes:
        self._count += 1
        name = f"{self.name}:{self._count} ".encode()
        return name + self._rng.randbytes(self._rng.randint(0, self._max_value_bytes))

    async def _send(self) -> None:
        """Send all that is unacknowledged, in order, and take the answers."""
        connection = await self._client.connect()
        answers = [connection.request(self._request(batch), self._version) for batch in self._unacknowledged]
        try:
            for answer in answers:
                self._take_answer(await asyncio.wait_for(answer, REQUEST_TIMEOUT_S), connection.boot)
        except _Refused as refused:
            # What follows in flight was refused for the same reason, or will be a duplicate.
            connection.close()
            if refused.code in _FORGOTTEN:
                self._history.record(
                    SequenceForgotten(self.name, connection.boot, self._partition, self._counting_since_boot)
                )
                await self._begin()
            else:
                _check_retriable("Produce", refused.code)
                await asyncio.sleep(RETRY_S)
        except OSError:
            connection.close()

    def _request(self, batch: _Batch) -> ProduceRequest:
        builder = BatchBuilder(
            producer_id=self._producer_id, producer_epoch=self._producer_epoch, base_sequence=batch.base_sequence
        )
        builder.extend(batch.values, timestamp_ms=self._clock.now_ms())
        data = PartitionProduceData(self._partition.partition, builder.build())
        topic = TopicProduceData(self._partition.topic, self._topic_id, [data])
        return ProduceRequest(None, self._acks, 30_000, [topic])

    def _take_answer(self, response: Any, boot: int) -> None:
        result = response.responses[0].partition_responses[0]
        if result.error_code != ErrorCode.NONE:
            raise _Refused(ErrorCode(result.error_code))
        values = self._unacknowledged.popleft().values
        self._history.record(Acknowledged(self.name, boot, self._partition, result.base_offset, values))


class _Refused(Exception):
    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


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
        self._version = rng.choice(FETCH_VERSIONS)
        self._max_bytes = rng.choice((1, 5_000, 1_000_000))
        has_sessions = self._version >= FIRST_FETCH_WITH_SESSIONS and rng.random() < 0.6
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
        error = ErrorCode(response.error_code)
        if error != ErrorCode.NONE or response.session_id == 0:
            _check_retriable("Fetch", error)
            self._forget_session()
        else:
            self._session = (response.session_id, self._session[1] + 1)

    def _forget_session(self) -> None:
        self._session = self._first_session
        self._asked.clear()

    def _take(self, partition: TopicPartition, data: Any, boot: int) -> None:
        error = ErrorCode(data.error_code)
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions[partition] = 0
        elif error != ErrorCode.NONE:
            _check_retriable("Fetch", error)
        elif records := _records(data, self._positions[partition]):
            self._history.record(Polled(self.name, boot, partition, self._positions[partition], tuple(records)))
            self._positions[partition] = records[-1][0] + 1


async def read_to_end(client: Client, partition: TopicPartition, topic_ids: dict[str, bytes]) -> tuple[Record, ...]:
    """The whole log of a partition, up to the high watermark that the last answer tells."""
    found: list[Record] = []
    while True:
        position = found[-1][0] + 1 if found else 0
        try:
            response, _ = await client.request(fetch_request({partition: position}, topic_ids, 1_000_000, 0), 12)
        except OSError:
            continue
        ((_, data),) = _partitions_of(response, topic_ids, 12)
        if data.error_code != ErrorCode.NONE:
            _check_retriable("Fetch", ErrorCode(data.error_code))
            await asyncio.sleep(RETRY_S)
            continue
        found += _records(data, position)
        if (found[-1][0] + 1 if found else 0) >= data.high_watermark:
            return tuple(found)


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
    by_id = version >= FIRST_FETCH_BY_TOPIC_ID
    return [
        (TopicPartition(names[topic.topic_id] if by_id else topic.topic, data.partition_index), data)
        for topic in response.responses
        for data in topic.partitions
    ]


def _records(data: Any, from_offset: int) -> list[Record]:
    if not data.records:
        return []
    return [(r.offset, r.value) for r in read_records(data.records, from_offset=from_offset) if r.value is not None]


def _check_retriable(what: str, *errors: ErrorCode) -> None:
    for error in errors:
        if error != ErrorCode.NONE and not error.retriable:
            raise UnexpectedError(f"{what} was answered with {error.name}")
