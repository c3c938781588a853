"""Mutated requests of every API and version that the broker serves, from one seed.

A request begins as a valid message, made from its table with values that mean something to the broker (topics that
exist, partitions, timestamps) or that sit on a boundary. Then, mostly, something is done to it: to the values of its
batch header, with the CRC put right again so that the checks behind it are reached, or to the bytes of the whole
request: header, lengths, counts, varints, tags. What would only fill the disk (thousands of topics or partitions) is
left out.

    python -m tests.hostile.fuzz ADDRESS COUNT SEED    against a broker that already runs
"""

from __future__ import annotations

import random
import selectors
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from crc32c import crc32c

from barnabas.broker.handlers import SERVED
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.wire.compiler import codec
from barnabas.wire.headers import decode_request_header, decode_response_header
from barnabas.wire.messages.k00_produce import ProduceRequest
from barnabas.wire.messages.k03_metadata import MetadataRequest
from barnabas.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.k37_create_partitions import CreatePartitionsRequest
from barnabas.wire.primitives import DecodeError
from barnabas.wire.registry import api
from barnabas.wire.schema import Field, Kind, boolean, float64, records, string, table_of, uuid
from tests.hostile.wire import MAX_FRAME_BYTES, Wire, encode_request, framed

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "gzip": {"compression.type": "gzip"},
    "zstd": {"compression.type": "zstd"},
    "lz4": {"compression.type": "lz4"},
    "snappy": {"compression.type": "snappy"},
    "bare": {"compression.type": "uncompressed"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "synced": {"flush.messages": "100"},
}
NAMES = (*TOPICS, *TOPICS, "absent", "gone", "__consumer_offsets", "", "with space", "x" * 250)
DOOMED = ("absent", "gone")  # what is deleted; the others should last
MOST_NAMES = 300
MOST_PARTITIONS = 50
CONFIG_NAMES = (
    "retention.ms", "retention.bytes", "segment.bytes", "segment.ms", "max.message.bytes", "compression.type",
    "cleanup.policy", "message.timestamp.type", "message.timestamp.before.max.ms", "min.insync.replicas",
    "index.interval.bytes", "segment.index.bytes", "no.such.key", "log.retention.ms", "",
)  # fmt: skip
CONFIG_VALUES = ("0", "-1", "1", "1048576", "9223372036854775807", "9223372036854775808", "compact", "gzip", "x", "",
                 "LogAppendTime", "delete,compact", "\N{SNOWMAN}", "1e3", "true")  # fmt: skip
