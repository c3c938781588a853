"""Fetch: which records come, how many of them, when, and what is said where none can come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.records.batch import headers
from barnabas.records.compression import Compression
from barnabas.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from barnabas.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.broker.servers import ON_KAFKA
from tests.broker.wire_client import (
    FETCH_BY_NAME,
    MAX_BYTES,
    Client,
    batch,
    records_in,
    values_in,
)
from tests.peers import Broker, eventually

READ_COMMITTED = 1
FOREVER_MS = 600_000  # longer than a test waits


def request_for(
    *partitions: tuple[str | bytes, int, int], wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = MAX_BYTES
) -> FetchRequest:
    """A fetch of (topic name or id, partition, offset), outside of a session."""
    topics = []
    for topic, partition, offset in partitions:
        wanted = [FetchPartition(partition, fetch_offset=offset, partition_max_bytes=MAX_BYTES)]
        name, topic_id = (topic, bytes(16)) if isinstance(topic, str) else ("", topic)
        topics.append(FetchTopic(name, topic_id, wanted))
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics)


def by_partition(response: Any) -> dict[tuple[str, int], Any]:
    return {(topic.topic, data.partition_index): data for topic in response.responses for data in topic.partitions}


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_brings_the_same_records(client: Client, version: int) -> None:
    topic = client.create_topic()
    sent = [batch(b"a", b"b"), batch(b"c" * 500, compression=Compression.ZSTD), batch(b"d")]
    for records in sent:
        client.produce(topic, records)
    named: str | bytes = topic if version <= FETCH_BY_NAME else client.topic_id(topic)
    (answered,) = client.call(request_for((named, 0, 0)), version).responses
    (data,) = answered.partitions
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (ErrorCode.NONE, 4, 4)
    assert data.log_start_offset == (0 if version >= 5 else -1)
    assert (answered.topic or answered.topic_id) == named
    assert [record.offset for record in records_in(data.records)] == [0, 1, 2, 3]
    assert [bytes(data.records[at + 16 : at + h.size]) for at, h in headers(memoryview(data.records))] == [
        bytes(records[16:]) for records in sent
    ]


def test_a_fetch_begins_with_the_batch_that_holds_the_offset(client: Client) -> None:
    topic = client.create_topic()
    for first in (0, 3, 6):
        client.produce(topic, batch(*[b"%d" % (first + at) for at in range(3)]))
    assert values_in(client.fetch(topic, 4).records) == [b"%d" % at for at in range(3, 9)]
    assert values_in(client.fetch(topic, 6).records) == [b"6", b"7", b"8"]
    assert values_in(client.fetch(topic, 9).records) == []


@pytest.mark.parametrize("isolation_level", [0, READ_COMMITTED])
def test_the_end_is_no_error_and_beyond_it_is_one(client: Client, isolation_level: int) -> None:
    topic = client.create_topic()
    client.produce(topic, batch(b"a", b"b"))
    data = client.fetch(topic, 2, isolation_level=isolation_level)
    assert (data.error_code, data.high_watermark, bytes(data.records)) == (ErrorCode.NONE, 2, b"")
    for offset in (3, 1000, -1):
        data = client.fetch(topic, offset, isolation_level=isolation_level)
        assert (data.error_code, data.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert (data.last_stable_offset, data.log_start_offset, bytes(data.records or b"")) == (-1, -1, b"")


def test_what_was_deleted_is_out_of_range(client: Client) -> None:
    topic = client.create_topic()
    client.produce(topic, batch(b"a", b"b", b"c"))
    deleted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 2)])
    client.call(DeleteRecordsRequest([deleted], 1000))
    assert client.fetch(topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    data = client.fetch(topic, 2)
    assert (data.error_code, data.log_start_offset) == (ErrorCode.NONE, 2)
    assert values_in(data.records)[2:] == [b"c"]  # batches come whole


def test_unknown_names_numbers_and_ids(client: Client, topic_name: str) -> None:
    topic = client.create_topic()
    for name, partition in ((topic_name, 0), (topic, 1), (topic, -1)):
        data = client.fetch(name, 0, partition)
        assert (data.error_code, data.partition_index) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partition)
    (answered,) = client.call(request_for((b"\1" * 16, 0, 0)), 13).responses
    assert (answered.topic_id, answered.partitions[0].error_code) == (b"\1" * 16, ErrorCode.UNKNOWN_TOPIC_ID)


def test_an_offset_out_of_range_is_told_at_once(client: Client) -> None:
    topic = client.create_topic(partitions=2)
    told = by_partition(client.call(request_for((topic, 0, 0), (topic, 1, 9), wait_ms=FOREVER_MS), 12))
    assert [told[topic, index].error_code for index in (0, 1)] == [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE]


def test_a_topic_that_is_gone_does_not_make_a_long_poll_a_short_one(client: Client, topic_name: str) -> None:
    """Or a consumer that is assigned to it would ask again without a pause."""
    topic = client.create_topic()
    started = time.monotonic()
    told = by_partition(client.call(request_for((topic, 0, 0), (topic_name, 0, 0), wait_ms=400), 12))
    assert time.monotonic() - started >= 0.35
    assert told[topic, 0].error_code == ErrorCode.NONE
    assert told[topic_name, 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_recreated_topic_is_another_one_by_id(client: Client) -> None:
    topic = client.create_topic()
    client.produce(topic, batch(b"old"))
    old = client.topic_id(topic)
    client.delete_topic(topic)
    eventually(lambda: _code(client, old), ErrorCode.UNKNOWN_TOPIC_ID)
    client.create_topic(name=topic)
    new = client.topic_id(topic)
    assert new != old
    client.produce(topic, batch(b"new"))
    assert _code(client, old) == ErrorCode.UNKNOWN_TOPIC_ID
    (data,) = client.call(request_for((new, 0, 0)), 18).responses[0].partitions
    assert values_in(data.records) == [b"new"]


def _code(client: Client, topic_id: bytes) -> ErrorCode:
    return ErrorCode(client.call(request_for((topic_id, 0, 0)), 18).responses[0].partitions[0].error_code)


def test_aborted_transactions_are_told_to_who_reads_committed(client: Client) -> None:
    topic = client.create_topic()
    client.produce(topic, batch())
    assert client.fetch(topic, isolation_level=READ_COMMITTED).aborted_transactions == []
    assert client.fetch(topic, 1, isolation_level=READ_COMMITTED).aborted_transactions == []
    assert client.fetch(topic).aborted_transactions is None


# leader epochs


@pytest.mark.parametrize("version", [9, 11, 12])
def test_leader_epochs_fence(client: Client, version: int) -> None:
    topic = client.create_topic()
    client.produce(topic, batch())
    (partition,) = client.describe_topic(topic).partitions
    epoch = partition.leader_epoch
    assert epoch >= 0
    assert client.fetch(topic, leader_epoch=epoch, version=version).error_code == ErrorCode.NONE
    assert client.fetch(topic, leader_epoch=epoch + 1, version=version).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    if epoch > 0:
        assert client.fetch(topic, leader_epoch=epoch - 1, version=version).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_batches_carry_the_leaders_epoch(client: Client) -> None:
    topic = client.create_topic()
    client.produce(topic, batch())
    (partition,) = client.describe_topic(topic).partitions
    ((_, header),) = headers(memoryview(client.fetch(topic).records))
    assert header.partition_leader_epoch == partition.leader_epoch


def test_a_restart_raises_the_epoch_and_fences_the_old_one(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()
    with Client(broker.address) as client:
        topic = client.create_topic()
        client.produce(topic, batch())
        old = client.describe_topic(topic).partitions[0].leader_epoch
    broker.stop()
    with Client(start_broker().address) as client:
        client.await_leaders(topic, 1)
        new = client.describe_topic(topic).partitions[0].leader_epoch
        assert new > old
        assert client.fetch(topic, leader_epoch=old).error_code == ErrorCode.FENCED_LEADER_EPOCH
        client.produce(topic, batch())
        data = client.fetch(topic, leader_epoch=new)
        epochs = [header.partition_leader_epoch for _, header in headers(memoryview(data.records))]
        assert epochs == [old, new]


# how much


def test_the_first_batch_comes_whole_however_small_the_limits(client: Client) -> None:
    topic = client.create_topic()
    for value in (b"a", b"b"):
        client.produce(topic, batch(value * 10_000))
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0}, {"partition_max_bytes": 0}):
        assert values_in(client.fetch(topic, **limits).records) == [b"a" * 10_000]
        assert values_in(client.fetch(topic, 1, **limits).records) == [b"b" * 10_000]


def test_whole_batches_up_to_the_limit_of_a_partition(client: Client) -> None:
    topic = client.create_topic()
    size = len(batch(b"0" * 1000))
    for number in range(8):
        client.produce(topic, batch(b"%d" % number * 1000))
    data = client.fetch(topic, partition_max_bytes=3 * size + 10)
    whole = [header.base_offset for _, header in headers(memoryview(data.records))]
    assert whole == [0, 1, 2]  # Kafka sends the beginning of the fourth too, which a client must ignore


def test_only_the_first_partition_may_exceed_the_limit_of_the_whole(client: Client) -> None:
    topic = client.create_topic(partitions=3)
    for partition in range(3):
        client.produce(topic, batch(b"x" * 10_000), partition)
    wanted = [(topic, partition, 0) for partition in range(3)]
    response = client.call(request_for(*wanted, max_bytes=100), 12)
    counts = [len(records_in(data.records)) for data in by_partition(response).values()]
    assert counts == [1, 0, 0]
    response = client.call(request_for(*wanted, max_bytes=25_000), 12)
    assert [len(records_in(data.records)) for data in by_partition(response).values()] == [1, 1, 0]


def test_an_empty_partition_gives_its_right_to_the_next(client: Client) -> None:
    topic = client.create_topic(partitions=2)
    client.produce(topic, batch(b"x" * 10_000), 1)
    response = client.call(request_for((topic, 0, 0), (topic, 1, 0), max_bytes=1), 12)
    assert [len(records_in(data.records)) for data in by_partition(response).values()] == [0, 1]


# when


def test_a_long_poll_ends_with_the_time(client: Client) -> None:
    topic = client.create_topic()
    started = time.monotonic()
    data = client.fetch(topic, max_wait_ms=400)
    assert time.monotonic() - started >= 0.35
    assert (data.error_code, bytes(data.records)) == (ErrorCode.NONE, b"")


def test_a_long_poll_ends_with_data(broker: Broker, client: Client, connect: Callable[[Broker], Client]) -> None:
    topic = client.create_topic()
    waiting = connect(broker)
    request = request_for((topic, 0, 0), wait_ms=FOREVER_MS)
    correlation_id = waiting.send(request, 12)
    assert not waiting.has_answer(0.2)
    client.produce(topic, batch(b"news"))
    response = waiting.receive(request, 12, correlation_id)
    assert values_in(by_partition(response)[topic, 0].records) == [b"news"]


def test_a_long_poll_waits_for_as_much_as_it_asked_for(
    broker: Broker, client: Client, connect: Callable[[Broker], Client]
) -> None:
    topic = client.create_topic()
    size = len(batch(b"x" * 1000))
    client.produce(topic, batch(b"x" * 1000))
    waiting = connect(broker)
    request = request_for((topic, 0, 0), wait_ms=FOREVER_MS, min_bytes=3 * size)
    correlation_id = waiting.send(request, 12)
    assert not waiting.has_answer(0.2)
    client.produce(topic, batch(b"x" * 1000))
    assert not waiting.has_answer(0.2)
    client.produce(topic, batch(b"x" * 1000))
    response = waiting.receive(request, 12, correlation_id)
    assert len(records_in(by_partition(response)[topic, 0].records)) == 3


def test_a_long_poll_that_never_gets_enough_brings_what_there_is(client: Client) -> None:
    topic = client.create_topic()
    client.produce(topic, batch(b"little"))
    data = client.fetch(topic, max_wait_ms=300, min_bytes=1_000_000)
    assert values_in(data.records) == [b"little"]


def test_no_minimum_means_no_waiting(client: Client) -> None:
    topic = client.create_topic()
    assert client.fetch(topic, max_wait_ms=FOREVER_MS, min_bytes=0).error_code == ErrorCode.NONE
    assert client.call(FetchRequest(max_wait_ms=FOREVER_MS, min_bytes=1), 12).responses == []


def test_a_long_poll_ends_with_its_topic(broker: Broker, client: Client, connect: Callable[[Broker], Client]) -> None:
    topic = client.create_topic()
    waiting = connect(broker)
    request = request_for((topic, 0, 0), wait_ms=FOREVER_MS)
    correlation_id = waiting.send(request, 12)
    assert not waiting.has_answer(0.1)
    client.delete_topic(topic)
    data = by_partition(waiting.receive(request, 12, correlation_id))[topic, 0]
    assert data.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_many_long_polls_are_all_woken(broker: Broker, client: Client, connect: Callable[[Broker], Client]) -> None:
    topic = client.create_topic()
    request = request_for((topic, 0, 0), wait_ms=FOREVER_MS)
    waiting = [(reader := connect(broker), reader.send(request, 12)) for _ in range(30)]
    assert not waiting[-1][0].has_answer(0.1)
    client.produce(topic, batch(b"news"))
    for reader, correlation_id in waiting:
        data = by_partition(reader.receive(request, 12, correlation_id))[topic, 0]
        assert values_in(data.records) == [b"news"]


# replicas


@pytest.mark.parametrize("version", [12, 14, 18])
@pytest.mark.parametrize("replica_id", [77, 1], ids=["a broker without the partition", "the leader itself"])
def test_a_replica_that_cannot_be_one_is_refused(client: Client, version: int, replica_id: int) -> None:
    topic = client.create_topic()
    client.produce(topic, batch())
    request = request_for((topic if version <= FETCH_BY_NAME else client.topic_id(topic), 0, 0))
    request.replica_id = replica_id
    request.replica_state = ReplicaState(replica_id, -1)
    (data,) = client.call(request, version).responses[0].partitions
    assert (data.error_code, records_in(data.records)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])


# sessions (KIP-227)


class Session:
    """The client's side of an incremental fetch session."""

    def __init__(self, client: Client, version: int = 12) -> None:
        self.client = client
        self.version = version
        self.id = 0
        self.epoch = 0

    def fetch(
        self,
        *partitions: tuple[str | bytes, int, int],
        forget: tuple[tuple[str | bytes, int], ...] = (),
        wait_ms: int = 0,
    ) -> Any:
        request = request_for(*partitions, wait_ms=wait_ms)
        request.session_id, request.session_epoch = self.id, self.epoch
        for topic, partition in forget:
            name, topic_id = (topic, bytes(16)) if isinstance(topic, str) else ("", topic)
            request.forgotten_topics_data.append(ForgottenTopic(name, topic_id, [partition]))
        response = self.client.call(request, self.version)
        assert response.error_code == ErrorCode.NONE
        self.id = response.session_id
        self.epoch += 1
        return response


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_session_tells_only_what_is_new(client: Client, version: int) -> None:
    topic = client.create_topic(partitions=2)
    name: str | bytes = topic if version <= FETCH_BY_NAME else client.topic_id(topic)
    session = Session(client, version)
    first = session.fetch((name, 0, 0), (name, 1, 0))
    assert session.id > 0
    assert sorted(data.partition_index for told in first.responses for data in told.partitions) == [0, 1]
    assert session.fetch().responses == []
    client.produce(topic, batch(b"news"), 1)
    (told,) = session.fetch(wait_ms=2000).responses
    (data,) = told.partitions
    assert (data.partition_index, data.high_watermark, values_in(data.records)) == (1, 1, [b"news"])
    assert session.fetch((name, 1, 1)).responses == []


