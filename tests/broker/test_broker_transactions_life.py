"""What ends transactions without their producers: time, and coordinators that come back after a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.coordinator.transaction import TransactionState
from barnabas.coordinator.transaction_log import decode_transaction, transaction_record
from barnabas.core.errors import ErrorCode
from barnabas.records.batch import headers
from barnabas.records.builder import BatchBuilder
from barnabas.records.control import ControlType
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.servers import barnabas_only
from tests.broker.transactional import (
    READ_COMMITTED,
    TransactionalProducer,
    committed_values,
    describe,
    markers_in,
    settled,
)
from tests.broker.wire_client import Client, now_ms, records_in
from tests.peers import Broker, eventually

SMALL = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
KAFKA_LOOKS_OFTEN = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
}
FIRST, SECOND = 0, 2
"""The versions of the transaction protocol."""


@pytest.fixture(params=[FIRST, SECOND], ids=["first protocol", "second protocol"])
def protocol(request: pytest.FixtureRequest) -> int:
    version: int = request.param
    return version


# time


def test_a_transaction_that_takes_too_long_is_aborted(start_broker: Callable[..., Broker]) -> None:
    with Client(start_broker({**SMALL, **KAFKA_LOOKS_OFTEN}).address) as client:
        topic = client.create_topic()
        slow, patient = TransactionalProducer(client, timeout_ms=3000), TransactionalProducer(client)
        started_ms = now_ms()
        slow.write(topic, b"slow")
        patient.write(topic, b"patient")
        eventually(slow.state, "CompleteAbort", 30)
        assert now_ms() - started_ms >= 3000
        assert markers_in(client, topic) == [(slow.id, ControlType.ABORT)]
        assert patient.state() == "Ongoing"

        late = client.call(slow.end_request(committed=True))
        assert ErrorCode(late.error_code) is ErrorCode.INVALID_TXN_STATE
        assert ErrorCode(slow.send(topic, b"late").error_code) is ErrorCode.INVALID_PRODUCER_EPOCH
        patient.end(commit=True)
        slow.initialise()
        slow.write(topic, b"quick")
        slow.end(commit=True)
        assert committed_values(client, topic) == [b"patient", b"quick"]


def test_an_id_that_nobody_uses_is_forgotten(start_broker: Callable[..., Broker]) -> None:
    settings = {**SMALL, **KAFKA_LOOKS_OFTEN, "transactional.id.expiration.ms": "4000"}
    broker = start_broker(settings)
    with Client(broker.address) as client:
        topic = client.create_topic()
        idle, ended, busy = (TransactionalProducer(client) for _ in range(3))
        ended.write(topic, b"x")
        ended.end(commit=True)
        busy.write(topic, b"y")
        eventually(
            lambda: {code_of(client, each.name) for each in (idle, ended)},
            {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND},
            timeout=30,
        )
        assert busy.state() == "Ongoing"

        refused = client.call(idle.add_request((topic, (0,)), version=3), 3)
        (result,) = refused.results_by_topic_v3_and_below[0].results_by_partition
        assert ErrorCode(result.partition_error_code) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    broker.kill()
    with Client(start_broker(settings).address) as client:
        # time went on while nobody ran
        eventually(lambda: code_of(client, busy.name), ErrorCode.NONE)
        assert code_of(client, ended.name) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        anew = settled(lambda: client.call(InitProducerIdRequest(idle.name, 1000)))
        assert (anew.error_code, anew.producer_epoch) == (ErrorCode.NONE, 0)
        assert anew.producer_id != idle.id


def code_of(client: Client, name: str) -> ErrorCode:
    return ErrorCode(describe(client, name).error_code)


def state_of(client: Client, name: str) -> str:
    state: str = describe(client, name).transaction_state
    return state


# crashes

may_lose_markers = barnabas_only(
    "after a crash Kafka 4.3.1 now and then completes a transaction whose markers it never wrote; otherwise it agrees"
)


@may_lose_markers
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_what_was_decided_before_a_crash_is_finished_after_it(
    start_broker: Callable[..., Broker], protocol: int, commit: bool
) -> None:
    """The broker dies with the decision in its log, and not one marker written."""
    broker = start_broker(SMALL)
    with Client(broker.address) as client:
        topic = client.create_topic(2)
        producer = open_transaction(client, topic)
    broker.kill()
    decide(broker.data_dir, producer.name, commit, protocol)
    with Client(start_broker(SMALL).address) as client:
        client.await_leaders(topic, 2)
        eventually(lambda: state_of(client, producer.name), "CompleteCommit" if commit else "CompleteAbort")
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        eventually(lambda: [markers_in(client, topic, at) for at in range(2)], [[(producer.id, kind)]] * 2)
        for partition in range(2):
            assert committed_values(client, topic, partition) == ([b"a", b"b"] if commit else [])
        successor = TransactionalProducer(client, producer.name)
        successor.write(topic, b"next")
        successor.end(commit=True)
        assert committed_values(client, topic)[-1] == b"next"


@may_lose_markers
def test_a_crash_between_two_markers_ends_the_transaction_once(
    start_broker: Callable[..., Broker], protocol: int
) -> None:
    """One partition has its marker already. It may get another, which ends nothing."""
    broker = start_broker(SMALL)
    with Client(broker.address) as client:
        topic = client.create_topic(2)
        producer = open_transaction(client, topic)
        epoch = producer.epoch + (protocol == SECOND)
        places = [WritableTxnMarkerTopic(topic, [0])]
        marker = WritableTxnMarker(producer.id, epoch, True, places, 0, protocol)
        client.call(WriteTxnMarkersRequest([marker]))
    broker.kill()
    decide(broker.data_dir, producer.name, True, protocol)
    with Client(start_broker(SMALL).address) as client:
        client.await_leaders(topic, 2)
        eventually(lambda: state_of(client, producer.name), "CompleteCommit")
        ended = {(producer.id, ControlType.COMMIT)}
        eventually(lambda: [set(markers_in(client, topic, at)) for at in range(2)], [ended] * 2)
        for partition in range(2):
            assert committed_values(client, topic, partition) == [b"a", b"b"]
            data = client.fetch(topic, partition=partition, isolation_level=READ_COMMITTED)
            assert data.last_stable_offset == data.high_watermark


@may_lose_markers
def test_a_crash_right_after_the_answer_takes_nothing_back(start_broker: Callable[..., Broker]) -> None:
    """EndTxn is answered with the decision; how many markers the crash leaves out is up to chance."""
    partitions = 20
    broker = start_broker(SMALL)
    with Client(broker.address) as client:
        topic = client.create_topic(partitions)
        producer = TransactionalProducer(client)
        for partition in range(partitions):
            producer.write(topic, b"%d" % partition, partition=partition)
        answer = client.call(producer.end_request(committed=True))
        broker.kill()
        assert answer.error_code == ErrorCode.NONE
    with Client(start_broker(SMALL).address) as client:
        client.await_leaders(topic, partitions)
        eventually(lambda: state_of(client, producer.name), "CompleteCommit")
        written: list[list[bytes | None]] = [[b"%d" % partition] for partition in range(partitions)]
        eventually(lambda: [committed_values(client, topic, at) for at in range(partitions)], written)


def test_an_open_transaction_goes_on_after_a_crash(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(SMALL)
    with Client(broker.address) as client:
        topic = client.create_topic(2)
        producer = open_transaction(client, topic)
    broker.kill()
    with Client(start_broker(SMALL).address) as client:
        client.await_leaders(topic, 2)
        producer.client = client
        assert producer.state() == "Ongoing"
        assert client.fetch(topic, isolation_level=READ_COMMITTED).last_stable_offset == 0
        producer.write(topic, b"c")
        producer.end(commit=True)
        assert committed_values(client, topic) == [b"a", b"b", b"c"]


def open_transaction(client: Client, topic: str) -> TransactionalProducer:
    producer = TransactionalProducer(client)
    for partition in range(2):
        producer.write(topic, b"a", b"b", partition=partition)
    return producer


def decide(data_dir: Path, name: str, commit: bool, protocol: int) -> None:
    """Append the record by which a coordinator decides a transaction, as its log stands before the first marker."""
    segment = data_dir / "__transaction_state-0" / f"{0:020}.log"
    content = segment.read_bytes()
    *_, (_, last) = headers(memoryview(content))
    states = [decode_transaction(CoordinatorRecord(each.key or b"", each.value)) for each in records_in(content)]
    transaction = dict(states)[name]
    assert transaction is not None
    assert transaction.state is TransactionState.ONGOING
    builder = BatchBuilder()
    builder.append(*transaction_record(transaction.decided(commit, protocol, -1, now_ms())), (), now_ms())
    with segment.open("ab") as file:
        file.write(builder.build(last.next_offset, last.partition_leader_epoch))
