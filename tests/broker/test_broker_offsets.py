"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where a partition begins and ends, and what lies between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.servers import barnabas_only
from tests.broker.transactional import GROUP, find_coordinator
from tests.broker.wire_client import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Client,
    batch,
)
from tests.peers import Broker

VERSIONS = range(1, 12)
KNOWN_SINCE = {
    EARLIEST: 1,
    LATEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}


def timed(*timestamps: int, compression: Compression = Compression.NONE) -> bytearray:
    builder = BatchBuilder(compression)
    for timestamp in timestamps:
        builder.append(None, b"%d" % timestamp, (), timestamp)
    return builder.build()


@pytest.fixture(scope="module")
def filled(broker: Broker) -> str:
    """A topic with the times 100, 300, 200 | 500, 400 | 350 and so the offsets 0 to 5."""
    with Client(broker.address) as client:
        topic = client.create_topic(config={"retention.ms": "-1"})
        for times in ((100, 300, 200), (500, 400), (350,)):
            client.produce(topic, timed(*times))
        return topic


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("special", "offset", "timestamp"),
    [
        (LATEST, 6, -1),
        (EARLIEST, 0, -1),
        (MAX_TIMESTAMP, 3, 500),
        (EARLIEST_LOCAL, 0, -1),
        (LATEST_TIERED, -1, -1),
        (EARLIEST_PENDING, -1, -1),
    ],
)
def test_special_timestamps(
    client: Client, filled: str, version: int, special: int, offset: int, timestamp: int
) -> None:
    found = client.list_offset(filled, special, version=version)
    if version < KNOWN_SINCE[special]:
        assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
        return
    assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.NONE, offset, timestamp)
    if version >= 4:
        epoch = client.describe_topic(filled).partitions[0].leader_epoch
        assert found.leader_epoch == (epoch if offset >= 0 else -1)


@pytest.mark.parametrize("special", [-7, -100])
def test_special_timestamps_that_nobody_has_defined(client: Client, filled: str, special: int) -> None:
    found = client.list_offset(filled, special)
    assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, (0, 100)),
        (100, (0, 100)),
        (101, (1, 300)),
        (300, (1, 300)),
        (301, (3, 500)),
        (500, (3, 500)),
        (501, (-1, -1)),
    ],
)
def test_the_first_record_of_a_time_or_later(
    client: Client, filled: str, version: int, timestamp: int, expected: tuple[int, int]
) -> None:
    found = client.list_offset(filled, timestamp, version=version)
    assert (found.error_code, (found.offset, found.timestamp)) == (ErrorCode.NONE, expected)


@pytest.mark.parametrize("compression", list(Compression))
def test_times_are_found_inside_compressed_batches(client: Client, compression: Compression) -> None:
    topic = client.create_topic(config={"retention.ms": "-1"})
    for first in range(0, 1000, 100):
        client.produce(topic, timed(*range(first, first + 100), compression=compression))
    for timestamp in (0, 1, 499, 500, 777, 999):
        found = client.list_offset(topic, timestamp)
        assert (found.offset, found.timestamp) == (timestamp, timestamp)
    assert client.list_offset(topic, MAX_TIMESTAMP).offset == 999


def test_an_empty_partition(client: Client) -> None:
    topic = client.create_topic()
    for special, offset in ((LATEST, 0), (EARLIEST, 0), (MAX_TIMESTAMP, -1), (0, -1)):
        found = client.list_offset(topic, special)
        assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.NONE, offset, -1)


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_isolation_levels_agree_where_there_are_no_transactions(
    client: Client, filled: str, isolation_level: int
) -> None:
    assert client.list_offset(filled, LATEST, isolation_level=isolation_level).offset == 6
    assert client.list_offset(filled, 301, isolation_level=isolation_level).offset == 3


def test_unknown_partitions(client: Client, filled: str, topic_name: str) -> None:
    for topic, partition in ((topic_name, 0), (filled, 5)):
        found = client.list_offset(topic, LATEST, partition)
        assert (found.error_code, found.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_leader_epochs_are_checked(client: Client, filled: str) -> None:
    epoch = client.describe_topic(filled).partitions[0].leader_epoch
    for asked, code in ((epoch, ErrorCode.NONE), (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        partition = ListOffsetsPartition(0, asked, LATEST)
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(filled, [partition])])
        assert client.call(request).topics[0].partitions[0].error_code == code


def test_a_partition_asked_for_twice(client: Client, filled: str) -> None:
    partitions = [ListOffsetsPartition(0, timestamp=LATEST), ListOffsetsPartition(0, timestamp=EARLIEST)]
    response = client.call(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(filled, partitions)]))
    codes = {found.error_code for topic in response.topics for found in topic.partitions}
    assert codes == {ErrorCode.INVALID_REQUEST}


# OffsetForLeaderEpoch


def end_of_epoch(client: Client, topic: str, epoch: int, current: int = -1, version: int = 4) -> Any:
    asked = OffsetForLeaderPartition(0, current, epoch)
    request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(topic, [asked])])
    return client.call(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_present_epoch_ends_with_the_log(client: Client, filled: str, version: int) -> None:
    epoch = client.describe_topic(filled).partitions[0].leader_epoch
    found = end_of_epoch(client, filled, epoch, version=version)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, epoch, 6)


