"""Bytes that are no requests, and requests that are wrong: each is answered or ends its connection, and no other."""

from __future__ import annotations

import random
import struct
import time

import pytest
from crc32c import crc32c

from barnabas.core.errors import ErrorCode
from barnabas.records.batch import HEADER_SIZE
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.k03_metadata import MetadataRequest
from barnabas.wire.messages.k18_api_versions import ApiVersionsRequest
from tests.hostile.victim import Victim
from tests.hostile.wire import Wire, encode_request, framed

PRODUCE_BY_NAME = 12


def test_a_frame_longer_than_allowed_ends_the_connection(victim: Victim) -> None:
    before = victim.metric("barnabas_client_mistakes_total")
    with victim.witness() as witness:
        for length in (1_000_001, 104_857_601, 2**31 - 1):
            with victim.connect() as wire:
                wire.send(struct.pack(">i", length) + b"a beginning")
                assert wire.is_closed_by_peer()
    witness.was_served(15.0, rounds=1)
    assert victim.metric("barnabas_client_mistakes_total") == before + 3
    assert "socket.request.max.bytes" in victim.server.log.read_text()


def test_the_longest_frame_that_is_allowed_is_taken(victim: Victim) -> None:
    with victim.connect() as wire:
        request = encode_request(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        wire.send(framed(request.ljust(1_000_000, b"\0")))
        assert len(wire.receive()) > 100


@pytest.mark.parametrize("length", [-1, -(2**31)])
def test_a_negative_length_ends_the_connection(victim: Victim, length: int) -> None:
    with victim.connect() as wire:
        wire.send(struct.pack(">i", length))
        assert wire.is_closed_by_peer()


def test_random_bytes_and_other_protocols_end_the_connection(victim: Victim) -> None:
    rng = random.Random(7)
    strangers = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(600),  # a TLS ClientHello
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        framed(b""),
        framed(b"\0"),
        framed(bytes(1000)),
        *(rng.randbytes(rng.choice((10, 100, 5000, 200_000))) for _ in range(100)),
        *(framed(rng.randbytes(rng.choice((1, 9, 40, 3000)))) for _ in range(100)),
    ]
    with victim.witness() as witness:
        for bytes_sent in strangers:
            with victim.connect() as wire:
                try:
                    wire.send(bytes_sent)
                except ConnectionError:
                    continue
                assert wire.is_closed_by_peer(), bytes_sent[:20].hex()
    witness.was_served(15.0, rounds=1)


@pytest.mark.parametrize("sent", [b"", b"\0", struct.pack(">i", 500), struct.pack(">i", 500) + bytes(400)])
def test_a_frame_that_never_ends_is_given_up_after_the_idle_time(victim: Victim, sent: bytes) -> None:
    """`connections.max.idle.ms` is 2 s here."""
    started = time.monotonic()
    with victim.connect() as wire:
        wire.send(sent)
        assert wire.is_closed_by_peer()
    assert 1.5 < time.monotonic() - started < 6


def test_a_frame_that_comes_in_drops_is_given_up_too(victim: Victim) -> None:
    with victim.connect() as wire:
        wire.send(struct.pack(">i", 1000))
        started = time.monotonic()
        try:
            while time.monotonic() - started < 10:
                wire.send(b".")
                time.sleep(0.1)
        except ConnectionError:
            pass
        assert time.monotonic() - started < 6


@pytest.mark.parametrize("key", [-1, 4, 7, 70, 999, 32767, -32768])
def test_an_unknown_api_key_ends_the_connection(victim: Victim, key: int) -> None:
    with victim.connect() as wire:
        wire.send(framed(struct.pack(">hhih", key, 0, 1, -1) + bytes(20)))
        assert wire.is_closed_by_peer()


@pytest.mark.parametrize(
    ("key", "version"), [(0, 2), (0, 14), (1, 3), (1, 19), (3, -1), (3, 14), (19, 1), (22, 6), (18, -1)]
)
def test_an_unserved_version_ends_the_connection_or_is_told(victim: Victim, key: int, version: int) -> None:
    with victim.connect() as wire:
        wire.send(framed(struct.pack(">hhih", key, version, 1, -1) + bytes(20)))
        if key == 18:
            assert wire.receive()[:6] == struct.pack(">ih", 1, ErrorCode.UNSUPPORTED_VERSION)
        else:
            assert wire.is_closed_by_peer()


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(victim: Victim) -> None:
    with victim.connect() as wire:
        wire.send(framed(struct.pack(">hhih", 18, 99, 4711, -1) + bytes(20)))
        answer = wire.receive()
        correlation_id, error_code, count = struct.unpack_from(">ihi", answer)
        assert (correlation_id, error_code) == (4711, ErrorCode.UNSUPPORTED_VERSION)
        keys = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])}
        assert keys[18] == (0, 4)
        assert wire.call(ApiVersionsRequest("x", "1"), 4).error_code == 0  # and the client may ask again


# batches


def good_batch(count: int = 3) -> bytearray:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(b"key", b"value %d" % number, timestamp_ms=1_700_000_000_000)
    return builder.build()


def with_crc(batch: bytearray) -> bytearray:
    batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
    return batch


