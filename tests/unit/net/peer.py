"""A server whose requests are commands to itself, and a peer that sends them: for tests of what travels between."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from barnabas.net.server import Connection, Limits, Part, Reply, Server, Slot
from barnabas.net.sockets import TcpNetwork
from barnabas.wire.frames import FrameError

HOST = "127.0.0.1"
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run(loop: str, work: Coroutine[None, None, None], seconds: float = 20) -> None:
    """Run a test on one of the loops, bounded."""

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await work

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(bounded())


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


class HandClock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


def as_reply(first: bytes, *others: Part) -> Reply:
    """A reply as the server takes it: with room for the length."""
    return [bytearray(4) + first, *others]


class Bench:
    """A server that does what its frames say, in the order in which they come.

    `echo X` replies with the frame; `defer X` and `exclusive X` take a place under that name; `wake X` replies to the
    place, then to itself; `big N` replies with N bytes; `send X` replies with the part of that name; `mute` not at all;
    `close` closes the connection.
    """

    def __init__(self, limits: Limits) -> None:
        self.clock = HandClock()
        self.network = TcpNetwork(asyncio.get_running_loop(), send_buffer_bytes=65536)
        self.server = Server(self.network, self.clock, self._serve, self._bad_frame, limits)
        self.served: list[str] = []
        self.slots: dict[str, Slot] = {}
        self.parts: dict[str, Part] = {}
        self.abandoned: list[str] = []
        self.bad_frames: list[str] = []
        self._peers: list[socket.socket] = []
        self.port = self.server.listen("PLAINTEXT", HOST, 0).port

    def _serve(self, connection: Connection, frame: memoryview) -> None:
        request = bytes(frame)
        self.served.append(request.decode())
        command, _, name = request.decode().partition(" ")
        if command in ("defer", "exclusive"):
            slot = self.slots[name] = connection.defer(exclusive=command == "exclusive")
            slot.on_abandoned = lambda: self.abandoned.append(name)
        elif command == "wake":
            self.slots[name].reply(as_reply(f"woken {name}".encode()))
            connection.reply(as_reply(request))
        elif command == "echo":
            connection.reply(as_reply(request))
        elif command == "close":
            connection.close("asked to")
        elif command == "big":
            connection.reply(as_reply(bytes(int(name))))
        elif command == "send":
            connection.reply(as_reply(b"<", self.parts[name], b">"))

    def _bad_frame(self, connection: Connection, error: FrameError) -> None:
        self.bad_frames.append(str(error))

    async def until(self, condition: Callable[[], Any]) -> None:
        while not condition():  # noqa: ASYNC110 -- what is waited for happens outside of the loop's knowledge
            await asyncio.sleep(0.002)

    async def quiet(self) -> None:
        """Let everything that is on its way arrive."""
        for _ in range(10):
            await asyncio.sleep(0.005)

    async def connect(self, receive_buffer_bytes: int = 0) -> Peer:
        peer = socket.socket()
        self._peers.append(peer)
        peer.setblocking(False)
        if receive_buffer_bytes:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        await asyncio.get_running_loop().sock_connect(peer, (HOST, self.port))
        return Peer(peer)

    @classmethod
    @asynccontextmanager
    async def start(cls, limits: Limits | None = None) -> AsyncIterator[Bench]:
        bench = cls(limits or Limits())
        bench.server.start_serving()
        try:
            yield bench
        finally:
            bench.close()

    def close(self) -> None:
        self.server.close()
        for peer in self._peers:
            peer.close()


class Peer:
    """The other end of a connection, which may behave badly."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._received = b""

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def ask(self, *payloads: str) -> None:
        await self.send(framed(*(payload.encode() for payload in payloads)))

    async def reply(self) -> bytes:
        """The next reply; an empty one cannot be told from the end of the stream, and no test sends one."""
        while len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            chunk = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 20)
            if not chunk:
                return b""
            self._received += chunk
        end = 4 + int.from_bytes(self._received[:4], "big")
        frame, self._received = self._received[4:end], self._received[end:]
        return frame

    async def replies(self, count: int) -> list[str]:
        return [(await self.reply()).decode() for _ in range(count)]

    async def is_closed(self) -> bool:
        """Wait for the end of the connection, however abrupt."""
        try:
            while await asyncio.get_running_loop().sock_recv(self.socket, 1 << 20):
                pass
        except ConnectionResetError:
            pass
        return True
