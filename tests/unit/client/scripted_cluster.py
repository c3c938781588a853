"""A cluster for tests of the producer, on a loop of virtual time: brokers that count sequences as Kafka's do, and that
answer otherwise where a test says so.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from barnabas.client.client import Client
from barnabas.client.connections import Address
from barnabas.client.errors import CannotReach
from barnabas.core.errors import ErrorCode
from barnabas.net.channel import ChannelClosed
from barnabas.records.batch import NO_SEQUENCE, check_batch
from barnabas.records.reader import records_of
from barnabas.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.simulation.virtual_loop import VirtualClock, VirtualLoop

T = TypeVar("T")
TOPIC = "orders"
PORT = 9092
REQUEST_TIMEOUT_S = 30
Fault = ErrorCode | BaseException | float
"""Instead of an append: an error code, a broken connection, or an answer that takes so many seconds (inf: never).

An answer that is lost is the connection that breaks after the append.
"""


class AnswerLost(CannotReach):
    def __init__(self) -> None:
        super().__init__("broker 1 at b1:9092", ChannelClosed("b1:9092 closed the connection"))


@dataclass
class Sent:
    """A batch as a broker got it."""

    at: float
    broker: int
    request: int
    partition: int
    producer_epoch: int
    base_sequence: int
    values: list[bytes | None]


@dataclass
class ScriptedCluster:
    partitions: int = 1
    leaders: dict[int, int] = field(default_factory=dict)
    """Of each partition; broker 1 leads the rest."""
    faults: deque[Fault | None] = field(default_factory=deque)
    """What becomes of the next batches; None lets one be appended, and so does the end."""
    metadata_errors: deque[ErrorCode] = field(default_factory=deque)
    identity_errors: deque[ErrorCode] = field(default_factory=deque)
    throttle_ms: int = 0
    seconds_of_broker: dict[int, float] = field(default_factory=dict)
    """How long a broker takes for a request, if not a millisecond."""
    largest_batch: int = 1 << 20
    remembered_batches: int = 5
    """How many a leader knows again; Kafka's knows one after a restart."""
    sent: list[Sent] = field(default_factory=list)
    logs: dict[int, list[bytes | None]] = field(default_factory=lambda: defaultdict(list))
    requests: int = 0
    most_in_flight: int = 0
    _in_flight: int = 0
    _states: dict[int, tuple[int, int]] = field(default_factory=dict)
    _numbered: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Of the batches of each partition: epoch, sequence, count and offset."""

    async def request(self, address: Address, message: Any, **_: Any) -> Any:
        match message:
            case MetadataRequest():
                return self._metadata(message)
            case InitProducerIdRequest():
                error = self.identity_errors.popleft() if self.identity_errors else ErrorCode.NONE
                return InitProducerIdResponse(error_code=error, producer_id=7, producer_epoch=0)
            case ProduceRequest():
                return await self._produce(address, message)
        raise AssertionError(message)

    def call(self, address: Address, message: Any, then: Callable[[Any], None], **_: Any) -> asyncio.Future[Any]:
        def ended(future: asyncio.Future[Any]) -> None:
            if not future.cancelled():
                then(future.exception() or future.result())

        future = asyncio.ensure_future(self.request(address, message))
        future.add_done_callback(ended)
        return future

    async def send(self, address: Address, message: Any, **_: Any) -> None:
        await self.request(address, message)

    async def close(self) -> None:
        pass

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        error = ErrorCode.NONE
        if request.topics and self.metadata_errors:
            error = self.metadata_errors.popleft()
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=self.leaders.get(number, 1))
            for number in range(self.partitions)
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=number, host=f"b{number}", port=PORT) for number in (1, 2)],
            topics=[
                MetadataResponseTopic(error_code=error, name=topic.name, topic_id=bytes(16), partitions=partitions)
                for topic in request.topics or ()
            ],
        )

    async def _produce(self, address: Address, request: ProduceRequest) -> ProduceResponse:
        self.requests += 1
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        number, broker = self.requests, int(address.host.removeprefix("b"))
        try:
            await asyncio.sleep(self.seconds_of_broker.get(broker, 0.001))
            topics = []
            for topic in request.topic_data:
                answers = [
                    await self._append(number, broker, data.index, memoryview(data.records or b""))
                    for data in topic.partition_data
                ]
                topics.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
            return ProduceResponse(responses=topics, throttle_time_ms=self.throttle_ms)
        finally:
            self._in_flight -= 1

    async def _append(self, request: int, broker: int, partition: int, batch: memoryview) -> PartitionProduceResponse:
        header = check_batch(batch)
        values = [record.value for record in records_of(batch)]
        now = asyncio.get_running_loop().time()
        epoch, sequence = header.producer_epoch, header.base_sequence
        self.sent.append(Sent(now, broker, request, partition, epoch, sequence, values))
        fault = self.faults.popleft() if self.faults else None
        error = ErrorCode.NONE
        if isinstance(fault, float):
            await asyncio.sleep(min(fault, REQUEST_TIMEOUT_S))
            if fault > REQUEST_TIMEOUT_S:
                raise broken()
        elif isinstance(fault, ErrorCode):
            error = fault
        elif isinstance(fault, BaseException) and not isinstance(fault, AnswerLost):
            raise fault
        elif header.size > self.largest_batch:
            error = ErrorCode.MESSAGE_TOO_LARGE
        elif self.leaders.get(partition, 1) != broker:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        offset = self._known_offset(partition, epoch, sequence, len(values))
        if offset is None and not error:
            if header.has_producer_id and not self._is_in_order(partition, epoch, sequence):
                error = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            else:
                offset = self._keep(partition, epoch, sequence, values)
        if isinstance(fault, AnswerLost):
            raise fault
        if error or offset is None:
            return PartitionProduceResponse(index=partition, error_code=error, base_offset=-1)
        return PartitionProduceResponse(index=partition, base_offset=offset)

    def _keep(self, partition: int, epoch: int, sequence: int, values: list[bytes | None]) -> int:
        offset = len(self.logs[partition])
        self.logs[partition] += values
        self._states[partition] = (epoch, sequence + len(values))
        if sequence != NO_SEQUENCE:
            self._numbered[partition].append((epoch, sequence, len(values), offset))
        return offset

    def _known_offset(self, partition: int, *batch: int) -> int | None:
        """Where a batch is that the leader knows again."""
        remembered = self._numbered[partition][-self.remembered_batches :]
        return next((offset for *known, offset in remembered if (*known,) == batch), None)

    def _is_in_order(self, partition: int, epoch: int, sequence: int) -> bool:
        """A leader that knows nothing of a producer takes any sequence."""
        known_epoch, expected = self._states.get(partition, (epoch, sequence))
        return sequence == (expected if epoch == known_epoch else 0)


def broken() -> CannotReach:
    return CannotReach("broker 1 at b1:9092", ConnectionRefusedError())


def run(cluster: ScriptedCluster, work: Callable[[Client], Awaitable[T]]) -> T:
    """Let `work` have a client of the cluster, until it is done and nothing is left."""
    loop = VirtualLoop()

    async def session() -> T:
        client = Client(f"b1:{PORT}", network=None, clock=VirtualClock(loop), random=Random(7))  # type: ignore[arg-type]
        client.connections = client.metadata._connections = cluster  # type: ignore[assignment]
        async with client:
            done = await asyncio.wait_for(work(client), 10_000)
        assert asyncio.all_tasks(loop) == {asyncio.current_task()}
        return done

    try:
        return loop.run_until_complete(session())
    finally:
        loop.close()
