"""A blocking connection that speaks the protocol as correctly, or as wrongly, as a test wants."""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

from barnabas.wire.compiler import codec
from barnabas.wire.headers import decode_response_header, encode_request_header
from barnabas.wire.registry import api
from barnabas.wire.schema import schema_of

MAX_FRAME_BYTES = 104_857_600


def encode_request(message: Any, version: int, correlation_id: int = 0) -> bytes:
    """A request without its length."""
    header = encode_request_header(schema_of(type(message)).key, version, correlation_id, "hostile")
    return b"".join([header, *codec(type(message), version).encode(message)])


def framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


class Wire:
    """One connection; every wait is bounded."""

    def __init__(self, address: str, timeout: float = 10.0, receive_buffer_bytes: int = 0) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.socket()
        self.socket.settimeout(timeout)
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect((host, int(port)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def call(self, message: Any, version: int | None = None) -> Any:
        """Send a request and give its response."""
        called = api(schema_of(type(message)).key)
        version = called.max_version if version is None else version
        self.send(framed(encode_request(message, version)))
        frame = memoryview(self.receive())
        _, position = decode_response_header(called.key, version, frame)
        return codec(called.response, version).decode(frame, position)[0]

    def receive(self) -> bytes:
        """The next frame."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise ConnectionError(f"closed after {len(data)} of {size} bytes")
            data += chunk
        return bytes(data)

    def is_closed_by_peer(self) -> bool:
        """Wait until the broker ends the connection; what it still says before is dropped."""
        try:
            while self.socket.recv(1 << 20):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True
