"""A transactional producer that sends one request at a time, in the versions that the test names, and its readers.

Nothing is retried but what every coordinator asks to be: its topic is being made or loaded, or the markers of the last
transaction are still being written.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from barnabas.core.errors import ErrorCode
from barnabas.records.batch import headers
from barnabas.records.builder import BatchBuilder
from barnabas.records.control import ControlType, parse_end_marker
from barnabas.records.reader import records_of
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.k26_end_txn import EndTxnRequest
from barnabas.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from tests.broker.wire_client import Client, now_ms
from tests.peers import eventually

GROUP, TRANSACTION = 0, 1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
END_WITHOUT_EPOCH = 4
"""The last version of EndTxn of the protocol's first version, in which a producer keeps its epoch."""
PRODUCE_VERIFIED, PRODUCE_ADDING = 11, 12
"""The last version of Produce that wants its partitions added before, and the first that adds them itself."""
ADD_BY_PRODUCERS, ADD_BY_BROKERS = 3, 5

_COME_AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


def unique(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def settled(ask: Callable[[], Any], code_of: Callable[[Any], int] = lambda answer: answer.error_code) -> Any:
    """The first answer that does not ask to come again."""
    deadline = time.monotonic() + 20
    while ErrorCode(code_of(answer := ask())) in _COME_AGAIN and time.monotonic() < deadline:
        time.sleep(0.01)
    return answer


def find_coordinator(client: Client, key: str, key_type: int) -> None:
    """Have the internal topic made, and wait until the key has a coordinator."""
    eventually(
        lambda: client.call(FindCoordinatorRequest("", key_type, [key])).coordinators[0].error_code, ErrorCode.NONE, 30
    )


class TransactionalProducer:
    """One transactional id, with the producer id and epoch that it was given last."""

    def __init__(self, client: Client, name: str | None = None, timeout_ms: int = 60_000) -> None:
        self.client = client
        self.name = name or unique("x")
        self.timeout_ms = timeout_ms
        self.id, self.epoch = -1, -1
        self._sequences: dict[tuple[str, int], int] = {}
        find_coordinator(client, self.name, TRANSACTION)
        self.initialise()

    def initialise(self, version: int = 5) -> None:
        """Begin anew: whoever had the id before is fenced, and its transaction aborted."""
        self.adopt(settled(lambda: self.client.call(InitProducerIdRequest(self.name, self.timeout_ms), version)))

    def adopt(self, answer: Any) -> None:
        """Go on with the producer id and epoch of a response."""
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def add(self, topic: str, *partitions: int, version: int = ADD_BY_PRODUCERS) -> ErrorCode:
        """AddPartitionsToTxn, as a producer sends it; the code of the first partition."""
        request = self.add_request((topic, partitions or (0,)), version=version)
        codes = settled(lambda: codes_of(self.client.call(request, version)), lambda codes: codes[0])
        return ErrorCode(codes[0])

    def add_request(
        self,
        *topics: tuple[str, tuple[int, ...]],
        version: int,
        is_verified_only: bool = False,
        producer_id: int | None = None,
        epoch: int | None = None,
    ) -> AddPartitionsToTxnRequest:
        asked = [AddPartitionsToTxnTopic(topic, list(partitions)) for topic, partitions in topics]
        producer_id = self.id if producer_id is None else producer_id
        epoch = self.epoch if epoch is None else epoch
        if version <= ADD_BY_PRODUCERS:
            return AddPartitionsToTxnRequest([], self.name, producer_id, epoch, asked)
        return AddPartitionsToTxnRequest(
            [AddPartitionsToTxnTransaction(self.name, producer_id, epoch, is_verified_only, asked)]
        )

    def send(
        self, topic: str, *values: bytes, partition: int = 0, version: int = PRODUCE_ADDING, epoch: int | None = None
    ) -> Any:
        """Produce one batch of this transaction; the response for its partition."""
        place = topic, partition
        sequence = self._sequences.get(place, 0)
        builder = BatchBuilder(
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            transactional=True,
        )
        for value in values:
            builder.append(b"key", value, (), now_ms())
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, builder.build())])
        request = ProduceRequest(self.name, -1, 10_000, [data])
        result = settled(lambda: self.client.call(request, version).responses[0].partition_responses[0])
        if result.error_code == ErrorCode.NONE:
            self._sequences[place] = sequence + len(values)
        return result

    def write(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Send values, which must be taken; their first offset."""
        result = self.send(topic, *values, partition=partition)
        assert result.error_code == ErrorCode.NONE, ErrorCode(result.error_code)
        offset: int = result.base_offset
        return offset

    def end_request(self, committed: bool, epoch: int | None = None, producer_id: int | None = None) -> EndTxnRequest:
        return EndTxnRequest(
            self.name,
            self.id if producer_id is None else producer_id,
            self.epoch if epoch is None else epoch,
            committed,
        )

    def end(self, *, commit: bool, version: int = 5) -> None:
        """End the transaction, and wait until it is complete."""
        answer = settled(lambda: self.client.call(self.end_request(commit), version))
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        if version > END_WITHOUT_EPOCH:
            self.adopt(answer)
        eventually(lambda: self.state().startswith("Complete"), True)

    def state(self) -> str:
        state: str = describe(self.client, self.name).transaction_state
        return state


def codes_by_place(answer: Any) -> dict[tuple[str, int], int]:
    """The error code of each partition in a response to AddPartitionsToTxn, of any version."""
    topics = [topic for result in answer.results_by_transaction for topic in result.topic_results]
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in topics + answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }


def codes_of(answer: Any) -> list[int]:
    return [code for _, code in sorted(codes_by_place(answer).items())]


def describe(client: Client, name: str) -> Any:
    return settled(lambda: client.call(DescribeTransactionsRequest([name])).transaction_states[0])


def producers_of(client: Client, topic: str, partition: int = 0) -> dict[int, Any]:
    """The producers that a partition remembers, by their ids."""
    response = client.call(DescribeProducersRequest([TopicRequest(topic, [partition])]))
    (result,) = response.topics[0].partitions
    assert result.error_code == ErrorCode.NONE
    return {state.producer_id: state for state in result.active_producers}


def committed_values(client: Client, topic: str, partition: int = 0) -> list[bytes | None]:
    """What a consumer with `read_committed` makes of a fetch: without markers and aborted records."""
    data = client.fetch(topic, partition=partition, isolation_level=READ_COMMITTED)
    assert data.error_code == ErrorCode.NONE
    upcoming = sorted(((each.first_offset, each.producer_id) for each in data.aborted_transactions), reverse=True)
    aborting: set[int] = set()
    found: list[bytes | None] = []
    view = memoryview(data.records or b"")
    for at, header in headers(view):
        while upcoming and upcoming[-1][0] <= header.last_offset:
            aborting.add(upcoming.pop()[1])
        batch = view[at : at + header.size]
        if header.is_control:
            aborting.discard(header.producer_id)
        elif header.producer_id not in aborting:
            found += [record.value for record in records_of(batch)]
    return found


def markers_in(client: Client, topic: str, partition: int = 0) -> list[tuple[int, ControlType]]:
    """The markers of a partition: whose transaction each ended, and how."""
    view = memoryview(client.fetch(topic, partition=partition).records or b"")
    found = []
    for at, header in headers(view):
        if header.is_control and (marker := parse_end_marker(view[at : at + header.size])):
            found.append((header.producer_id, marker.type))
    return found
