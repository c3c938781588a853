"""Long polls to the leaders of assigned partitions.

Each leader has at most one fetch under way, for all of its partitions that have none. Fetches outlive the call that
waits for them, so a cancelled wait loses nothing; what comes in for a position that has moved since is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.list_offsets import Isolation
from barnabas.client.metadata import BrokerInfo, TopicPartition, by_topic
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import ZERO_UUID
from barnabas.records.batch import CorruptBatch, headers
from barnabas.records.control import ControlType, parse_end_marker
from barnabas.records.reader import read_records, records_of
from barnabas.records.record import Record
from barnabas.wire.messages.k01_fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic

_LAST_VERSION_BY_NAME = 12
_NO_SESSION_EPOCH = -1


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """What every fetch of a consumer asks for."""

    isolation_level: Isolation
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int


class Fetched(NamedTuple):
    """What one fetch brought of one partition; `next_offset` is where to go on, past records that were left out too."""

    partition: TopicPartition
    records: list[Record]
    next_offset: int
    high_watermark: int


class _Answer(NamedTuple):
    """A partition's part of a response, with the position that was asked for."""

    partition: TopicPartition
    position: int
    data: Any | None
    problem: KafkaError | None


class Fetcher:
    """Owns the positions: the offset of the next record of each assigned partition."""

    def __init__(self, client: Client, options: FetchOptions) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self._client = client
        self._options = options
        self._fetches: dict[int, asyncio.Task[list[_Answer]]] = {}
        self._asked: set[TopicPartition] = set()
        self._failing_since: dict[TopicPartition, float] = {}
        self._pause_seconds = 0.0
        self._problem: KafkaError | None = None

    async def fetch(self, timeout_ms: int) -> list[Fetched]:
        """What has come in, waiting up to `timeout_ms` for the first; an empty list if that was not enough."""
        deadline = self._client.clock.monotonic() + timeout_ms / 1000
        while True:
            self._raise_problem()
            await self._start()
            left = max(0.0, deadline - self._client.clock.monotonic())
            if self._fetches:
                await asyncio.wait(self._fetches.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            elif not self.positions:
                await asyncio.sleep(left)
            # Nothing waits between here and the caller: positions have moved past records that only this call holds.
            fetched = self._take_finished()
            if fetched or (self._problem is None and self._client.clock.monotonic() >= deadline):
                return fetched

    def _take_finished(self) -> list[Fetched]:
        fetched = []
        for leader in [node_id for node_id, task in self._fetches.items() if task.done()]:
            for answer in self._fetches.pop(leader).result():
                self._asked.discard(answer.partition)
                if self.positions.get(answer.partition) != answer.position:
                    continue
                if answer.problem is not None:
                    self._failed(answer.partition, answer.problem)
                elif taken := self._take(answer):
                    fetched.append(taken)
        return fetched

    def _raise_problem(self) -> None:
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def _failed(self, partition: TopicPartition, error: KafkaError) -> None:
        """Ask again after a pause; give up on what cannot pass, or has not passed for too long."""
        self._client.metadata.forget([partition.topic])
        now = self._client.clock.monotonic()
        since = self._failing_since.setdefault(partition, now)
        if not error.code.retriable or now - since > self._client.retry_timeout_ms / 1000:
            self._problem = self._problem or error
        self._pause_seconds = self._client.backoff_seconds(len(self._failing_since))

    def _take(self, answer: _Answer) -> Fetched | None:
        partition, data = answer.partition, answer.data
        self._failing_since.pop(partition, None)
        if data is None or not data.records:
            return None
        try:
            last = max((header.next_offset for _, header in headers(data.records)), default=answer.position)
            records = list(_visible(data.records, answer.position, data.aborted_transactions or ()))
        except CorruptBatch as error:
            self._problem = KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"cannot read {partition} after {answer.position}: {error}"
            )
            return None
        self.positions[partition] = last
        return Fetched(partition, records, last, data.high_watermark)

    async def close(self) -> None:
        for task in self._fetches.values():
            task.cancel()
        await asyncio.gather(*self._fetches.values(), return_exceptions=True)
        self._fetches.clear()

    async def _start(self) -> None:
        """Begin a fetch at every idle leader of partitions that none is under way for."""
        pause, self._pause_seconds = self._pause_seconds, 0.0
        if pause:
            await asyncio.sleep(pause)
        by_leader: dict[BrokerInfo, list[TopicPartition]] = {}
        for partition in sorted(self.positions.keys() - self._asked):
            try:
                leader = await self._client.metadata.leader_of(partition)
            except KafkaError as error:
                self._failed(partition, error)
            else:
                if leader.node_id not in self._fetches:
                    by_leader.setdefault(leader, []).append(partition)
        for leader, led in by_leader.items():
            self._asked.update(led)
            positions = {partition: self.positions[partition] for partition in led}
            self._fetches[leader.node_id] = asyncio.create_task(self._ask(leader, positions))

    async def _ask(self, leader: BrokerInfo, positions: dict[TopicPartition, int]) -> list[_Answer]:
        try:
            ids = {name: (await self._client.metadata.topic(name)).topic_id for name in by_topic(positions)}
            response = await self._client.ask(
                leader,
                self._request(positions, ids),
                highest=_LAST_VERSION_BY_NAME if ZERO_UUID in ids.values() else None,
                extra_timeout_ms=self._options.fetch_max_wait_ms,
            )
            if response.error_code:
                raise refused(response.error_code, f"fetch from broker {leader.node_id}")
        except KafkaError as error:
            return [_Answer(partition, position, None, error) for partition, position in positions.items()]
        names = {topic_id: name for name, topic_id in ids.items()}
        answers = {}
        for topic in response.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic or names[topic.topic_id], data.partition_index)
                position = positions[partition]
                answers[partition] = _Answer(partition, position, data, _refusal(partition, position, data))
        return [
            answers.get(partition, _Answer(partition, position, None, None))
            for partition, position in positions.items()
        ]

    def _request(self, positions: dict[TopicPartition, int], ids: dict[str, bytes]) -> FetchRequest:
        options = self._options
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            isolation_level=options.isolation_level,
            session_id=0,
            session_epoch=_NO_SESSION_EPOCH,
            topics=[
                FetchTopic(
                    topic=name,
                    topic_id=ids[name],
                    partitions=[
                        FetchPartition(
                            partition=index,
                            current_leader_epoch=self._client.metadata.leader_epoch(TopicPartition(name, index)),
                            fetch_offset=positions[TopicPartition(name, index)],
                            partition_max_bytes=options.max_partition_fetch_bytes,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(positions).items()
            ],
        )


def _refusal(partition: TopicPartition, position: int, data: Any) -> KafkaError | None:
    if data.error_code == ErrorCode.NONE:
        return None
    message = None
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        message = f"it does not hold offset {position}; use `beginning`, `end` or an offset between them"
    return refused(data.error_code, f"cannot read {partition}", message)


def _visible(fetched: memoryview, position: int, aborted: Sequence[AbortedTransaction]) -> Iterator[Record]:
    """The data records from `position` on, without those of aborted transactions, which only read_committed lists."""
    if not aborted:
        yield from read_records(fetched, from_offset=position)
        return
    upcoming = deque(sorted((txn.first_offset, txn.producer_id) for txn in aborted))
    aborting: set[int] = set()
    for start, header in headers(fetched):
        while upcoming and upcoming[0][0] <= header.last_offset:
            aborting.add(upcoming.popleft()[1])
        batch = fetched[start : start + header.size]
        if header.is_control:
            marker = parse_end_marker(batch)
            if marker is not None and marker.type is ControlType.ABORT:
                aborting.discard(header.producer_id)
        elif header.last_offset >= position and not (header.is_transactional and header.producer_id in aborting):
            yield from records_of(batch, from_offset=position)
