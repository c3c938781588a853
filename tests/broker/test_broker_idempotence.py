"""Idempotent producers: every sequence number is taken exactly once and in order, whatever happens to the broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from tests.broker.servers import barnabas_only
from tests.broker.wire_client import LATEST, Client, batch, now_ms, produce_request
from tests.peers import BarnabasServer, Broker, eventually

LAST_SEQUENCE = 2**31 - 1


class Producer:
    """Sends batches under one producer id, with sequence numbers as the test wants them."""

    def __init__(self, client: Client, topic: str, producer_id: int | None = None) -> None:
        self.client = client
        self.topic = topic
        self.id = client.producer_id() if producer_id is None else producer_id

    def send(self, sequence: int, count: int = 1, epoch: int = 0, value: bytes = b"v") -> Any:
        records = batch(*[value] * count, producer_id=self.id, epoch=epoch, sequence=sequence)
        return self.client.produce(self.topic, records)

    def codes(self, *sequences: int, epoch: int = 0) -> list[ErrorCode]:
        return [ErrorCode(self.send(sequence, epoch=epoch).error_code) for sequence in sequences]


@pytest.fixture
def producer(client: Client) -> Producer:
    return Producer(client, client.create_topic())


def end_of(producer: Producer) -> int:
    offset: int = producer.client.list_offset(producer.topic, LATEST).offset
    return offset


def stop(broker: Broker) -> None:
    broker.stop()


def kill(broker: Broker) -> None:
    broker.kill()


def stop_and_lose_snapshots(broker: Broker) -> None:
    broker.stop()
    _lose_snapshots(broker)


def kill_and_lose_snapshots(broker: Broker) -> None:
    broker.kill()
    _lose_snapshots(broker)


def _lose_snapshots(broker: Broker) -> None:
    for snapshot in broker.data_dir.glob("t-*/*.snapshot"):
        snapshot.unlink()


# ids


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_an_id_of_its_own_and_epoch_zero(client: Client, version: int) -> None:
    answers = [client.call(InitProducerIdRequest(None, 1000), version) for _ in range(3)]
    assert len({answer.producer_id for answer in answers}) == 3
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(ErrorCode.NONE, 0)}


def test_an_empty_transactional_id_is_a_mistake(client: Client) -> None:
    answer = client.call(InitProducerIdRequest("", 1000))
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_an_id_comes_with_its_epoch_or_not_at_all(client: Client, producer_id: int, epoch: int) -> None:
    answer = client.call(InitProducerIdRequest(None, 1000, producer_id, epoch))
    assert ErrorCode(answer.error_code) == ErrorCode.INVALID_REQUEST


def test_a_transactional_id_keeps_its_producer_id_and_raises_the_epoch(client: Client) -> None:
    def initialise() -> tuple[int, int, int]:
        answer = client.call(InitProducerIdRequest("orders", 1000))
        return answer.error_code, answer.producer_id, answer.producer_epoch

    def has_coordinator() -> bool:
        found = client.call(FindCoordinatorRequest("orders", 1, ["orders"])).coordinators[0]
        return found.error_code == ErrorCode.NONE and initialise()[0] == ErrorCode.NONE

    eventually(has_coordinator, True, 20)
    first, second = initialise(), initialise()
    assert first[0] == second[0] == ErrorCode.NONE
    assert second[1:] == (first[1], first[2] + 1)


def test_ids_are_never_given_twice(start_broker: Callable[..., Broker]) -> None:
    seen: set[int] = set()
    for end in (kill, stop, kill):
        broker = start_broker()
        with Client(broker.address) as client:
            given = {client.producer_id() for _ in range(3)}
        assert len(given) == 3
        assert not seen & given
        seen |= given
        end(broker)


# sequences


def test_five_batches_in_flight_are_taken_in_order(producer: Producer) -> None:
    client = producer.client
    requests = [
        produce_request(producer.topic, batch(b"%d" % number, producer_id=producer.id, epoch=0, sequence=number))
        for number in range(5)
    ]
    ids = [client.send(request, 12) for request in requests]
    for number, (request, correlation_id) in enumerate(zip(requests, ids)):
        (result,) = client.receive(request, 12, correlation_id).responses[0].partition_responses
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, number)
    assert [record.value for record in client.read_all(producer.topic)] == [b"%d" % number for number in range(5)]


def test_a_duplicate_is_answered_with_its_first_offset(producer: Producer) -> None:
    first = [producer.send(2 * number, count=2).base_offset for number in range(5)]
    assert first == [0, 2, 4, 6, 8]
    for number in (4, 0, 2):
        again = producer.send(2 * number, count=2)
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, first[number])
    assert end_of(producer) == 10


def test_a_duplicate_in_a_topic_of_append_time_tells_the_first_time(client: Client) -> None:
    producer = Producer(client, client.create_topic(config={"message.timestamp.type": "LogAppendTime"}))
    first = producer.send(0)
    assert producer.send(0).log_append_time_ms == first.log_append_time_ms > 0


def test_a_batch_older_than_the_last_five_is_out_of_order(producer: Producer) -> None:
    producer.codes(*range(7))
    assert producer.codes(0, 1) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 2
    assert producer.codes(2, 6) == [ErrorCode.NONE] * 2
    assert end_of(producer) == 7


def test_a_gap_is_refused_and_can_be_filled(producer: Producer) -> None:
    none, gap = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.codes(0, 2, 1, 2) == [none, gap, none, none]
    assert end_of(producer) == 3


def test_part_of_a_known_batch_is_no_duplicate(producer: Producer) -> None:
    producer.send(0, count=4)
    for sequence, count in ((0, 2), (2, 2), (0, 5), (1, 4)):
        assert producer.send(sequence, count).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert end_of(producer) == 4


def test_a_producer_that_nobody_knows_may_begin_anywhere(producer: Producer) -> None:
    assert producer.codes(17, 18, 20) == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_an_old_epoch_is_fenced(producer: Producer) -> None:
    assert producer.codes(0, epoch=3) == [ErrorCode.NONE]
    assert producer.codes(1, epoch=2) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.codes(0, epoch=2) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.codes(1, epoch=3) == [ErrorCode.NONE]


def test_a_new_epoch_begins_at_zero(producer: Producer) -> None:
    producer.codes(0, 1)
    assert producer.codes(2, epoch=1) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert producer.codes(0, 1, epoch=1) == [ErrorCode.NONE, ErrorCode.NONE]
    assert end_of(producer) == 4


def test_sequences_wrap_around(producer: Producer) -> None:
    assert producer.send(LAST_SEQUENCE - 1, count=2).base_offset == 0
    assert producer.send(0, count=2).base_offset == 2
    assert producer.send(LAST_SEQUENCE - 1, count=2).base_offset == 0  # a duplicate
    assert producer.codes(1, 2) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE]


def test_a_batch_may_reach_over_the_wrap(producer: Producer) -> None:
    assert producer.send(LAST_SEQUENCE, count=3).base_offset == 0
    assert producer.send(LAST_SEQUENCE, count=3).base_offset == 0
    assert producer.codes(1, 2) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE]


def test_partitions_and_producers_are_counted_apart(client: Client) -> None:
    topic, other = client.create_topic(), client.create_topic()
    one, two = Producer(client, topic), Producer(client, topic)
    elsewhere = Producer(client, other, one.id)
    assert one.codes(0, 1) + two.codes(0, 1) + elsewhere.codes(0) == [ErrorCode.NONE] * 5
    assert elsewhere.codes(2) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_a_refused_batch_takes_no_sequence(client: Client) -> None:
    producer = Producer(client, client.create_topic(config={"max.message.bytes": "500"}))
    assert producer.codes(0) == [ErrorCode.NONE]
    assert producer.send(1, value=b"x" * 1000).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert producer.codes(1) == [ErrorCode.NONE]


# what survives


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param([stop, kill, stop], id="stops and a crash"),
        pytest.param(
            [stop_and_lose_snapshots, kill_and_lose_snapshots],
            id="lost snapshots",
            marks=barnabas_only("after a clean stop Kafka does not read the log again"),
        ),
    ],
)
def test_state_survives(start_broker: Callable[..., Broker], ends: list[Callable[[Broker], None]]) -> None:
    """One producer's story over several brokers on the same directory."""
    broker = start_broker()
    with Client(broker.address) as client:
        producer = Producer(client, client.create_topic())
        assert producer.codes(0, 1, 2) == [ErrorCode.NONE] * 3
    topic, producer_id = producer.topic, producer.id
    for last, end in enumerate(ends, 2):
        end(broker)
        broker = start_broker()
        with Client(broker.address) as client:
            client.await_leaders(topic, 1)
            producer = Producer(client, topic, producer_id)
            again = producer.send(last)
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, last)
            assert producer.codes(last + 2) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
            assert producer.codes(last + 1) == [ErrorCode.NONE]
            assert end_of(producer) == last + 2


