"""Produce: what is taken, what is refused and with which error, and what the log holds afterwards."""

from __future__ import annotations

import json
import re
import struct
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import kafka
import pytest

from barnabas.core.errors import ErrorCode
from barnabas.records.batch import HEADER_SIZE, LOG_APPEND_TIME, headers, write_crc
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.group_client import NEW_GROUP, TRANSACTION, find_coordinator
from tests.broker.servers import barnabas_only
from tests.broker.wire_client import (
    LATEST,
    Client,
    batch,
    now_ms,
    produce_request,
    records_in,
    values_in,
)
from tests.peers import Broker, collect_sockets, eventually

HOUR_MS = 3_600_000
ATTRIBUTES, LAST_OFFSET_DELTA, RECORD_COUNT = 21, 23, 57


def patched(records: bytearray, position: int, layout: str, value: int) -> bytearray:
    """The batch with one field of its header changed, and a CRC that fits."""
    struct.pack_into(layout, records, position, value)
    write_crc(memoryview(records))
    return records


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends_and_tells_the_offset(client: Client, version: int, acks: int) -> None:
    topic = client.create_topic()
    client.produce(topic, batch(b"a", b"b"))
    request = produce_request(topic, batch(b"c"), acks=acks)
    request.topic_data[0].topic_id = client.topic_id(topic)
    (answered,) = client.call(request, version).responses
    (result,) = answered.partition_responses
    assert (result.error_code, result.base_offset, result.log_append_time_ms) == (ErrorCode.NONE, 2, -1)
    assert result.log_start_offset == (0 if version >= 5 else -1)
    assert (answered.topic_id == client.topic_id(topic) if version >= 13 else answered.name == topic) is True
    assert [record.value for record in client.read_all(topic)] == [b"a", b"b", b"c"]


def test_without_acknowledgement_there_is_no_response(client: Client) -> None:
    topic = client.create_topic()
    client.send(produce_request(topic, batch(b"unacknowledged"), acks=0), 12)
    assert client.produce(topic, batch(b"acknowledged")).base_offset == 1  # the first answer is to the second request
    assert [record.value for record in client.read_all(topic)] == [b"unacknowledged", b"acknowledged"]


