"""Too many connections, and connections that want too much."""

from __future__ import annotations

import resource
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from barnabas.core.errors import ErrorCode
from barnabas.records.builder import BatchBuilder
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.k18_api_versions import ApiVersionsRequest
from tests.hostile.victim import MIB, Victim
from tests.hostile.wire import Wire, encode_request, framed

QUESTION = framed(encode_request(ApiVersionsRequest("x", "1"), 3))
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_SOURCES = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4") if sys.platform == "linux" else ("127.0.0.1",)
"""Where connections come from: the ports of one address last for half a minute. Other systems have one on loopback."""
_STAY_SECONDS = 0.2


@contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    """Let this process, and the broker that it starts, hold `count` connections each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise RuntimeError(f"a process may open {hard} files here, {count} are needed: raise the limit (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connected(address: str, source: str = "") -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 20, (source, 0) if source else None)


@contextmanager
def crowd(victim: Victim, count: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing unless told to."""
    with ExitStack() as sockets:
        yield [sockets.enter_context(connected(victim.address)) for _ in range(count)]


def ask(one: socket.socket) -> None:
    """See that a connection works."""
    one.sendall(QUESTION)
    assert len(one.recv(4096)) > 4


def storm(victim: Victim, per_second: int, seconds: float) -> float:
    """So many new connections every second: one asks and is answered, one breaks off in the middle, one says nothing.

    Half of them end with a reset. How many there really were a second: a machine that is busy makes fewer.
    """
    total, answered = int(per_second * seconds), 0
    began = time.monotonic()
    present: deque[tuple[float, int, socket.socket]] = deque()
    for number in range(total):
        one = connected(victim.address, _SOURCES[number % len(_SOURCES)])
        one.sendall((QUESTION, QUESTION[:7], b"")[number % 3])
        present.append((time.monotonic() + _STAY_SECONDS, number, one))
        while present and present[0][0] < time.monotonic():
            answered += _leave(*present.popleft()[1:])
        time.sleep(max(0.0, began + (number + 1) / per_second - time.monotonic()))
    took = time.monotonic() - began
    while present:
        answered += _leave(*present.popleft()[1:])
    asked = (total + 2) // 3
    assert answered == asked, f"{answered} of {asked} questions were answered"
    return total / took


def _leave(number: int, one: socket.socket) -> bool:
    with one:
        is_answered = number % 3 == 0 and len(one.recv(4096)) > 4
        if number % 2:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    return is_answered


def announce(sockets: list[socket.socket], size: int) -> None:
    """Each says that a frame of `size` is coming."""
    for one in sockets:
        one.sendall(struct.pack(">i", size) + b"a few")


def send_drops(sockets: list[socket.socket], seconds: float) -> None:
    """A few bytes more from each, twice a second."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for one in sockets:
            one.sendall(b"bytes more")
        time.sleep(0.5)


def count_closed(sockets: list[socket.socket]) -> int:
    """How many of them the broker has ended."""
    closed = 0
    for one in sockets:
        try:
            closed += not one.recv(1)
        except ConnectionError:
            closed += 1
    return closed


def never_read(victim: Victim, topic: str, readers: int, questioners: int, seconds: float) -> None:
    """Readers ask for a whole topic, two hundred times; questioners ask 5000 small questions; no answer is taken."""
    fetches = b"".join(fetch(topic, number) for number in range(200))
    questions = QUESTION * 5000
    with ExitStack() as wires:
        for requests in (*[fetches] * readers, *[questions] * questioners):
            wire = wires.enter_context(victim.connect(timeout=5, receive_buffer_bytes=4096))
            wire.socket.setblocking(False)
            with suppress(BlockingIOError):
                wire.socket.send(requests)
        time.sleep(seconds)


def produce(wire: Wire, topic: str, batch: bytes) -> int:
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
    response = wire.call(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=data), 12)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def megabyte() -> bytes:
    """A batch that is just about a mebibyte."""
    builder = BatchBuilder()
    builder.append(None, bytes(MIB - 1000))
    return bytes(builder.build())


def fill(victim: Victim, topic: str, mib: int) -> None:
    with victim.connect() as wire:
        for _ in range(mib):
            assert produce(wire, topic, megabyte()) == ErrorCode.NONE


def fetch(topic: str, correlation_id: int) -> bytes:
    wanted = [FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=2**31 - 1)])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=2**31 - 1, session_epoch=-1, topics=wanted)
    return framed(encode_request(request, 12, correlation_id))
