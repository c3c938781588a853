"""The first batch of a transaction in a partition: with which sequence, from whom, and what it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.records.builder import BatchBuilder
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.k03_metadata import MetadataRequest
from tests.broker.transactional import (
    END_WITHOUT_EPOCH,
    PRODUCE_ADDING,
    PRODUCE_VERIFIED,
    TransactionalProducer,
    committed_values,
    describe,
)
from tests.broker.wire_client import Client, now_ms
from tests.peers import Broker

NONE, OUT_OF_ORDER = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.fixture
def producer(client: Client) -> TransactionalProducer:
    return TransactionalProducer(client)


def _batch(producer: TransactionalProducer, sequence: int = 0) -> bytearray:
    builder = BatchBuilder(
        producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=sequence, transactional=True
    )
    builder.append(b"key", b"%d" % sequence, (), now_ms())
    return builder.build()


def _request(producer: TransactionalProducer, topic: str, *batches: bytearray, acks: int = -1) -> ProduceRequest:
    """One batch for each partition, from the first on."""
    data = [PartitionProduceData(partition, batch) for partition, batch in enumerate(batches)]
    return ProduceRequest(producer.name, acks, 10_000, [TopicProduceData(topic, partition_data=data)])


def _produce(producer: TransactionalProducer, topic: str, sequence: int, version: int) -> ErrorCode:
    return _codes(producer.client.call(_request(producer, topic, _batch(producer, sequence)), version))[0]


def _codes(answer: Any) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for each in answer.responses[0].partition_responses]


@pytest.mark.parametrize(
    ("version", "code"), [(PRODUCE_VERIFIED, NONE), (PRODUCE_ADDING, OUT_OF_ORDER)], ids=["first", "second"]
)
def test_only_the_second_protocol_knows_with_which_sequence_a_producer_begins(
    producer: TransactionalProducer, version: int, code: ErrorCode
) -> None:
    topic = producer.client.create_topic()
    producer.add(topic)
    assert _produce(producer, topic, 5, version) is code


def test_a_batch_does_not_overtake_one_that_was_refused(producer: TransactionalProducer) -> None:
    topic = producer.client.create_topic()
    assert _produce(producer, topic, 0, PRODUCE_VERIFIED) is ErrorCode.TRANSACTION_ABORTABLE
    producer.add(topic)
    told = [_produce(producer, topic, sequence, PRODUCE_VERIFIED) for sequence in (1, 0, 1)]
    assert told == [OUT_OF_ORDER, NONE, NONE]
    producer.end(commit=True, version=END_WITHOUT_EPOCH)
    assert committed_values(producer.client, topic) == [b"0", b"1"]


@pytest.mark.parametrize("version", [PRODUCE_VERIFIED, PRODUCE_ADDING])
@pytest.mark.parametrize("other_epoch", [False, True])
def test_one_request_speaks_for_one_producer(producer: TransactionalProducer, version: int, other_epoch: bool) -> None:
    client = producer.client
    topic = client.create_topic(2)
    producer.add(topic, 0, 1)
    other = TransactionalProducer(client)
    if other_epoch:
        other.id, other.epoch = producer.id, producer.epoch + 1
    for pair in ((producer, other), (other, producer)):
        answer = client.call(_request(producer, topic, *(_batch(each) for each in pair)), version)
        assert _codes(answer) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert [client.list_offset(topic, -1, partition).offset for partition in (0, 1)] == [0, 0]
    assert describe(client, producer.name).transaction_state == "Ongoing"


@pytest.mark.parametrize("version", [PRODUCE_VERIFIED, PRODUCE_ADDING])
@pytest.mark.parametrize("flush_messages", ["9223372036854775807", "1"], ids=["at once", "after the disk"])
def test_a_transaction_without_acknowledgements_is_not_answered(
    start_broker: Callable[..., Broker], connect: Callable[[Broker], Client], version: int, flush_messages: str
) -> None:
    client = connect(start_broker({"log.flush.interval.messages": flush_messages}))
    producer = TransactionalProducer(client)
    topic = client.create_topic()
    if version < PRODUCE_ADDING:
        producer.add(topic)
    client.send(_request(producer, topic, _batch(producer), acks=0), version)
    assert client.call(MetadataRequest([])).brokers
    producer.end(commit=True)
    assert committed_values(client, topic) == [b"0"]