@barnabas_only("Kafka remembers only the last batch in a snapshot, and so do we; after a crash the log tells all five")
def test_all_five_batches_are_known_again_after_a_crash(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "data") as broker:
        with Client(broker.address) as client:
            producer = Producer(client, client.create_topic())
            producer.codes(*range(5))
        broker.kill()
    with BarnabasServer(tmp_path / "data") as broker, Client(broker.address) as client:
        again = Producer(client, producer.topic, producer.id)
        assert [again.send(sequence).base_offset for sequence in range(5)] == [0, 1, 2, 3, 4]
        assert end_of(again) == 5


def test_a_silent_producer_is_forgotten(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker({"producer.id.expiration.ms": "300", "producer.id.expiration.check.interval.ms": "100"})
    with Client(broker.address) as client:
        producer = Producer(client, client.create_topic())
        assert producer.codes(0) == [ErrorCode.NONE]
        eventually(lambda: len(described(client, producer.topic).active_producers), 0)
        assert producer.codes(9) == [ErrorCode.NONE]  # any sequence is as good as the first


# DescribeProducers


def described(client: Client, topic: str, partition: int = 0) -> Any:
    response = client.call(DescribeProducersRequest([TopicRequest(topic, [partition])]))
    return response.topics[0].partitions[0]


def test_the_producers_of_a_partition_are_described(producer: Producer) -> None:
    before = now_ms()
    producer.send(0, count=3, epoch=2)
    (state,) = described(producer.client, producer.topic).active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer.id, 2, 2)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)
    assert before <= state.last_timestamp <= now_ms()


def test_producers_of_unknown_partitions(client: Client, topic_name: str) -> None:
    topic = client.create_topic()
    for name, partition in ((topic_name, 0), (topic, 3)):
        assert described(client, name, partition).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
