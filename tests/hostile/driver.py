"""Sends fuzzed requests to a broker, which owes each a sound reply in its turn, or the end of its connection."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from barnabas.wire.compiler import codec
from barnabas.wire.headers import API_VERSIONS, decode_request_header, decode_response_header
from barnabas.wire.messages.k00_produce import ProduceRequest
from barnabas.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.primitives import DecodeError
from barnabas.wire.registry import api
from tests.hostile.fuzzer import Sent
from tests.hostile.values import TOPICS
from tests.hostile.wire import Wire

LANES = 4
IN_FLIGHT = 4
STALL_SECONDS = 1.0
CHECKED = 7  # one reply in so many is decoded
PROGRESS_SECONDS = 1.0
FRAMES_BETWEEN_RESTS = 20_000


class Outcome(NamedTuple):
    """Requests that were dealt with; connections that the broker closed, and that we gave up; replies found sound."""

    answered: int
    closed: int
    stalled: Mapping[str, int]
    """By the API of the request that was waited for in vain."""
    sound_responses: int
    seconds: float


class _Lane:
    """One connection at a time, and what was sent on it and is not answered yet."""

    __slots__ = ("is_ending", "last", "moved_at", "pending", "received", "socket", "unsent")

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.unsent = b""
        self.received = bytearray()
        self.pending: deque[Sent] = deque()
        self.last: Sent | None = None  # is to be sent when nothing is pending, and nothing after it
        self.is_ending = False  # it was sent
        self.moved_at = 0.0


class Driver:
    """Sends requests on several connections, some in flight, and opens a new one whenever the broker closes one.

    The broker replies in order, so a reply tells that all before it were dealt with. When a connection ends, the first
    request without a reply was the last straw, and those behind it are sent again on the next.

    Behind a misframed request the broker could not tell where the next begins, and may wait for bytes that never come.
    So it is sent alone, and then we end our side, whereupon the broker must end its own.
    """

    def __init__(
        self,
        address: str,
        requests: Iterator[Sent],
        on_progress: Callable[[Outcome], None] = lambda _: None,
        rest: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_progress` is called about once a second, `rest` now and then when nothing is under way."""
        host, port = address.rsplit(":", 1)
        self._address = (host, int(port))
        self._requests = requests
        self._on_progress = on_progress
        self._rest = rest
        self._rests_at = FRAMES_BETWEEN_RESTS
        self._again: deque[Sent] = deque()
        self._is_exhausted = False
        self._answered = self._closed = self._sound = 0
        self._stalled: Counter[str] = Counter()
        self._began = 0.0

    def run(self) -> Outcome:
        self._began = told = time.monotonic()
        lanes = [_Lane() for _ in range(LANES)]
        with selectors.DefaultSelector() as selector:
            while True:
                for lane in lanes:
                    self._fill(lane, selector)
                if self._is_exhausted and not self._again and not any(lane.pending or lane.last for lane in lanes):
                    break
                if self._answered >= self._rests_at and not any(lane.pending for lane in lanes):
                    self._rest()
                    self._rests_at = self._answered + FRAMES_BETWEEN_RESTS
                    continue
                for ready, _ in selector.select(0.1):
                    self._receive(ready.data, selector)
                now = time.monotonic()
                for lane in lanes:
                    if lane.pending and now - lane.moved_at > STALL_SECONDS:
                        self._stalled[api(lane.pending[0].key).name] += 1
                        self._drop(lane, selector)
                if now - told > PROGRESS_SECONDS:
                    self._on_progress(self._outcome())
                    told = now
            for lane in lanes:
                if lane.socket is not None:
                    lane.socket.close()
        return self._outcome()

    def _outcome(self) -> Outcome:
        seconds = time.monotonic() - self._began
        return Outcome(self._answered, self._closed, dict(self._stalled), self._sound, seconds)

    def _fill(self, lane: _Lane, selector: selectors.BaseSelector) -> None:
        if lane.is_ending and not lane.pending:
            self._drop(lane, selector)
        fresh = self._take(lane)
        if fresh:
            if lane.socket is None:
                self._connect(lane, selector)
            if not lane.pending:
                lane.moved_at = time.monotonic()
            lane.pending.extend(fresh)
            lane.unsent += b"".join([struct.pack(">i", sent.announced) + sent.frame for sent in fresh])
        if lane.unsent and lane.socket is not None:
            try:
                lane.unsent = lane.unsent[lane.socket.send(lane.unsent) :]
                if lane.is_ending and not lane.unsent:
                    lane.socket.shutdown(socket.SHUT_WR)
            except BlockingIOError:
                pass
            except OSError:
                self._drop(lane, selector)

    def _take(self, lane: _Lane) -> list[Sent]:
        """What may be sent on a lane now."""
        fresh: list[Sent] = []
        if self._answered >= self._rests_at:
            return fresh
        while len(lane.pending) + len(fresh) < IN_FLIGHT and not lane.last and not lane.is_ending:
            sent = self._again.popleft() if self._again else next(self._requests, None)
            if sent is None:
                self._is_exhausted = True
                break
            if sent.is_misframed:
                lane.last = sent
            else:
                fresh.append(sent)
        if lane.last and not fresh and all(map(_gets_no_reply, lane.pending)):
            self._answered += len(lane.pending)
            lane.pending.clear()
            fresh.append(lane.last)
            lane.last, lane.is_ending = None, True
        return fresh

    def _connect(self, lane: _Lane, selector: selectors.BaseSelector) -> None:
        lane.socket = socket.create_connection(self._address, 10)
        lane.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lane.socket.setblocking(False)
        selector.register(lane.socket, selectors.EVENT_READ, lane)

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
        received = lane.received
        received += data
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
                if self._answered % CHECKED == 0:
                    self._check(sent, memoryview(frame))
                return
            assert _gets_no_reply(sent), f"{sent} was passed over by a reply to {correlation_id.hex()}"
        raise AssertionError(f"a reply with correlation id {correlation_id.hex()} that nobody asked for")

    def _check(self, sent: Sent, frame: memoryview) -> None:
        """A response must be one by its table; of a request whose key or version was mutated, that one's."""
        key, version = struct.unpack_from(">hh", sent.frame)
        called = api(key)
        if key == API_VERSIONS and not 0 <= version <= called.max_version:
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
        lane.is_ending = False
        if lane.pending:
            lane.pending.popleft()
            self._answered += 1
        self._again.extend(lane.pending)
        lane.pending.clear()


def _gets_no_reply(sent: Sent) -> bool:
    """Whether it is a Produce with acks=0."""
    if sent.frame[:2] != b"\0\0":  # its API key, of which damage may have left less
        return False
    try:
        header = decode_request_header(memoryview(sent.frame))
        message = codec(ProduceRequest, header.api_version).decode(memoryview(sent.frame), header.body)[0]
    except (DecodeError, ValueError):
        return False
    return bool(message.acks == 0)


def make_topics(address: str) -> list[bytes]:
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