def test_an_epoch_of_the_future_has_no_end(client: Client, filled: str) -> None:
    found = end_of_epoch(client, filled, 50)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, -1, -1)


def test_epochs_of_unknown_partitions_and_views(client: Client, filled: str, topic_name: str) -> None:
    assert end_of_epoch(client, topic_name, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert end_of_epoch(client, filled, 0, current=90).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_every_restart_begins_an_epoch_where_the_last_ended(start_broker: Callable[..., Broker]) -> None:
    topic, ends = "", []
    for turn, is_crash in enumerate((False, True, False)):
        broker = start_broker()
        with Client(broker.address) as client:
            topic = topic or client.create_topic()
            client.await_leaders(topic, 1)
            client.produce(topic, batch(b"a", b"b"))
            epoch = client.describe_topic(topic).partitions[0].leader_epoch
            ends.append((epoch, 2 * turn + 2))
            for known, end_offset in ends:
                found = end_of_epoch(client, topic, known, current=epoch)
                assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, known, end_offset)
        broker.kill() if is_crash else broker.stop()
    assert [epoch for epoch, _ in ends] == sorted({epoch for epoch, _ in ends})


# DeleteRecords


def delete_records(client: Client, topic: str, offset: int, partition: int = 0, version: int = 2) -> Any:
    wanted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, offset)])
    return client.call(DeleteRecordsRequest([wanted], 10_000), version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_are_deleted_up_to_an_offset(client: Client, version: int) -> None:
    topic = client.create_topic()
    client.produce(topic, batch(b"a", b"b", b"c"))
    client.produce(topic, batch(b"d"))
    deleted = delete_records(client, topic, 2, version=version)
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.NONE, 2)
    assert client.list_offset(topic, EARLIEST).offset == 2
    assert client.list_offset(topic, LATEST).offset == 4
    assert [record.value for record in client.read_all(topic, offset=2)] == [b"c", b"d"]
    assert client.produce(topic, batch()).log_start_offset == 2


def test_minus_one_deletes_all(client: Client) -> None:
    topic = client.create_topic()
    client.produce(topic, batch(b"a", b"b"))
    assert delete_records(client, topic, -1).low_watermark == 2
    assert client.list_offset(topic, EARLIEST).offset == 2
    assert client.produce(topic, batch(b"c")).base_offset == 2
    assert [record.value for record in client.read_all(topic, offset=2)] == [b"c"]


def test_less_than_what_is_gone_changes_nothing(client: Client) -> None:
    topic = client.create_topic()
    client.produce(topic, batch(b"a", b"b", b"c"))
    delete_records(client, topic, 2)
    deleted = delete_records(client, topic, 1)
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize("offset", [4, 1000, -2])
def test_records_that_are_not_there_cannot_be_deleted(client: Client, offset: int) -> None:
    topic = client.create_topic()
    client.produce(topic, batch(b"a", b"b", b"c"))
    deleted = delete_records(client, topic, offset)
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert client.list_offset(topic, EARLIEST).offset == 0


def test_records_of_unknown_partitions_cannot_be_deleted(client: Client, topic_name: str) -> None:
    topic = client.create_topic()
    for name, partition in ((topic_name, 0), (topic, 1)):
        deleted = delete_records(client, name, 0, partition)
        assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("compact,delete", ErrorCode.NONE),
        ("delete", ErrorCode.NONE),
        ("", ErrorCode.NONE),
    ],
)
def test_what_is_only_compacted_keeps_its_records(client: Client, version: int, policy: str, code: ErrorCode) -> None:
    topic = client.create_topic(config={"cleanup.policy": policy})
    client.produce(topic, batch(b"a", b"b"))
    deleted = delete_records(client, topic, 1, version=version)
    assert ErrorCode(deleted.error_code) is code
    assert client.list_offset(topic, EARLIEST).offset == (1 if code is ErrorCode.NONE else 0)


def test_records_of_internal_topics_cannot_be_deleted(client: Client) -> None:
    find_coordinator(client, "some-group", GROUP)
    assert ErrorCode(delete_records(client, "__consumer_offsets", -1).error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    "is_crash",
    [False, pytest.param(True, marks=barnabas_only("Kafka answers before the new start is on disk"))],
)
def test_what_was_deleted_stays_deleted(start_broker: Callable[..., Broker], is_crash: bool) -> None:
    broker = start_broker()
    with Client(broker.address) as client:
        topic = client.create_topic()
        client.produce(topic, batch(*[b"x"] * 10))
        assert delete_records(client, topic, 3).low_watermark == 3
    broker.kill() if is_crash else broker.stop()
    with Client(start_broker().address) as client:
        client.await_leaders(topic, 1)
        assert client.list_offset(topic, EARLIEST).offset == 3
        assert client.list_offset(topic, 0).offset == 3
        assert client.fetch(topic, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert client.list_offset(topic, LATEST).offset == 10
