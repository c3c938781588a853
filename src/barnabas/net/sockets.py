"""The machine's own TCP sockets, behind the `Network` contract.

The sockets are driven by hand instead of through asyncio's transports: a transport owns its descriptor, and neither
uvloop's nor asyncio's lets us call `sendfile` or receive into a buffer of our choice without a copy.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from barnabas.core import logs

if TYPE_CHECKING:
    from barnabas.core.seams import File, Socket

_MSG_MORE = getattr(socket, "MSG_MORE", 0)  # Linux; elsewhere the short packet simply leaves first
_log = logs.get_logger(__name__)
_ACCEPTS_PER_WAKEUP = 128
_ACCEPT_PAUSE_SECONDS = 0.1


class TcpSocket:
    __slots__ = ("_socket", "fd", "recv_into", "send")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.fd = connected.fileno()
        self.recv_into = connected.recv_into  # the hottest calls: no frame of ours in between
        self.send = connected.send

    def send_more(self, data: bytes | bytearray | memoryview) -> int:
        return self._socket.send(data, _MSG_MORE)

    if hasattr(os, "sendfile"):

        def sendfile(self, file: File, position: int, size: int) -> int:
            return os.sendfile(self.fd, file.fileno(), position, size)

    else:

        def sendfile(self, file: File, position: int, size: int) -> int:
            return self._socket.send(file.read(position, min(size, 1 << 18)))

    def close(self) -> None:
        self._socket.close()


class TcpListener:
    """A listening socket whose connections go to a call-back."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, listening: socket.socket, on_accept: Callable[[Socket, str], None]
    ) -> None:
        self._loop = loop
        self._socket = listening
        self._on_accept = on_accept
        self._closed = False
        self.host, self.port = listening.getsockname()[:2]
        loop.add_reader(listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_WAKEUP):
            try:
                connected, address = self._socket.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # Out of descriptors: the backlog keeps the peer waiting; trying again at once would spin.
                _log.client_mistake("connection not accepted; pausing", port=self.port, problem=str(error))
                self._loop.remove_reader(self._socket.fileno())
                self._loop.call_later(_ACCEPT_PAUSE_SECONDS, self._resume)
                return
            connected.setblocking(False)
            try:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:  # macOS, where the peer is gone already
                connected.close()
                continue
            self._on_accept(TcpSocket(connected), f"{address[0]}:{address[1]}")

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()


class TcpNetwork:
    """Sockets on one event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> None:
        self._loop = loop
        self._buffer_options = [
            (option, size)
            for option, size in ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))
            if size > 0
        ]

    def listen(self, host: str, port: int, on_accept: Callable[[Socket, str], None]) -> TcpListener:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for option, size in self._buffer_options:  # accepted sockets inherit these
                listening.setsockopt(socket.SOL_SOCKET, option, size)
            listening.bind(address)
            listening.listen(4096)
        except OSError:
            listening.close()
            raise
        return TcpListener(self._loop, listening, on_accept)

    async def connect(self, host: str, port: int) -> TcpSocket:
        problem: OSError | None = None
        for family, kind, protocol, _, address in await self._resolve(host, port):
            connecting = socket.socket(family, kind, protocol)
            try:
                connecting.setblocking(False)
                connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for option, size in self._buffer_options:
                    connecting.setsockopt(socket.SOL_SOCKET, option, size)
                await self._loop.sock_connect(connecting, address)
            except OSError as error:
                connecting.close()
                problem = error
            except BaseException:
                connecting.close()
                raise
            else:
                return TcpSocket(connecting)
        raise problem or OSError(f"host {host!r} has no address")

    async def _resolve(self, host: str, port: int) -> list[tuple[Any, ...]]:
        """A numeric address needs no name server, and so none of the threads in which asyncio asks one."""
        with suppress(socket.gaierror):
            numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric))
        return list(await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))

    def on_readable(self, socket: Socket, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_reader(_fd(socket))
        else:
            self._loop.add_reader(_fd(socket), callback)

    def on_writable(self, socket: Socket, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_writer(_fd(socket))
        else:
            self._loop.add_writer(_fd(socket), callback)

    def soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)


def _fd(socket: Socket) -> int:
    assert isinstance(socket, TcpSocket), "a network is asked only about sockets of its own"
    return socket.fd
