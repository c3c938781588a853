"""Read-committed: the last stable offset and the list of aborted transactions, and the markers that move them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.records.control import ControlType
from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.transactional import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TransactionalProducer,
    committed_values,
    markers_in,
    producers_of,
)
from tests.broker.wire_client import EARLIEST, LATEST, Client, batch, values_in
from tests.peers import Broker, eventually

FETCH_VERSIONS = range(4, 19)
FETCH_BY_ID = 13
LIST_VERSIONS = range(2, 12)
MARKER_VERSIONS = [1, 2]


@pytest.fixture
def producer(client: Client) -> TransactionalProducer:
    return TransactionalProducer(client)


def aborted(data: Any) -> list[tuple[int, int]] | None:
    if data.aborted_transactions is None:
        return None
    return [(each.producer_id, each.first_offset) for each in data.aborted_transactions]


def fetch(client: Client, topic: str, version: int, isolation_level: int, offset: int = 0) -> Any:
    """By name or by id, as the version has it."""
    if version < FETCH_BY_ID:
        return client.fetch(topic, offset, isolation_level=isolation_level, version=version)
    asked = FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic_id=client.topic_id(topic), partitions=[asked])],
    )
    return client.call(request, version).responses[0].partitions[0]


# Fetch


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_an_open_transaction_holds_up_only_those_who_read_committed(
    producer: TransactionalProducer, version: int
) -> None:
    client = producer.client
    topic = client.create_topic()
    client.produce(topic, batch(b"plain"))
    producer.write(topic, b"open")
    client.produce(topic, batch(b"behind"))

    uncommitted = fetch(client, topic, version, READ_UNCOMMITTED)
    assert values_in(uncommitted.records) == [b"plain", b"open", b"behind"]
    assert (uncommitted.high_watermark, uncommitted.last_stable_offset) == (3, 1)
    assert aborted(uncommitted) is None

    committed = fetch(client, topic, version, READ_COMMITTED)
    assert values_in(committed.records) == [b"plain"]
    assert (committed.high_watermark, committed.last_stable_offset) == (3, 1)
    assert aborted(committed) == []
    assert values_in(fetch(client, topic, version, READ_COMMITTED, offset=1).records) == []

    producer.end(commit=True)
    committed = fetch(client, topic, version, READ_COMMITTED)
    assert (committed.high_watermark, committed.last_stable_offset) == (4, 4)
    assert committed_values(client, topic) == [b"plain", b"open", b"behind"]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_aborted_transactions_are_listed_where_they_overlap_what_is_read(
    producer: TransactionalProducer, version: int
) -> None:
    client = producer.client
    topic = client.create_topic()
    for name, commit in ((b"first", False), (b"second", True), (b"third", False)):  # offsets 0, 2, 4; markers 1, 3, 5
        producer.write(topic, name)
        producer.end(commit=commit)
    assert aborted(fetch(client, topic, version, READ_COMMITTED)) == [(producer.id, 0), (producer.id, 4)]
    assert aborted(fetch(client, topic, version, READ_COMMITTED, offset=2)) == [(producer.id, 4)]
    assert aborted(fetch(client, topic, version, READ_COMMITTED, offset=6)) == []
    assert aborted(fetch(client, topic, version, READ_UNCOMMITTED)) is None
    assert committed_values(client, topic) == [b"second"]


def test_the_earliest_open_transaction_decides(client: Client) -> None:
    topic = client.create_topic()
    early, late = TransactionalProducer(client), TransactionalProducer(client)
    early.write(topic, b"early")
    late.write(topic, b"late")
    late.end(commit=True)
    assert client.fetch(topic, isolation_level=READ_COMMITTED).last_stable_offset == 0
    early.end(commit=False)
    assert client.fetch(topic, isolation_level=READ_COMMITTED).last_stable_offset == 4
    assert committed_values(client, topic) == [b"late"]


def test_interleaved_transactions_are_told_apart(client: Client) -> None:
    topic = client.create_topic()
    one, other = TransactionalProducer(client), TransactionalProducer(client)
    for number in range(3):
        one.write(topic, b"one %d" % number)
        other.write(topic, b"other %d" % number)
    one.end(commit=False)
    other.end(commit=True)
    assert committed_values(client, topic) == [b"other 0", b"other 1", b"other 2"]


def test_a_waiting_reader_is_woken_by_the_commit(
    producer: TransactionalProducer, connect: Callable[[Broker], Client], broker: Broker
) -> None:
    client = producer.client
    topic = client.create_topic()
    producer.write(topic, b"a")
    reader = connect(broker)
    request = FetchRequest(
        max_wait_ms=600_000,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic, partitions=[FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)])],
    )
    correlation_id = reader.send(request, 12)
    assert not reader.has_answer(0.3)
    producer.end(commit=True)
    data = reader.receive(request, 12, correlation_id).responses[0].partitions[0]
    assert (data.high_watermark, data.last_stable_offset) == (2, 2)
    assert values_in(data.records)[0] == b"a"


# ListOffsets


@pytest.mark.parametrize("version", LIST_VERSIONS)
def test_the_latest_offset_of_those_who_read_committed_is_the_last_stable(
    producer: TransactionalProducer, version: int
) -> None:
    client = producer.client
    topic = client.create_topic()
    client.produce(topic, batch(b"plain"))
    producer.write(topic, b"open")

    def latest(isolation_level: int) -> int:
        offset: int = client.list_offset(topic, LATEST, isolation_level=isolation_level, version=version).offset
        return offset

    assert (latest(READ_UNCOMMITTED), latest(READ_COMMITTED)) == (2, 1)
    producer.end(commit=False)
    assert (latest(READ_UNCOMMITTED), latest(READ_COMMITTED)) == (3, 3)
    assert client.list_offset(topic, EARLIEST, isolation_level=READ_COMMITTED, version=version).offset == 0


@pytest.mark.parametrize(("timestamp", "expected"), [(1000, 0), (2000, -1)])
def test_a_time_beyond_the_last_stable_offset_is_not_there_yet(
    producer: TransactionalProducer, timestamp: int, expected: int
) -> None:
    client = producer.client
    topic = client.create_topic(config={"retention.ms": "-1"})
    client.produce(topic, batch(b"old", timestamp_ms=1000))
    producer.write(topic, b"open")
    assert client.list_offset(topic, timestamp, isolation_level=READ_COMMITTED).offset == expected
    assert client.list_offset(topic, 2000, isolation_level=READ_UNCOMMITTED).offset == 1


# markers


@pytest.mark.parametrize("version", MARKER_VERSIONS)
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_written_marker_ends_a_transaction_in_its_partition(
    producer: TransactionalProducer, version: int, commit: bool
) -> None:
    """What coordinators send to other brokers, and a tool to end a transaction that hangs (KIP-664)."""
    client = producer.client
    topic = client.create_topic(2)
    producer.write(topic, b"a")
    producer.write(topic, b"b", partition=1)
    assert write_markers(producer, topic, [0], commit=commit, version=version) == {(topic, 0): ErrorCode.NONE}
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    eventually(lambda: markers_in(client, topic), [(producer.id, kind)])
    assert committed_values(client, topic) == ([b"a"] if commit else [])
    assert client.fetch(topic, partition=1, isolation_level=READ_COMMITTED).last_stable_offset == 0
    assert producers_of(client, topic)[producer.id].current_txn_start_offset == -1


@pytest.mark.parametrize("version", MARKER_VERSIONS)
def test_a_marker_of_a_past_epoch_is_refused(producer: TransactionalProducer, version: int) -> None:
    client = producer.client
    topic = client.create_topic()
    producer.initialise()
    producer.write(topic, b"a")
    codes = write_markers(producer, topic, [0], commit=True, version=version, epoch=producer.epoch - 1)
    assert codes == {(topic, 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert markers_in(client, topic) == []


def test_a_marker_of_a_coordinator_that_was_replaced_is_refused(producer: TransactionalProducer) -> None:
    topic = producer.client.create_topic()
    for coordinator_epoch, code in ((5, ErrorCode.NONE), (4, ErrorCode.TRANSACTION_COORDINATOR_FENCED)):
        producer.write(topic, b"a")
        codes = write_markers(producer, topic, [0], commit=True, version=1, coordinator_epoch=coordinator_epoch)
        assert codes == {(topic, 0): code}


@pytest.mark.parametrize("version", MARKER_VERSIONS)
def test_markers_for_partitions_that_are_not_there(
    producer: TransactionalProducer, topic_name: str, version: int
) -> None:
    topic = producer.client.create_topic()
    producer.write(topic, b"a")
    assert write_markers(producer, topic, [0, 1], commit=True, version=version) == {
        (topic, 0): ErrorCode.NONE,
        (topic, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert write_markers(producer, topic_name, [0], commit=True, version=version) == {
        (topic_name, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


def write_markers(
    producer: TransactionalProducer,
    topic: str,
    partitions: list[int],
    *,
    commit: bool,
    version: int,
    epoch: int | None = None,
    coordinator_epoch: int = 0,
) -> dict[tuple[str, int], int]:
    marker = WritableTxnMarker(
        producer.id,
        producer.epoch if epoch is None else epoch,
        commit,
        [WritableTxnMarkerTopic(topic, partitions)],
        coordinator_epoch,
    )
    (result,) = producer.client.call(WriteTxnMarkersRequest([marker]), version).markers
    assert result.producer_id == producer.id
    return {(each.name, place.partition_index): place.error_code for each in result.topics for place in each.partitions}


# DescribeProducers


def test_an_open_transaction_is_seen_with_its_first_offset(producer: TransactionalProducer) -> None:
    client = producer.client
    topic = client.create_topic()
    client.produce(topic, batch(b"x", b"y"))
    for value in (b"a", b"b"):
        producer.write(topic, value)
    state = producers_of(client, topic)[producer.id]
    assert (state.producer_epoch, state.last_sequence, state.current_txn_start_offset) == (producer.epoch, 1, 2)
    assert state.coordinator_epoch == -1  # no marker told of one yet
    producer.end(commit=True)
    state = producers_of(client, topic)[producer.id]
    assert (state.producer_epoch, state.current_txn_start_offset, state.coordinator_epoch) == (producer.epoch, -1, 0)
    assert state.last_sequence == -1  # the epoch is a new one
