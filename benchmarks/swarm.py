"""Many clients in one process that cost next to nothing: each is a generator that yields requests and is sent answers.

One thread, one `epoll`, one request in flight on every connection. A client in asyncio's streams takes more time for a
request than a broker does, and would measure itself.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Generator, Iterable
from typing import Any

from barnabas.wire.compiler import Decode, Encode, codec
from barnabas.wire.headers import encode_request_header

Script = Generator[bytes, bytes, None]
"""What one client does: it yields framed requests, and gets the frames of the answers."""

_CORRELATION_ID = 1
_ANSWER_BODY = 8  # after the length and the correlation id
_PATIENCE_SECONDS = 20


class Swarm:
    """Connections to one broker, on which scripts are run together."""

    def __init__(self, address: str, count: int) -> None:
        host, port = address.rsplit(":", 1)
        self._streams = []
        for _ in range(count):
            stream = socket.create_connection((host, int(port)), 10)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.setblocking(False)
            self._streams.append(stream)

    def run(self, scripts: Iterable[Script]) -> None:
        """Run one script on every connection, all to their ends."""
        poll = select.epoll()
        busy: dict[int, tuple[socket.socket, Script]] = {}
        partial: dict[int, bytes] = {}
        for stream, script in zip(self._streams, scripts, strict=True):
            poll.register(stream, select.EPOLLIN)
            busy[stream.fileno()] = (stream, script)
            stream.send(next(script))
        while busy:
            ready = poll.poll(_PATIENCE_SECONDS)
            if not ready:
                raise TimeoutError(f"{len(busy)} clients got no answer for {_PATIENCE_SECONDS} s")
            for fd, _ in ready:
                stream, script = busy[fd]
                received = stream.recv(65536)
                if not received:
                    raise ConnectionError("the broker closed a connection")
                answer = partial.pop(fd, b"") + received
                if len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
                    partial[fd] = answer
                    continue
                try:
                    stream.send(script.send(answer))
                except StopIteration:
                    poll.unregister(fd)
                    del busy[fd]
        poll.close()

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


def encoder(cls: type, key: int, version: int) -> Callable[[Any], bytes]:
    """What makes a framed request of a message; the version's header must have no tagged fields."""
    header = encode_request_header(key, version, _CORRELATION_ID, "bench")
    encode: Encode[Any] = codec(cls, version).encode

    def request(message: Any) -> bytes:
        body = b"".join(encode(message, header))
        return len(body).to_bytes(4, "big") + body

    return request


def decoder(cls: type, version: int) -> Callable[[bytes], Any]:
    """What makes a message of an answer."""
    decode: Decode[Any] = codec(cls, version).decode
    return lambda answer: decode(memoryview(answer), _ANSWER_BODY)[0]
