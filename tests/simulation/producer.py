"""A producer that goes on through every fault, and writes down what it sends and is told.

It sends the same values again, in the same order, until they are acknowledged. With idempotence up to five batches are
under way at once; without, one, and a repeated one may be there twice. The first under a producer id goes alone: a
leader that knows nothing of the id takes any sequence number, also one that has overtaken a refused first.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.core.errors import ErrorCode
from barnabas.core.seams import Clock
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from barnabas.records.builder import BatchBuilder
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest
from tests.checker.history import Acknowledged, History, ProducerIdGiven, Sent, SequenceForgotten, TopicPartition
from tests.simulation.brokers import RETRY_S, Brokers, check_retriable
from tests.simulation.client import REQUEST_TIMEOUT_S

MAX_IN_FLIGHT = 5
VERSIONS = (3, 7, 9, 12, 13)  # the last by topic id
_FORGOTTEN = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


class _Batch(NamedTuple):
    values: tuple[bytes, ...]
    base_sequence: int


class _Refused(Exception):
    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Producer:
    """Sends to one partition until it is told to stop, and then until all is acknowledged."""

    def __init__(
        self,
        name: str,
        brokers: Brokers,
        partition: TopicPartition,
        topic_id: bytes,
        idempotent: bool,
        acks: int,
        rng: random.Random,
        clock: Clock,
        history: History,
    ) -> None:
        self.name = name
        self.idempotent = idempotent
        self.acks = acks
        self._brokers = brokers
        self._partition = partition
        self._topic_id = topic_id
        self._rng = rng
        self._clock = clock
        self._history = history
        self._version = rng.choice(VERSIONS)
        self._max_value_bytes = rng.choice((20, 200, 2_000))
        self._count = 0
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        self._next_sequence = 0 if idempotent else NO_SEQUENCE
        self._counting_since_life = 0
        self._is_known = False
        self._unacknowledged: deque[_Batch] = deque()

    async def run(self, should_stop: Callable[[], bool]) -> None:
        await self._begin()
        while self._unacknowledged or not should_stop():
            if not should_stop():
                self._add_batches()
                await asyncio.sleep(self._rng.random() * 3)
            await self._send()

    async def _begin(self) -> None:
        """Get a producer id, and number what is unacknowledged from 0."""
        if not self.idempotent:
            return
        while True:
            try:
                response = await self._brokers.request(InitProducerIdRequest(None), 4)
            except OSError:
                continue
            if response.error_code == ErrorCode.NONE:
                break
            check_retriable("InitProducerId", response.error_code)
            self._brokers.turn()
            await asyncio.sleep(RETRY_S)
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
        self._counting_since_life = self._brokers.life_of(self._partition)
        self._history.record(ProducerIdGiven(self.name, self._producer_id, self._producer_epoch))
        self._next_sequence = 0
        self._is_known = False
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
        """Send all that is unacknowledged, in order, to the leader, and take the answers."""
        leader = await self._brokers.leader(self._partition)
        life = self._brokers.life_of(self._partition)
        try:
            connection = await leader.connect()
            leaving = MAX_IN_FLIGHT if self._is_known or not self.idempotent else 1
            batches = list(self._unacknowledged)[:leaving]
            answers = [connection.request(self._request(batch), self._version) for batch in batches]
            for answer in answers:
                self._take_answer(await asyncio.wait_for(answer, REQUEST_TIMEOUT_S), life)
        except _Refused as refused:
            # What follows in flight was refused for the same reason, or will be a duplicate.
            leader.close()
            self._brokers.forget(self._partition)
            if refused.code in _FORGOTTEN:
                self._history.record(
                    SequenceForgotten(
                        self.name, self._brokers.life_of(self._partition), self._partition, self._counting_since_life
                    )
                )
                await self._begin()
            else:
                check_retriable("Produce", refused.code)
                await asyncio.sleep(RETRY_S)
        except OSError:
            leader.close()
            self._brokers.forget(self._partition)

    def _request(self, batch: _Batch) -> ProduceRequest:
        builder = BatchBuilder(
            producer_id=self._producer_id, producer_epoch=self._producer_epoch, base_sequence=batch.base_sequence
        )
        builder.extend(batch.values, timestamp_ms=self._clock.now_ms())
        data = PartitionProduceData(self._partition.partition, builder.build())
        topic = TopicProduceData(self._partition.topic, self._topic_id, [data])
        return ProduceRequest(None, self.acks, 30_000, [topic])

    def _take_answer(self, response: Any, life: int) -> None:
        result = response.responses[0].partition_responses[0]
        if result.error_code != ErrorCode.NONE:
            raise _Refused(ErrorCode(result.error_code))
        self._is_known = True
        values = self._unacknowledged.popleft().values
        self._history.record(Acknowledged(self.name, life, self._partition, result.base_offset, values))
