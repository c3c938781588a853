"""Too much of everything: connections, announced bytes, replies that nobody takes, bytes hidden in compressed ones.

The bounds on memory are two to three times what was measured.
"""

from __future__ import annotations

import gzip
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from crc32c import crc32c

from barnabas.core.errors import ErrorCode
from barnabas.records.batch import HEADER_SIZE
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression, compress
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.k18_api_versions import ApiVersionsRequest
from tests.hostile.victim import MIB, Victim, attacked
from tests.hostile.wire import Wire, encode_request, framed
from tests.peers import eventually


@contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    """Let this process and the broker that it starts hold `count` connections each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"a process may open {hard} files here, {count} are needed: raise the hard limit (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connected(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 20)


def produce(wire: Wire, topic: str, batch: bytes) -> int:
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
    response = wire.call(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=data), 12)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def fill(victim: Victim, topic: str, mib: int) -> None:
    builder = BatchBuilder()
    builder.append(None, bytes(MIB - 1000))
    with victim.connect() as wire:
        for _ in range(mib):
            assert produce(wire, topic, bytes(builder.build())) == ErrorCode.NONE


def fetch(topic: str, correlation_id: int) -> bytes:
    wanted = [FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=2**31 - 1)])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=2**31 - 1, session_epoch=-1, topics=wanted)
    return framed(encode_request(request, 12, correlation_id))


def test_5000_idle_connections_cost_little_and_disturb_nobody(tmp_path: Path) -> None:
    with many_descriptors(6000), attacked(tmp_path) as victim, ExitStack() as sockets:
        before = victim.resident_mib()
        with victim.witness() as witness:
            idle = [sockets.enter_context(connected(victim.address)) for _ in range(5000)]
            eventually(lambda: victim.metric("barnabas_connections_open") >= 5000, True, 20)
            time.sleep(1)
            grown = victim.resident_mib() - before
            assert grown < 60, f"{grown:.0f} MiB for {len(idle)} connections"
            # Each is a connection that works.
            for one in idle[:: len(idle) // 50]:
                wire = Wire.__new__(Wire)
                wire.socket = one
                assert wire.call(ApiVersionsRequest("x", "1"), 3).error_code == 0
        witness.was_served(3.0)


def test_1000_connections_that_announce_100_mb_each_get_no_memory_for_it(tmp_path: Path) -> None:
    with many_descriptors(2000), attacked(tmp_path) as victim, ExitStack() as sockets:
        before = victim.resident_mib()
        with victim.witness() as witness:
            greedy = [sockets.enter_context(connected(victim.address)) for _ in range(1000)]
            for one in greedy:
                one.sendall(struct.pack(">i", 100_000_000) + b"a few")
            time.sleep(0.5)
            assert victim.resident_mib() - before < 40
            for _ in range(3):
                for one in greedy:
                    one.sendall(b"bytes more")
            time.sleep(0.5)
            grown = victim.resident_mib() - before
            assert grown < 150, f"{grown:.0f} MiB"
        witness.was_served(3.0)
        with victim.connect() as wire:  # and a large request of somebody else still gets through
            topic = victim.new_topic()
            builder = BatchBuilder()
            builder.append(None, bytes(MIB - 1000))
            assert produce(wire, topic, bytes(builder.build())) == ErrorCode.NONE


def test_large_frames_that_never_end_stay_within_the_budget(tmp_path: Path) -> None:
    """`queued.max.request.bytes` bounds what partial requests hold, however many bytes really come."""
    settings = {"queued.max.request.bytes": str(32 * MIB)}
    with many_descriptors(2000), attacked(tmp_path, settings) as victim, ExitStack() as sockets:
        before = victim.resident_mib()
        with victim.witness() as witness:
            greedy = [sockets.enter_context(connected(victim.address)) for _ in range(200)]
            chunk = struct.pack(">i", 100_000_000) + bytes(MIB)
            for one in greedy:
                one.setblocking(False)
            unsent = {one: memoryview(chunk) for one in greedy}
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                for one, rest in list(unsent.items()):
                    try:
                        unsent[one] = rest[one.send(rest) :]
                    except BlockingIOError:
                        continue
                    if not unsent[one]:
                        del unsent[one]
                time.sleep(0.01)
            grown = victim.resident_mib() - before
            assert grown < 32 + 100, f"{grown:.0f} MiB"
        witness.was_served(3.0)


def test_a_client_that_never_reads_its_responses_costs_one_response(tmp_path: Path) -> None:
    with many_descriptors(2000), attacked(tmp_path) as victim, ExitStack() as wires:
        topic = victim.new_topic()
        fill(victim, topic, 30)
        before = victim.resident_mib()
        with victim.witness() as witness:
            fetches = b"".join(fetch(topic, number) for number in range(200))
            questions = b"".join(
                framed(encode_request(ApiVersionsRequest("x", "1"), 3, number)) for number in range(5000)
            )
            for requests in (fetches, questions):
                for _ in range(100):
                    wire = wires.enter_context(victim.connect(timeout=1, receive_buffer_bytes=4096))
                    wire.socket.setblocking(False)
                    with suppress(BlockingIOError):
                        wire.socket.send(requests)
            time.sleep(4)
            grown = victim.resident_mib() - before
            assert grown < 60, f"{grown:.0f} MiB for 200 connections"
        witness.was_served(3.0)


def bomb(codec: Compression, mib: int) -> bytes:
    """A batch of one record that is `mib` long once it is opened."""
    builder = BatchBuilder()
    builder.append(None, bytes(mib * MIB))
    plain = builder.build()
    section = plain[HEADER_SIZE:]
    packed = gzip.compress(section, 9) if codec is Compression.GZIP else compress(codec, section)
    batch = plain[:HEADER_SIZE] + bytes(packed)
    batch[8:12] = struct.pack(">i", len(batch) - 12)
    batch[21:23] = struct.pack(">h", codec)
    batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD, Compression.LZ4, Compression.SNAPPY])
def test_a_decompression_bomb_is_refused_where_batches_are_opened(tmp_path: Path, codec: Compression) -> None:
    other = "zstd" if codec is Compression.GZIP else "gzip"
    batch = bomb(codec, 400)
    ratio = 400 * MIB / len(batch)
    assert ratio > {Compression.GZIP: 1000, Compression.ZSTD: 1000, Compression.LZ4: 200, Compression.SNAPPY: 20}[codec]
    settings = {"message.max.bytes": str(32 * MIB)}  # for the codecs that cannot shrink it much
    with attacked(tmp_path, settings) as victim:
        topic = victim.new_topic({"compression.type": other})
        before = victim.resident_mib()
        with victim.witness() as witness, victim.connect(timeout=60) as wire:
            for _ in range(3):
                code = produce(wire, topic, batch)
                assert code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
        grown = victim.peak_mib() - before
        assert grown < 400, f"{grown:.0f} MiB"
        witness.was_served(5.0, rounds=2)
        with victim.connect() as wire:
            builder = BatchBuilder(codec)
            builder.append(b"key", b"value")
            assert produce(wire, topic, bytes(builder.build())) == ErrorCode.NONE


def test_a_long_list_of_tiny_items_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """As many topics without a name as a request may have; then far too many, and as many produced partitions."""
    most = struct.pack(">hhihi", 3, 1, 1, -1, 100_000) + bytes(200_000)
    too_many = struct.pack(">hhihi", 3, 1, 1, -1, 20_000_000) + bytes(40_000_000)
    pairs = struct.pack(">hhihhhii", 0, 3, 1, -1, -1, 1, 1000, 1) + struct.pack(">h1si", 1, b"t", 4_000_000)
    with attacked(tmp_path) as victim:
        before = victim.resident_mib()
        with victim.witness() as witness:
            with victim.connect(timeout=30) as wire:
                wire.send(framed(most))
                assert len(wire.receive()) > 20
            for request in (too_many, pairs + bytes(32_000_000)):
                with victim.connect(timeout=30) as wire:
                    wire.send(framed(request))
                    assert wire.is_closed_by_peer()
        grown = victim.peak_mib() - before
        assert grown < 200, f"{grown:.0f} MiB"
        witness.was_served(3.0, rounds=2)


def test_connections_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    with many_descriptors(2000), attacked(tmp_path) as victim:
        reset = struct.pack("ii", 1, 0)
        request = framed(encode_request(ApiVersionsRequest("x", "1"), 3))
        topic = victim.new_topic()
        waiting = FetchRequest(
            max_wait_ms=2**31 - 1,
            min_bytes=2**31 - 1,
            max_bytes=1,
            session_epoch=-1,
            topics=[FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1)])],
        )
        long_polls = framed(encode_request(waiting, 12)) * 30
        before = victim.resident_mib()
        with victim.witness() as witness:
            for number in range(3000):
                with connected(victim.address) as one:
                    one.sendall((request, request[:7], long_polls)[number % 3])
                    if number % 2:
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            eventually(lambda: victim.metric("barnabas_connections_open") < 20, True, 20)
        grown = victim.resident_mib() - before
        assert grown < 30, f"{grown:.0f} MiB"
        witness.was_served(3.0)