def patched(position: int, form: str, value: int) -> bytearray:
    batch = good_batch()
    struct.pack_into(form, batch, position, value)
    return with_crc(batch)


def wrong_crc() -> bytearray:
    batch = good_batch()
    batch[-1] ^= 1
    return batch


BAD_BATCHES = {
    "wrong CRC": (wrong_crc(), {ErrorCode.CORRUPT_MESSAGE}),
    "count too high": (patched(57, ">i", 4), {ErrorCode.INVALID_RECORD}),
    "count too low": (patched(57, ">i", 2), {ErrorCode.INVALID_RECORD}),
    "count negative": (patched(57, ">i", -1), {ErrorCode.INVALID_RECORD}),
    "count zero": (patched(57, ">i", 0), {ErrorCode.INVALID_RECORD}),
    "last offset delta wrong": (patched(23, ">i", 2**31 - 1), {ErrorCode.INVALID_RECORD}),
    "both count and delta negative": (
        with_crc(patched(57, ">i", -5)[:23] + struct.pack(">i", -6) + patched(57, ">i", -5)[27:]),
        {ErrorCode.INVALID_RECORD},
    ),
    "length too long": (patched(8, ">i", 5000), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "length too short": (patched(8, ">i", 49), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "length negative": (patched(8, ">i", -1), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "magic 0": (patched(16, ">b", 0), {ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}),
    "magic 1": (patched(16, ">b", 1), {ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}),
    "magic 3": (patched(16, ">b", 3), {ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}),
    "magic negative": (patched(16, ">b", -1), {ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}),
    "base offset": (patched(0, ">q", 5), {ErrorCode.INVALID_RECORD}),
    "control batch": (patched(21, ">h", 0x20), {ErrorCode.INVALID_RECORD}),
    "unknown codec": (patched(21, ">h", 7), {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.INVALID_RECORD}),
    "two batches": (good_batch() + good_batch(), {ErrorCode.INVALID_RECORD}),
    "half a header": (good_batch()[: HEADER_SIZE - 1], {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "half a batch": (good_batch()[:-5], {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "nothing": (bytearray(), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "too far in the future": (patched(35, ">q", 2**63 - 1), {ErrorCode.INVALID_TIMESTAMP}),
    "too large": (good_batch(40_000), {ErrorCode.MESSAGE_TOO_LARGE}),
}


def produce(wire: Wire, topic: str, batch: bytearray) -> tuple[int, int]:
    """The error code and the base offset."""
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, bytes(batch))])]
    response = wire.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data), PRODUCE_BY_NAME)
    result = response.responses[0].partition_responses[0]
    return result.error_code, result.base_offset


def end_of(wire: Wire, topic: str) -> int:
    asked = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])]
    found: int = wire.call(ListOffsetsRequest(topics=asked), 4).topics[0].partitions[0].offset
    return found


@pytest.fixture(scope="session")
def topics(_broker_for_bad_requests: Victim) -> dict[str, str]:
    """One topic whose batches are never opened, and one whose codec makes the broker open them."""
    return {
        kind: _broker_for_bad_requests.new_topic({"compression.type": kind, "max.message.bytes": "500000"})
        for kind in ("producer", "zstd")
    }


@pytest.mark.parametrize("kind", ["producer", "zstd"])
@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_bad_batch_is_refused_with_its_code_and_leaves_nothing_behind(
    victim: Victim, topics: dict[str, str], name: str, kind: str
) -> None:
    batch, codes = BAD_BATCHES[name]
    topic = topics[kind]
    with victim.connect() as wire:
        end = end_of(wire, topic)
        code, offset = produce(wire, topic, batch)
        assert code in codes, ErrorCode(code).name
        assert offset == -1
        assert end_of(wire, topic) == end
        assert produce(wire, topic, good_batch()) == (ErrorCode.NONE, end)  # on the same connection


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
@pytest.mark.parametrize("damage", ["cut", "flipped", "garbage", "longer"])
def test_compressed_bytes_that_make_no_sense_are_refused_where_the_broker_has_to_open_them(
    victim: Victim, topics: dict[str, str], codec: Compression, damage: str
) -> None:
    """Header and CRC are right; what they cover is not what the codec wrote."""
    rng = random.Random(codec)
    builder = BatchBuilder(codec)
    builder.append(None, rng.randbytes(300) + bytes(300))
    batch = builder.build()
    if damage == "cut":
        batch = batch[:-50]
    elif damage == "flipped":
        for position in range(HEADER_SIZE, len(batch), 20):
            batch[position] ^= 0x55
    elif damage == "garbage":
        batch[HEADER_SIZE:] = rng.randbytes(100)
    else:
        batch += b"more"
    batch[8:12] = struct.pack(">i", len(batch) - 12)
    with victim.connect() as wire:
        end = end_of(wire, topics["zstd"])
        assert produce(wire, topics["zstd"], with_crc(batch)) == (ErrorCode.CORRUPT_MESSAGE, -1)
        assert end_of(wire, topics["zstd"]) == end


def test_a_request_behind_a_broken_one_is_not_served(victim: Victim) -> None:
    with victim.connect() as wire:
        wire.send(framed(b"\0") + framed(encode_request(MetadataRequest(topics=[]), 12)))
        assert wire.is_closed_by_peer()
