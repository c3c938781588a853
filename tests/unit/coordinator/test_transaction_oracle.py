"""Apache Kafka judges the transaction coordinator: the same requests, drawn at random, to a real broker and to the
shard, one after the other; every answer, the state that DescribeTransactions shows after it, and the records in
`__transaction_state` must be the same.

Left out are the two places where the shard is stricter on purpose, both for zombies: InitProducerId with an old epoch
does not abort the transaction of a successor (Kafka aborts it, and then fences the zombie too), and EndTxn of version 2
is not answered as done because of a commit that a successor made in version 1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.coordinator.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING, TopicPartition, Transaction
from barnabas.coordinator.transaction_log import decode_transaction
from barnabas.core.errors import ErrorCode
from barnabas.records.batch import NO_TIMESTAMP
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.k26_end_txn import EndTxnRequest
from barnabas.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from tests.broker.wire_client import Client
from tests.peers import KafkaServer
from tests.unit.coordinator.transactions import NOBODY, WALL_MS, Answer, Desk, Producer

SCRIPTS = [*range(12), *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(12, 40))]
STEPS = 25
ORDERS = "orders-in-transactions"


@pytest.fixture(scope="module")
def kafka(judge: KafkaServer) -> Iterator[Client]:
    with Client(judge.address) as client:
        client.create_topic(partitions=3, name=ORDERS)
        deadline = time.monotonic() + 30
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=["any"])
        while client.call(request, 4).coordinators[0].error_code != ErrorCode.NONE:
            assert time.monotonic() < deadline, "Kafka has no transaction coordinator"
            time.sleep(0.1)
        yield client


@dataclass
class KafkaDesk:
    """The same desk, at a real broker. Producer ids are counted from the first that was seen."""

    client: Client
    id: str
    ids: dict[int, int] = field(default_factory=dict)

    def _seen(self, producer_id: int, epoch: int) -> Producer:
        if producer_id >= 0:
            producer_id = self.ids.setdefault(producer_id, 1000 + len(self.ids))
        return Producer(producer_id, epoch)

    def _real(self, producer: Producer) -> Producer:
        return producer._replace(
            producer_id=next((real for real, seen in self.ids.items() if seen == producer.producer_id), -1)
            if producer.producer_id >= 0
            else -1
        )

    def _until_loaded(self, request: Any, version: int) -> Any:
        deadline = time.monotonic() + 30
        while True:
            answer = self.client.call(request, version)
            busy = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
            if answer.error_code not in busy or time.monotonic() > deadline:
                return answer
            time.sleep(0.1)

    def init(self, expected: Producer, version: int) -> Answer:
        expected = self._real(expected)
        request = InitProducerIdRequest(self.id, 60_000, expected.producer_id, expected.epoch)
        answer = self._until_loaded(request, version)
        return ErrorCode(answer.error_code), self._seen(answer.producer_id, answer.producer_epoch)

    def add(self, producer: Producer, partition: TopicPartition, version: int, verify: bool) -> ErrorCode:
        producer_id, epoch = self._real(producer)
        topics = [AddPartitionsToTxnTopic(partition.topic, [partition.partition])]
        if version >= 4:
            transaction = AddPartitionsToTxnTransaction(self.id, producer_id, epoch, verify, topics)
            answer = self.client.call(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            [result] = answer.results_by_transaction[0].topic_results
        else:
            request = AddPartitionsToTxnRequest([], self.id, producer_id, epoch, topics)
            [result] = self.client.call(request, version).results_by_topic_v3_and_below
        return ErrorCode(result.results_by_partition[0].partition_error_code)

    def end(self, producer: Producer, commit: bool, version: int) -> Answer:
        request = EndTxnRequest(self.id, *self._real(producer), commit)
        answer = self.client.call(request, version)
        return ErrorCode(answer.error_code), self._seen(answer.producer_id, answer.producer_epoch)

    def records(self) -> list[CoordinatorRecord]:
        found = self.client.read_all("__transaction_state")
        records = [CoordinatorRecord(bytes(each.key or b""), each.value and bytes(each.value)) for each in found]
        return [each for each in records if decode_transaction(each)[0] == self.id]

    def comparable(self, record: CoordinatorRecord) -> Transaction:
        """As the desk would have it, whose ids are others and whose clock stands still."""
        transaction = decode_transaction(record)[1]
        assert transaction is not None
        return replace(
            transaction,
            producer_id=self._seen(transaction.producer_id, 0).producer_id,
            previous_producer_id=self._seen(transaction.previous_producer_id, 0).producer_id,
            last_update_timestamp_ms=WALL_MS,
            start_timestamp_ms=WALL_MS if transaction.start_timestamp_ms > 0 else NO_TIMESTAMP,
        )

    def settled(self) -> Any:
        """The state, once all markers are written."""
        deadline = time.monotonic() + 10
        while True:
            [state] = self.client.call(DescribeTransactionsRequest([self.id]), 0).transaction_states
            if not state.transaction_state.startswith("Prepare"):
                return state
            assert time.monotonic() < deadline, state
            time.sleep(0.001)


def producers_around(current: Producer) -> list[Producer]:
    return [current._replace(epoch=epoch) for epoch in range(max(0, current.epoch - 2), current.epoch + 2)]


def kinder_to_zombies(desk: Desk, producer: Producer, init: bool, version: int) -> bool:
    """Whether Kafka treats this request of a zombie in its own way."""
    transaction = desk.transaction()
    if init:
        return transaction.state is ONGOING and producer not in (NOBODY, transaction.producer)
    return (
        version >= 5
        and transaction.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
        and transaction.client_transaction_version < 2
        and producer.epoch + 1 == transaction.producer_epoch
    )


@pytest.mark.parametrize("seed", SCRIPTS)
def test_every_answer_is_that_of_apache_kafka(kafka: Client, seed: int) -> None:
    random = Random(seed)
    id = f"script-{seed}-{time.time_ns()}"
    desk, oracle = Desk(id=id), KafkaDesk(kafka, id)
    partitions = [TopicPartition(ORDERS, index) for index in range(3)]
    assert desk.init() == oracle.init(NOBODY, 5)
    trace: list[object] = []
    for _ in range(STEPS):
        current = desk.transaction().producer
        producer = random.choice([current] * 5 + producers_around(current))
        kind = random.choice(["init", "add", "add", "add", "verify", "end", "end", "end"])
        ours: object
        theirs: object
        if kind == "init":
            expected = random.choice([NOBODY, producer, Producer(current.producer_id, max(0, current.epoch - 1))])
            version = random.choice([3, 5])
            if kinder_to_zombies(desk, expected, True, version):
                continue
            step: object = (kind, expected, version)
            ours = desk.init(expected, version=version)
            theirs = oracle.init(expected, version)
        elif kind == "end":
            commit, version = random.random() < 0.5, random.choice([1, 4, 5, 5])
            if kinder_to_zombies(desk, producer, False, version):
                continue
            step = (kind, producer, commit, version)
            ours = desk.end(producer, commit, version=version)
            theirs = oracle.end(producer, commit, version)
        else:
            verify = kind == "verify"
            partition, version = random.choice(partitions), 5 if verify else random.choice([1, 3, 5, 5])
            step = (kind, producer, partition, version)
            ours = desk.add(producer, partition, version=version, verify=verify)
            theirs = oracle.add(producer, partition, version, verify)
        trace.append((step, theirs))
        assert ours == theirs, trace
        desk.write_markers()
        state, described = oracle.settled(), desk.describe()
        assert (state.transaction_state, state.producer_epoch) == (
            described.transaction_state,
            described.producer_epoch,
        ), trace
        assert {(topic.topic, tuple(sorted(topic.partitions))) for topic in state.topics} == {
            (topic.topic, tuple(topic.partitions)) for topic in described.topics
        }, trace
    assert list(map(oracle.comparable, oracle.records())) == [decode_transaction(each)[1] for each in desk.records], (
        trace
    )
    assert [each.value[:2] for each in oracle.records() if each.value] == [b"\0\1"] * len(desk.records)