def test_an_error_without_acknowledgement_closes_the_connection(
    broker: Broker, client: Client, connect: Callable[[Broker], Client]
) -> None:
    topic = client.create_topic()
    other = connect(broker)
    other.send(produce_request(topic, b"\0" * 80, acks=0), 12)
    assert other.is_closed_by_broker()
    assert client.produce(topic, batch()).base_offset == 0


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused_and_nothing_is_appended(client: Client, acks: int) -> None:
    topic = client.create_topic()
    result = client.produce(topic, batch(), acks=acks)
    assert (result.error_code, result.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert client.list_offset(topic, LATEST).offset == 0


@pytest.mark.parametrize("version", [3, 8, 12])
def test_unknown_names_and_numbers(client: Client, topic_name: str, version: int) -> None:
    topic = client.create_topic()
    for name, partition in ((topic_name, 0), (topic, 1), (topic, -1)):
        result = client.produce(name, batch(), partition, version=version)
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (result.index, result.base_offset, result.log_append_time_ms) == (partition, -1, -1)


def test_an_unknown_topic_id(client: Client) -> None:
    data = [PartitionProduceData(0, batch())]
    request = ProduceRequest(None, -1, 1000, [TopicProduceData(topic_id=b"\7" * 16, partition_data=data)])
    (answered,) = client.call(request, 13).responses
    assert answered.topic_id == b"\7" * 16
    assert answered.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_every_partition_has_its_own_outcome(client: Client, topic_name: str) -> None:
    topic = client.create_topic(partitions=2)
    wrong = batch()
    wrong[-1] ^= 1
    partitions = [
        PartitionProduceData(0, batch(b"good")),
        PartitionProduceData(1, wrong),
        PartitionProduceData(2, batch()),
    ]
    unknown = [PartitionProduceData(0, batch())]
    request = ProduceRequest(
        None,
        -1,
        1000,
        [TopicProduceData(topic, partition_data=partitions), TopicProduceData(topic_name, partition_data=unknown)],
    )
    codes = {
        (answered.name, result.index): ErrorCode(result.error_code)
        for answered in client.call(request, 12).responses
        for result in answered.partition_responses
    }
    assert codes == {
        (topic, 0): ErrorCode.NONE,
        (topic, 1): ErrorCode.CORRUPT_MESSAGE,
        (topic, 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (topic_name, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def _ours(reason: str | None) -> list[pytest.MarkDecorator]:
    return [barnabas_only(reason)] if reason else []


def wrong_crc() -> bytearray:
    records = batch(b"a", b"b")
    records[-3] ^= 0xFF
    return records


def header_only() -> bytearray:
    """A batch of no records, whose header is consistent with that."""
    records = patched(batch()[:HEADER_SIZE], 8, ">i", HEADER_SIZE - 12)
    struct.pack_into(">i", records, RECORD_COUNT, 0)
    return patched(records, LAST_OFFSET_DELTA, ">i", -1)


BAD_BATCHES: dict[str, tuple[Callable[[], bytes | bytearray | None], ErrorCode]] = {
    "null": (lambda: None, ErrorCode.INVALID_RECORD),
    "empty": (lambda: b"", ErrorCode.INVALID_RECORD),
    "half a header": (lambda: batch()[:40], ErrorCode.INVALID_RECORD),
    "cut short": (lambda: batch()[:-1], ErrorCode.INVALID_RECORD),
    "bytes after it": (lambda: batch() + b"\0" * 5, ErrorCode.INVALID_RECORD),
    "two batches": (lambda: batch() + batch(), ErrorCode.INVALID_RECORD),
    "wrong CRC": (wrong_crc, ErrorCode.CORRUPT_MESSAGE),
    "magic 1": (lambda: patched(batch(), 16, ">b", 1), ErrorCode.INVALID_RECORD),
    "magic 3": (lambda: patched(batch(), 16, ">b", 3), ErrorCode.INVALID_RECORD),
    "count too large": (lambda: patched(batch(b"a", b"b"), RECORD_COUNT, ">i", 3), ErrorCode.INVALID_RECORD),
    "count too small": (lambda: patched(batch(b"a", b"b"), RECORD_COUNT, ">i", 1), ErrorCode.INVALID_RECORD),
    "negative count": (lambda: patched(batch(b"a", b"b"), RECORD_COUNT, ">i", -1), ErrorCode.INVALID_RECORD),
    "gap in offsets": (lambda: patched(batch(b"a", b"b"), LAST_OFFSET_DELTA, ">i", 7), ErrorCode.INVALID_RECORD),
    "no records": (header_only, ErrorCode.INVALID_RECORD),
    "base offset": (lambda: patched(batch(), 0, ">q", 5), ErrorCode.INVALID_RECORD),
    "control batch": (lambda: batch(control=True), ErrorCode.INVALID_RECORD),
    "producer without a sequence": (lambda: batch(producer_id=7, epoch=0), ErrorCode.INVALID_RECORD),
}


BETTER_THAN_KAFKA = {
    "null": "Kafka never answers",
    "bytes after it": "Kafka drops them",
    "magic 3": "Kafka says CORRUPT_MESSAGE, which asks for a retry that cannot help",
}


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=_ours(BETTER_THAN_KAFKA.get(fault))) for fault in BAD_BATCHES]
)
def test_a_bad_batch_is_refused_and_leaves_nothing(client: Client, fault: str) -> None:
    make, code = BAD_BATCHES[fault]
    topic = client.create_topic()
    result = client.produce(topic, make())
    assert (ErrorCode(result.error_code), result.base_offset) == (code, -1)
    assert client.list_offset(topic, LATEST).offset == 0
    assert client.produce(topic, batch(b"good")).base_offset == 0


@barnabas_only("Kafka says UNKNOWN_SERVER_ERROR")
def test_an_unknown_codec_is_refused(client: Client) -> None:
    topic = client.create_topic()
    result = client.produce(topic, patched(batch(), ATTRIBUTES, ">h", 5))
    assert ErrorCode(result.error_code) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_zstd_needs_version_seven(client: Client) -> None:
    topic = client.create_topic()
    records = batch(b"z" * 100, compression=Compression.ZSTD)
    assert client.produce(topic, records, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert client.produce(topic, records, version=7).error_code == ErrorCode.NONE


def test_a_batch_over_max_message_bytes_is_too_large(client: Client) -> None:
    topic = client.create_topic(config={"max.message.bytes": "1000"})
    fits = batch(b"x" * 1000)
    fits = batch(b"x" * (1000 - (len(fits) - 1000)))
    assert len(fits) == 1000
    assert client.produce(topic, fits).error_code == ErrorCode.NONE
    result = client.produce(topic, batch(b"x" * 1000))
    assert (result.error_code, result.base_offset) == (ErrorCode.MESSAGE_TOO_LARGE, -1)


def test_a_batch_larger_than_a_segment_is_refused(client: Client) -> None:
    topic = client.create_topic(config={"segment.bytes": str(1024 * 1024), "max.message.bytes": "3000000"})
    assert client.produce(topic, batch(b"x" * 1_500_000)).error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert client.produce(topic, batch(b"x")).base_offset == 0


def test_more_in_sync_replicas_than_there_can_be_are_asked_for_in_vain(client: Client) -> None:
    topic = client.create_topic(config={"min.insync.replicas": "2"})
    assert client.produce(topic, batch(), acks=1).error_code == ErrorCode.NONE
    assert client.produce(topic, batch(), acks=-1).error_code == ErrorCode.NONE  # as many as there are replicas will do


# timestamps


@pytest.mark.parametrize(
    ("limit", "timestamp_ms"),
    [("message.timestamp.before.max.ms", -2 * HOUR_MS), ("message.timestamp.after.max.ms", 2 * HOUR_MS)],
)
def test_a_time_too_far_from_the_brokers_is_refused(client: Client, limit: str, timestamp_ms: int) -> None:
    topic = client.create_topic(config={limit: str(HOUR_MS)})
    result = client.produce(topic, batch(timestamp_ms=now_ms() + timestamp_ms))
    assert (ErrorCode(result.error_code), result.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
    assert client.produce(topic, batch(timestamp_ms=now_ms() + timestamp_ms // 4)).error_code == ErrorCode.NONE
    assert client.produce(topic, batch(timestamp_ms=-1)).error_code == ErrorCode.NONE


def test_by_default_any_past_and_an_hour_of_future_will_do(client: Client) -> None:
    topic = client.create_topic()
    assert client.produce(topic, batch(timestamp_ms=0)).error_code == ErrorCode.NONE
    assert client.produce(topic, batch(timestamp_ms=now_ms() + HOUR_MS // 2)).error_code == ErrorCode.NONE
    assert client.produce(topic, batch(timestamp_ms=now_ms() + 2 * HOUR_MS)).error_code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("compression", list(Compression))
def test_log_append_time_is_stamped_returned_and_covered_by_the_crc(client: Client, compression: Compression) -> None:
    topic = client.create_topic(config={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    result = client.produce(topic, batch(b"a", b"b", timestamp_ms=1000, compression=compression))
    assert before - 5 <= result.log_append_time_ms <= now_ms() + 5
    data = client.fetch(topic).records
    ((_, header),) = headers(memoryview(data))
    assert header.attributes & LOG_APPEND_TIME
    assert header.max_timestamp == result.log_append_time_ms
    assert [record.timestamp_ms for record in records_in(data)] == [result.log_append_time_ms] * 2  # checks the CRC too


def test_the_kind_of_time_can_change_while_the_broker_runs(client: Client) -> None:
    topic = client.create_topic()
    assert client.produce(topic, batch(timestamp_ms=1000)).log_append_time_ms == -1
    client.alter_topic(topic, message_timestamp_type="LogAppendTime")
    eventually(lambda: client.produce(topic, batch(timestamp_ms=1000)).log_append_time_ms > 0, True)
    client.alter_topic(topic, message_timestamp_type=None)
    eventually(lambda: client.produce(topic, batch(timestamp_ms=1000)).log_append_time_ms, -1)
    times = [record.timestamp_ms for record in client.read_all(topic)]
    assert times[0] == times[-1] == 1000
    assert max(times) > 1000


# internal topics


@pytest.fixture(params=[("__consumer_offsets", NEW_GROUP), ("__transaction_state", TRANSACTION)], ids=lambda p: p[0])
def internal_topic(client: Client, request: pytest.FixtureRequest) -> str:
    topic: str
    topic, key_type = request.param
    eventually(lambda: find_coordinator(client, "key", key_type).error_code, ErrorCode.NONE)
    client.await_leaders(topic, 3)
    return topic


@pytest.mark.parametrize("version", [3, 12, 13])
@pytest.mark.parametrize("client_id", ["test", None, "__admin"])
def test_clients_may_not_produce_to_internal_topics(
    client: Client, internal_topic: str, version: int, client_id: str | None
) -> None:
    value = uuid4().bytes
    ends = [client.list_offset(internal_topic, LATEST, index).offset for index in range(3)]
    client.client_id = client_id
    for index in range(3):
        request = produce_request(internal_topic, batch(value), index)
        request.topic_data[0].topic_id = client.topic_id(internal_topic)
        (result,) = client.call(request, version).responses[0].partition_responses
        assert (ErrorCode(result.error_code), result.base_offset) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    for index, end in enumerate(ends):  # where the coordinator itself may have written since
        assert value not in {record.value for record in client.read_all(internal_topic, index, end)}


def test_a_partition_that_an_internal_topic_lacks_is_unknown(client: Client, internal_topic: str) -> None:
    assert client.produce(internal_topic, batch(), 9999).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_admin_client_may_produce_to_internal_topics(start_broker: Callable[..., Broker]) -> None:
    with Client(start_broker({"offsets.topic.num.partitions": "1"}).address) as client:
        eventually(lambda: find_coordinator(client, "key", NEW_GROUP).error_code, ErrorCode.NONE)
        client.client_id = "__admin_client"
        eventually(lambda: client.produce("__consumer_offsets", batch()).error_code, ErrorCode.NONE)


# errors of single records (KIP-467)

KEYLESS = "Compacted topic cannot accept message without key in topic partition {topic}-0"


def _records(*records: tuple[bytes | None, int], compression: Compression = Compression.NONE) -> bytearray:
    """A batch of keys and times, which are relative to now."""
    builder, now = BatchBuilder(compression), now_ms()
    for key, timestamp_ms in records:
        builder.append(key, b"value", timestamp_ms=now + timestamp_ms)
    return builder.build()


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_record_errors_name_the_records_without_key(client: Client, compression: Compression) -> None:
    topic = client.create_topic(config={"cleanup.policy": "compact"})
    records = _records((b"a", 0), (None, 0), (b"b", 0), (None, 0), compression=compression)
    result = client.produce(topic, records)
    keyless = KEYLESS.format(topic=topic)
    assert (result.error_code, result.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [(each.batch_index, each.batch_index_error_message) for each in result.record_errors] == [
        (1, keyless),
        (3, keyless),
    ]
    assert result.error_message == (
        "One or more records have been rejected due to 2 record errors in total, and only showing the first three "
        f"errors at most: [RecordError(batchIndex=1, message='{keyless}'), "
        f"RecordError(batchIndex=3, message='{keyless}')]"
    )
    assert client.list_offset(topic, LATEST).offset == 0


@pytest.mark.parametrize("version", range(3, 13))
def test_record_errors_are_told_from_version_eight_on(client: Client, version: int) -> None:
    topic = client.create_topic(config={"cleanup.policy": "compact"})
    result = client.produce(topic, _records((None, 0), (b"a", 0)), version=version)
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in result.record_errors] == ([0] if version >= 8 else [])
    assert bool(result.error_message) == (version >= 8)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize(
    ("records", "blamed"),
    [
        ([(b"a", 0), (b"a", 2 * HOUR_MS), (b"a", 0)], [1]),
        ([(b"a", -2 * HOUR_MS), (b"a", 0), (b"a", -2 * HOUR_MS), (b"a", 2 * HOUR_MS)], [0, 2, 3]),
    ],
)
def test_record_errors_name_the_times_out_of_range(
    client: Client, records: list[tuple[bytes, int]], blamed: list[int], compression: Compression
) -> None:
    topic = client.create_topic(config={"message.timestamp.before.max.ms": str(HOUR_MS)})
    result = client.produce(topic, _records(*records, compression=compression))
    assert (result.error_code, result.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
    assert result.error_message == "One or more records have been rejected due to invalid timestamp"
    assert [each.batch_index for each in result.record_errors] == blamed
    for each in result.record_errors:
        text = (
            rf"Timestamp \d+ of message with offset {each.batch_index} is out of range\. The timestamp should be within"
        )
        assert re.match(text, each.batch_index_error_message)


def test_one_time_out_of_range_makes_the_whole_batch_an_invalid_timestamp(client: Client) -> None:
    settings = {"cleanup.policy": "compact", "message.timestamp.before.max.ms": str(HOUR_MS)}
    topic = client.create_topic(config=settings)
    for compression in (Compression.NONE, Compression.ZSTD):
        records = _records((b"a", 0), (b"b", -2 * HOUR_MS), (None, 0), compression=compression)
        result = client.produce(topic, records)
        assert result.error_code == ErrorCode.INVALID_TIMESTAMP
        late, keyless = result.record_errors
        assert (late.batch_index, keyless.batch_index) == (1, 2)
        assert keyless.batch_index_error_message == KEYLESS.format(topic=topic)
        assert late.batch_index_error_message.startswith("Timestamp ")


def test_log_append_time_leaves_only_keys_to_blame(client: Client) -> None:
    settings = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    topic = client.create_topic(config=settings)
    result = client.produce(topic, _records((b"a", 2 * HOUR_MS), (None, 2 * HOUR_MS)))
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in result.record_errors] == [1]


# compression.type

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def converted(broker: Broker) -> dict[str, list[tuple[bytes, bytes, tuple[tuple[str, bytes], ...]]]]:
    """For every codec of a topic, what kafka-python reads back of batches that came in every codec."""
    found = {}
    with Client(broker.address) as client:
        for wanted in CODECS:
            kind = "uncompressed" if wanted == "none" else wanted
            topic = client.create_topic(config={"compression.type": kind})
            for sent in Compression:
                result = client.produce(topic, batch(sent.name.encode() * 50, b"second", compression=sent))
                assert result.error_code == ErrorCode.NONE
            kept = {header.compression for _, header in headers(memoryview(client.fetch(topic).records))}
            assert kept == {Compression[wanted.upper()]}
            partition = kafka.TopicPartition(topic, 0)
            consumer: Any = kafka.KafkaConsumer(bootstrap_servers=broker.address, check_crcs=True)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            records: list[Any] = []
            eventually(lambda into=records, of=consumer: into.extend(_polled(of)) or len(into), 2 * len(CODECS))  # type: ignore[misc]
            consumer.close()
            found[wanted] = [(record.key, record.value, tuple(record.headers)) for record in records]
    collect_sockets()
    return found


def _polled(consumer: Any) -> list[Any]:
    return [record for records in consumer.poll(200).values() for record in records]


@pytest.mark.parametrize("sent", list(Compression), ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("wanted", CODECS)
def test_batches_are_converted_to_the_topics_codec(converted: dict[str, Any], wanted: str, sent: Compression) -> None:
    at = 2 * list(Compression).index(sent)
    assert converted[wanted][at : at + 2] == [
        (b"key", sent.name.encode() * 50, (("header", b"h"),)),
        (b"key", b"second", (("header", b"h"),)),
    ]


def test_by_default_the_producers_codec_is_kept_byte_for_byte(client: Client) -> None:
    topic = client.create_topic()
    sent = [batch(b"x" * 100, compression=codec) for codec in Compression]
    for records in sent:
        client.produce(topic, records)
    data = memoryview(client.fetch(topic).records)
    kept = [bytes(data[at + 16 : at + header.size]) for at, header in headers(data)]  # from the magic byte on
    assert kept == [bytes(records[16:]) for records in sent]


def test_records_that_cannot_be_decompressed_are_refused_where_they_must_be(client: Client) -> None:
    topic = client.create_topic(config={"compression.type": "gzip"})
    torn = batch(b"x" * 100, compression=Compression.ZSTD)
    torn[HEADER_SIZE:] = b"\xff" * (len(torn) - HEADER_SIZE)
    write_crc(memoryview(torn))
    assert client.produce(topic, torn).error_code != ErrorCode.NONE
    assert client.produce(topic, batch()).base_offset == 0


# keys and values that are none


def test_records_without_key_or_value_are_kept(client: Client) -> None:
    topic = client.create_topic()
    builder = BatchBuilder()
    builder.append(None, None, (), now_ms())
    builder.append(b"", b"", (("null", None),), now_ms())
    assert client.produce(topic, builder.build()).error_code == ErrorCode.NONE
    first, second = client.read_all(topic)
    assert (first.key, first.value) == (None, None)
    assert (second.key, second.value, second.headers) == (b"", b"", (("null", None),))


def test_concurrent_producers_get_offsets_of_their_own(broker: Broker, client: Client) -> None:
    topic = client.create_topic()
    offsets: list[tuple[int, bytes]] = []

    def run(name: int) -> None:
        with Client(broker.address) as own:
            for number in range(20):
                value = json.dumps([name, number]).encode()
                offsets.append((own.produce(topic, batch(value)).base_offset, value))

    threads = [threading.Thread(target=run, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [record.value for record in client.read_all(topic)] == [value for _, value in sorted(offsets)]
    assert sorted(offset for offset, _ in offsets) == list(range(80))


def test_requests_of_one_connection_are_answered_in_order(client: Client) -> None:
    topic = client.create_topic()
    requests = [produce_request(topic, batch(b"%d" % number), acks=1) for number in range(50)]
    ids = [client.send(request, 12) for request in requests]
    for offset, (request, correlation_id) in enumerate(zip(requests, ids)):
        response = client.receive(request, 12, correlation_id)
        assert response.responses[0].partition_responses[0].base_offset == offset
    assert values_in(client.fetch(topic).records) == [b"%d" % number for number in range(50)]