BOUNDARIES = (0, 1, -1, 2, -2, 127, 128, -128, 255, 32767, -32768, 65535, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
SIZES = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint16": 2, "uint32": 4}
FIELDS: dict[str, tuple[Any, ...]] = {
    "name": NAMES,
    "topic": NAMES,
    "topic_name": NAMES,
    "topic_names": NAMES,
    "resource_name": (*NAMES, "1", "2"),
    "resource_type": (2, 4, 8, 0, 3, 127),
    "partition": (0, 0, 0, 1, 1, 2, 2, 50, -1, 2**31 - 1),
    "partition_index": (0, 0, 0, 1, 1, 2, 2, 50, -1, 2**31 - 1),
    "partition_indexes": (0, 1, 2, -1),
    "index": (0, 0, 0, 1, 1, 2, 2, 50, -1, 2**31 - 1),
    "partitions": (0, 1, 2, -1),
    "count": (-1, 0, 2, 3, 4, 10, 50),
    "num_partitions": (-1, 0, 1, 3, 50),
    "replication_factor": (-1, 0, 1, 2, 32767),
    "acks": (-1, -1, -1, -1, 1, 1, 1, 0, 2, -2),
    "timeout_ms": (0, 1, 5, 1000, -1),
    "max_wait_ms": (0, 1, 5, -1),
    "min_bytes": (0, 1, 1, 1000, -1, 2**31 - 1),
    "max_bytes": (0, 1, 1000, 1 << 20, 2**31 - 1, -1),
    "partition_max_bytes": (0, 1, 1000, 1 << 20, 2**31 - 1, -1),
    "replica_id": (-1, -1, -1, 0, 1, 2, -2),
    "session_id": (0, 0, 1, -1),
    "session_epoch": (-1, -1, -1, 0, 0, 1, 2**31 - 1),
    "current_leader_epoch": (-1, -1, 0, 1, 2**31 - 1),
    "leader_epoch": (-1, 0, 1, 2, 2**31 - 1),
    "fetch_offset": (0, 1, 5, 100, -1, 2**63 - 1),
    "offset": (0, 1, 5, -1, -2, 2**63 - 1),
    "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, 1_700_000_000_000, 2**63 - 1),
    "isolation_level": (0, 1, 2),
    "config_names": CONFIG_NAMES,
    "value": CONFIG_VALUES,
    "config_operation": (0, 1, 2, 3, -1),
    "transactional_id": ("", "t"),
    "key_type": (0, 1, 2),
    "broker_ids": (0, 1, 2, -1),
}
NULLABLE_SHARE = 0.15
_CREATORS = frozenset((3, 19, 37))  # Metadata, CreateTopics, CreatePartitions


class Sent(NamedTuple):
    key: int
    version: int
    frame: bytes


class Fuzzer:
    """Makes requests. Everything follows from the seed, the topic ids aside."""

    def __init__(self, seed: int, topic_ids: list[bytes]) -> None:
        self._rng = random.Random(seed)
        self._topic_ids = [*topic_ids, bytes(16), bytes(range(16))]
        self._batches = list(_batches(self._rng))
        self._routes = [
            (key, version)
            for key, (lowest, highest) in sorted(SERVED.items())
            for version in range(max(lowest, api(key).min_version), highest + 1)
        ]
        self._seen_names = set(NAMES)

    def requests(self, count: int) -> Iterator[Sent]:
        """`count` requests, every API and version as often as any other."""
        made = 0
        while made < count:
            key, version = self._routes[made % len(self._routes)]
            request = self._mutated(self._valid(key, version, made))
            if self._is_bearable(request):
                yield Sent(key, version, request)
                made += 1

    # valid messages

    def _valid(self, key: int, version: int, correlation_id: int) -> bytes:
        return encode_request(self._struct(api(key).request, version), version, correlation_id & 0x7FFFFFFF)

    def _struct(self, cls: type[Any], version: int) -> Any:
        values = {}
        for field in table_of(cls):
            if field.versions.has(version) and (field.tag is None or self._rng.random() < 0.5):
                values[field.name] = self._field(cls, field, version)
        return cls(**values)

    def _field(self, cls: type[Any], field: Field, version: int) -> Any:
        rng = self._rng
        if field.nullable.has(version) and rng.random() < NULLABLE_SHARE:
            return None
        if field.is_array:
            assert field.of is not None
            return [self._value(cls, field.name, field.of, version) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        return self._value(cls, field.name, field.of or field.kind, version)

    def _value(self, cls: type[Any], name: str, kind: Kind | type, version: int) -> Any:
        rng = self._rng
        if isinstance(kind, type):
            return self._struct(kind, version)
        if kind is records:
            return self._batch()
        if kind is uuid:
            return rng.choice(self._topic_ids[-2:] if cls is DeleteTopicState else self._topic_ids)
        if kind is boolean:
            return rng.random() < 0.5
        if kind is float64:
            return rng.choice((0.0, -1.0, 1e300))
        if kind is string:
            if name == "name" and "Config" in cls.__name__:
                return rng.choice(CONFIG_NAMES)
            if cls in (DeleteTopicsRequest, DeleteTopicState) and rng.random() < 0.98:
                return rng.choice(DOOMED)
            return rng.choice(FIELDS.get(name, ("", "a", "\N{SNOWMAN}" * 50)))
        if kind.name not in SIZES:
            return rng.randbytes(rng.choice((0, 1, 10, 300)))
        known = FIELDS.get(name)
        if known is not None and rng.random() < 0.9:
            return rng.choice(known)
        return self._fitting(kind, rng.choice(BOUNDARIES))

    def _fitting(self, kind: Kind, value: int) -> int:
        bits = 8 * SIZES[kind.name]
        value &= (1 << bits) - 1
        return value if kind.name.startswith("u") or value < 1 << (bits - 1) else value - (1 << bits)

    # record batches

    def _batch(self) -> bytes:
        """A batch: one in three as it was, one with a wrong field, one with wrong bytes; mostly with a good CRC."""
        rng = self._rng
        batch = bytearray(rng.choice(self._batches))
        change = rng.randrange(3)
        if change == 1:
            position, form = rng.choice(_BATCH_FIELDS)
            bits = 8 * struct.calcsize(form)
            value = rng.choice((*BOUNDARIES, rng.getrandbits(bits))) & ((1 << bits) - 1)
            batch[position : position + bits // 8] = value.to_bytes(bits // 8, "big")
        elif change == 2:
            self._damage(batch, 12, len(batch))
        if change and rng.random() < 0.8 and len(batch) > 21:
            if rng.random() < 0.8 and len(batch) >= 12:
                batch[8:12] = struct.pack(">i", len(batch) - 12)
            batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
        return bytes(batch)

    # mutations

    def _mutated(self, request: bytes) -> bytes:
        rng = self._rng
        if rng.random() < 0.5:
            return request
        changed = bytearray(request)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            # Mostly behind API key and version, or another request would be mutated than the one meant.
            self._damage(changed, 0 if rng.random() < 0.05 else 8, len(changed))
        return bytes(changed)

    def _damage(self, data: bytearray, start: int, end: int) -> None:
        rng = self._rng
        if end - start < 1:
            return
        position = rng.randrange(start, end)
        kind = rng.randrange(8)
        if kind == 0:
            data[position] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[position] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:  # a length, a count or a number where it need not be
            size = rng.choice((2, 4, 8))
            value = rng.choice(BOUNDARIES) & ((1 << 8 * size) - 1)
            data[position : position + size] = value.to_bytes(size, "big")
        elif kind == 3:  # a varint that is long, endless or too large
            data[position:position] = rng.choice((b"\xff\xff\xff\xff\x07", b"\x80" * 9 + b"\x01", b"\xff" * 10))
        elif kind == 4:
            del data[position:]
        elif kind == 5:
            del data[position : position + rng.randrange(1, 9)]
        elif kind == 6:
            data[position:position] = rng.randbytes(rng.randrange(1, 9))
        else:
            piece = data[position : position + rng.randrange(1, 40)]
            data[position:position] = piece * rng.choice((1, 2, 10))

    def _is_bearable(self, request: bytes) -> bool:
        """Whether a request, if it is still one, keeps within the topics and partitions that a test can afford."""
        if len(request) > MAX_FRAME_BYTES:
            return False
        try:
            header = decode_request_header(memoryview(request))
            if header.api_key not in _CREATORS:
                return True
            decode = codec(api(header.api_key).request, header.api_version).decode
            message = decode(memoryview(request), header.body)[0]
        except (DecodeError, ValueError):
            return True
        if isinstance(message, MetadataRequest):
            names = {topic.name for topic in message.topics or () if topic.name is not None}
        elif isinstance(message, CreateTopicsRequest):
            names = {topic.name for topic in message.topics}
            if any(max(topic.num_partitions, len(topic.assignments)) > MOST_PARTITIONS for topic in message.topics):
                return False
        else:
            assert isinstance(message, CreatePartitionsRequest)
            return all(topic.count <= MOST_PARTITIONS for topic in message.topics)
        if len(self._seen_names | names) > MOST_NAMES:
            return names <= self._seen_names
        self._seen_names |= names
        return True


_BATCH_FIELDS = (
    (0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"), (43, ">q"),
    (51, ">h"), (53, ">i"), (57, ">i"),
)  # fmt: skip


def _batches(rng: random.Random) -> Iterator[bytes]:
    """Valid batches of every codec, with and without producer, key, value, headers and time."""
    for compression in Compression:
        for count in (1, 2, 50):
            for producer_id in (-1, 5):
                builder = BatchBuilder(
                    compression,
                    producer_id=producer_id,
                    producer_epoch=0 if producer_id >= 0 else -1,
                    base_sequence=rng.choice((0, 1, 2**31 - 1)) if producer_id >= 0 else -1,
                    transactional=rng.random() < 0.1 and producer_id >= 0,
                )
                for _ in range(count):
                    builder.append(
                        rng.choice((None, b"", b"key")),
                        rng.choice((None, b"", b"value" * 20)),
                        rng.choice(((), (("h", b"x"),), (("h", None), ("", b"")))),
                        rng.choice((-1, 0, 1_700_000_000_000)),
                    )
                yield bytes(builder.build())


class _Lane:
    """One connection at a time, and what was sent on it and is not answered yet."""

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.unsent = b""
        self.received = bytearray()
        self.pending: deque[Sent] = deque()
        self.moved_at = 0.0


class Outcome(NamedTuple):
    answered: int
    closed: int
    stalled: int
    seconds: float
    sound_responses: int


class Driver:
    """Sends requests on a few connections, many in flight, and opens a new one whenever the broker closes one.

    The broker replies in order, so a reply tells that all before it were dealt with. When a connection ends, the first
    request without a reply was the last straw, and those behind it are sent again on the next.
    """

    LANES = 4
    IN_FLIGHT = 8
    STALL_SECONDS = 1.0

    def __init__(self, address: str, requests: Iterator[Sent]) -> None:
        host, port = address.rsplit(":", 1)
        self._address = (host, int(port))
        self._requests = requests
        self._again: deque[Sent] = deque()
        self._is_exhausted = False
        self._answered = self._closed = self._stalled = self._sound = 0

    def run(self) -> Outcome:
        started = time.monotonic()
        lanes = [_Lane() for _ in range(self.LANES)]
        with selectors.DefaultSelector() as selector:
            while True:
                for lane in lanes:
                    self._fill(lane, selector)
                if self._is_exhausted and not self._again and not any(lane.pending for lane in lanes):
                    break
                for ready, events in selector.select(0.1):
                    lane = ready.data
                    if events & selectors.EVENT_READ:
                        self._receive(lane, selector)
                now = time.monotonic()
                for lane in lanes:
                    if lane.pending and now - lane.moved_at > self.STALL_SECONDS:
                        self._stalled += 1  # a long poll, say; or requests that get no reply
                        self._drop(lane, selector)
            for lane in lanes:
                if lane.socket is not None:
                    lane.socket.close()
        return Outcome(self._answered, self._closed, self._stalled, time.monotonic() - started, self._sound)

    def _fill(self, lane: _Lane, selector: selectors.BaseSelector) -> None:
        while len(lane.pending) < self.IN_FLIGHT:
            sent = self._again.popleft() if self._again else next(self._requests, None)
            if sent is None:
                self._is_exhausted = True
                break
            if lane.socket is None:
                lane.socket = socket.create_connection(self._address, 10)
                lane.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                lane.socket.setblocking(False)
                selector.register(lane.socket, selectors.EVENT_READ, lane)
            if not lane.pending:
                lane.moved_at = time.monotonic()
            lane.pending.append(sent)
            lane.unsent += framed(sent.frame)
        if lane.unsent and lane.socket is not None:
            try:
                lane.unsent = lane.unsent[lane.socket.send(lane.unsent) :]
            except BlockingIOError:
                pass
            except OSError:
                self._drop(lane, selector)

    def _receive(self, lane: _Lane, selector: selectors.BaseSelector) -> None:
        assert lane.socket is not None
        try:
            data = lane.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._closed += 1
            self._drop(lane, selector)
            return
        lane.moved_at = time.monotonic()
        lane.received += data
        received = lane.received
        position = 0
        while len(received) - position >= 4:
            end = position + 4 + int.from_bytes(received[position : position + 4], "big")
            if end > len(received):
                break
            self._reply(lane, bytes(received[position + 4 : end]))
            position = end
        del received[:position]

    def _reply(self, lane: _Lane, frame: bytes) -> None:
        """Replies come in order: the request is the first with this correlation id, and those before it got none."""
        correlation_id = frame[:4]
        while lane.pending:
            sent = lane.pending.popleft()
            self._answered += 1
            if sent.frame[4:8] == correlation_id:
                if self._answered % 7 == 0:
                    self._check(sent, memoryview(frame))
                return
            assert _gets_no_reply(sent), f"{sent} was passed over by a reply to {correlation_id.hex()}"
        raise AssertionError(f"a reply with correlation id {correlation_id.hex()} that nobody asked for")

    def _check(self, sent: Sent, frame: memoryview) -> None:
        """A response must be one by its table; of a request whose key or version was mutated, that one's."""
        key, version = struct.unpack_from(">hh", sent.frame)
        called = api(key)
        if key == 18 and not 0 <= version <= called.max_version:
            version = 0
        _, position = decode_response_header(key, version, frame)
        _, end = codec(called.response, version).decode(frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes too many in the response to {sent}"
        self._sound += 1

    def _drop(self, lane: _Lane, selector: selectors.BaseSelector) -> None:
        assert lane.socket is not None
        selector.unregister(lane.socket)
        lane.socket.close()
        lane.socket = None
        lane.unsent = b""
        lane.received.clear()
        if lane.pending:
            lane.pending.popleft()
            self._answered += 1
        self._again.extend(lane.pending)
        lane.pending.clear()


def _gets_no_reply(sent: Sent) -> bool:
    if struct.unpack_from(">h", sent.frame)[0] != 0:
        return False
    try:
        header = decode_request_header(memoryview(sent.frame))
        message = codec(ProduceRequest, header.api_version).decode(memoryview(sent.frame), header.body)[0]
    except (DecodeError, ValueError):
        return False
    return bool(message.acks == 0)


def prepare(address: str) -> list[bytes]:
    """Make the topics that the requests are about; their ids."""
    topics = [
        CreatableTopic(name, 3, 1, [], [CreatableTopicConfig(*config) for config in configs.items()])
        for name, configs in TOPICS.items()
    ]
    with Wire(address) as wire:
        created = wire.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
    refused = {topic.name: topic.error_message for topic in created.topics if topic.error_code}
    assert not refused, refused
    return [topic.topic_id for topic in created.topics]


def main() -> None:
    address, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    print(Driver(address, Fuzzer(seed, prepare(address)).requests(count)).run())


if __name__ == "__main__":
    main()
