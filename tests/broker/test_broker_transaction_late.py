"""Requests of a transaction that is over: what each is told after what has happened since, and that nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.records.builder import BatchBuilder
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.k26_end_txn import EndTxnRequest
from barnabas.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.transaction_network import code_of
from tests.broker.transactional import GROUP, TransactionalProducer, committed_values, describe, find_coordinator
from tests.broker.wire_client import Client, now_ms

NONE, INVALID, FENCED = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
PARTITIONS = 2


class Past(NamedTuple):
    """A producer as it was in a transaction of its own, in which it wrote one record to partition 0."""

    client: Client
    topic: str
    name: str
    producer_id: int
    epoch: int

    def produce(self, sequence: int, partition: int = 0, version: int = 12) -> ErrorCode:
        builder = BatchBuilder(
            producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence, transactional=True
        )
        builder.append(b"key", b"late", (), now_ms())
        data = [PartitionProduceData(partition, builder.build())]
        topic = TopicProduceData(self.topic, self.client.topic_id(self.topic), data)
        return self._told(ProduceRequest(self.name, -1, 10_000, [topic]), version)

    def end(self, commit: bool) -> ErrorCode:
        return self._told(EndTxnRequest(self.name, self.producer_id, self.epoch, commit), 5)

    def add(self) -> ErrorCode:
        topics = [AddPartitionsToTxnTopic(self.topic, [0])]
        return self._told(AddPartitionsToTxnRequest([], self.name, self.producer_id, self.epoch, topics), 3)

    def add_offsets(self) -> ErrorCode:
        return self._told(AddOffsetsToTxnRequest(self.name, self.producer_id, self.epoch, self.name), 4)

    def commit_offsets(self, version: int) -> ErrorCode:
        topic = TxnOffsetCommitRequestTopic(self.topic, [TxnOffsetCommitRequestPartition(0, 1, -1, "")])
        request = TxnOffsetCommitRequest(self.name, self.name, self.producer_id, self.epoch, topics=[topic])
        return self._told(request, version)

    def _told(self, request: Any, version: int) -> ErrorCode:
        return code_of(self.client.call(request, version))


# what has happened since; each is given the producer and the topic


def _committed(producer: TransactionalProducer, topic: str) -> None:
    producer.end(commit=True)


def _aborted(producer: TransactionalProducer, topic: str) -> None:
    producer.end(commit=False)


def _next_is_open(producer: TransactionalProducer, topic: str) -> None:
    producer.end(commit=True)
    producer.write(topic, b"next")


def _next_is_open_elsewhere(producer: TransactionalProducer, topic: str) -> None:
    producer.end(commit=True)
    producer.write(topic, b"next", partition=1)


def _next_is_committed(producer: TransactionalProducer, topic: str) -> None:
    _next_is_open(producer, topic)
    producer.end(commit=True)


def _fenced(producer: TransactionalProducer, topic: str) -> None:
    TransactionalProducer(producer.client, producer.name)


def _successor_is_open(producer: TransactionalProducer, topic: str) -> None:
    TransactionalProducer(producer.client, producer.name).write(topic, b"next")


def _successor_has_committed(producer: TransactionalProducer, topic: str) -> None:
    successor = TransactionalProducer(producer.client, producer.name)
    successor.write(topic, b"next")
    successor.end(commit=True)


Step = Callable[[TransactionalProducer, str], None]

SINCE: list[Step] = [
    _committed,
    _aborted,
    _next_is_open,
    _next_is_open_elsewhere,
    _next_is_committed,
    _fenced,
    _successor_is_open,
    _successor_has_committed,
]
LATE: dict[str, tuple[Callable[[Past], ErrorCode], ErrorCode]] = {
    "EndTxn, commit": (lambda past: past.end(True), FENCED),
    "EndTxn, abort": (lambda past: past.end(False), FENCED),
    "Produce again": (lambda past: past.produce(0), OLD_EPOCH),
    "Produce the next": (lambda past: past.produce(1), OLD_EPOCH),
    "Produce by topic id": (lambda past: past.produce(1, version=13), OLD_EPOCH),
    "Produce elsewhere": (lambda past: past.produce(0, partition=1), OLD_EPOCH),
    "Produce of the first protocol": (lambda past: past.produce(1, version=11), OLD_EPOCH),
    "AddPartitionsToTxn": (lambda past: past.add(), FENCED),
    "AddOffsetsToTxn": (lambda past: past.add_offsets(), FENCED),
    "TxnOffsetCommit": (lambda past: past.commit_offsets(5), OLD_EPOCH),
    "TxnOffsetCommit of the first protocol": (lambda past: past.commit_offsets(4), OLD_EPOCH),
}
"""Requests, and the error code that tells their sender that its epoch is over."""
REPEATED: dict[tuple[str, Step], ErrorCode] = {
    ("EndTxn, commit", _committed): NONE,
    ("EndTxn, abort", _committed): INVALID,
    ("EndTxn, commit", _aborted): INVALID,
    ("EndTxn, abort", _aborted): NONE,
}
"""The end of the last transaction may be asked for again, but not another end."""


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("since", SINCE, ids=lambda step: step.__name__.strip("_").replace("_", " "))
def test_a_late_request_is_refused_and_changes_nothing(client: Client, since: Step, late: str) -> None:
    topic = client.create_topic(PARTITIONS)
    producer = TransactionalProducer(client)
    find_coordinator(client, producer.name, GROUP)
    producer.write(topic, b"first")
    past = Past(client, topic, producer.name, producer.id, producer.epoch)
    since(producer, topic)
    before = _state_of(client, producer.name, topic)
    send, refusal = LATE[late]
    assert send(past) is REPEATED.get((late, since), refusal)
    assert _state_of(client, producer.name, topic) == before


def _state_of(client: Client, name: str, topic: str) -> object:
    transaction = describe(client, name)
    return (
        transaction.transaction_state,
        transaction.producer_epoch,
        transaction.topics,
        [client.list_offset(topic, -1, partition).offset for partition in range(PARTITIONS)],
        [committed_values(client, topic, partition) for partition in range(PARTITIONS)],
    )