def test_a_session_forgets_and_learns_partitions(client: Client) -> None:
    topic, other = client.create_topic(partitions=2), client.create_topic()
    session = Session(client)
    session.fetch((topic, 0, 0), (topic, 1, 0))
    for name, partition in ((topic, 0), (topic, 1), (other, 0)):
        client.produce(name, batch(b"news"), partition)
    told = by_partition(session.fetch((other, 0, 0), forget=((topic, 0),)))
    assert set(told) == {(topic, 1), (other, 0)}
    assert set(by_partition(session.fetch((topic, 1, 1), (other, 0, 1), (topic, 0, 0)))) == {(topic, 0)}


def test_a_session_keeps_telling_of_an_error(client: Client, topic_name: str) -> None:
    session = Session(client)
    for _ in range(3):
        data = by_partition(session.fetch(*[(topic_name, 0, 0)] if not session.epoch else []))[topic_name, 0]
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_session_waits_for_all_its_partitions(
    broker: Broker, client: Client, connect: Callable[[Broker], Client]
) -> None:
    topic = client.create_topic(partitions=2)
    session = Session(connect(broker))
    session.fetch((topic, 0, 0), (topic, 1, 0))
    timer = threading.Timer(0.3, lambda: client.produce(topic, batch(b"late"), 1))
    timer.start()
    told = by_partition(session.fetch(wait_ms=FOREVER_MS))
    timer.join()
    assert values_in(told[topic, 1].records) == [b"late"]


@pytest.mark.parametrize("version", [7, 18])
def test_wrong_session_ids_and_epochs(client: Client, version: int) -> None:
    topic = client.create_topic()
    session = Session(client, version)
    session.fetch((topic if version <= FETCH_BY_NAME else client.topic_id(topic), 0, 0))
    for session_id, epoch, code in (
        (session.id, session.epoch + 1, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (session.id ^ 1, session.epoch, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 5, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ):
        response = client.call(FetchRequest(session_id=session_id, session_epoch=epoch), version)
        assert (ErrorCode(response.error_code), response.responses) == (code, [])
    assert session.fetch().responses == []  # none of it has hurt the session


def test_a_session_can_be_closed_and_replaced(client: Client) -> None:
    topic = client.create_topic()
    session = Session(client)
    session.fetch((topic, 0, 0))
    old = session.id
    session.epoch = 0
    session.fetch((topic, 0, 0))
    assert session.id != old
    assert client.call(FetchRequest(session_id=old, session_epoch=1), 12).error_code == 70
    closing = request_for((topic, 0, 0))
    closing.session_id, closing.session_epoch = session.id, -1
    answered = client.call(closing, 12)
    assert (answered.session_id, len(answered.responses)) == (0, 1)
    response = client.call(FetchRequest(session_id=session.id, session_epoch=1), 12)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_goes_by_name_or_by_id_but_not_both(client: Client) -> None:
    topic = client.create_topic()
    session = Session(client, 12)
    session.fetch((topic, 0, 0))
    request = FetchRequest(session_id=session.id, session_epoch=session.epoch)
    assert client.call(request, 13).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_by_id_survives_the_deletion_of_its_topic(client: Client) -> None:
    topic = client.create_topic()
    topic_id = client.topic_id(topic)
    session = Session(client, 18)
    session.fetch((topic_id, 0, 0))
    client.delete_topic(topic)

    def told() -> set[ErrorCode]:
        return {ErrorCode(data.error_code) for topic in session.fetch().responses for data in topic.partitions}

    # Kafka's session remembers the name that the id had.
    gone = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if ON_KAFKA else ErrorCode.UNKNOWN_TOPIC_ID}
    eventually(told, gone)
