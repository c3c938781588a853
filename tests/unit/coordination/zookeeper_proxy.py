"""A way to ZooKeeper that can be cut, blocked, or lose an answer, at the moment that a test chooses."""

from __future__ import annotations

import asyncio
import enum
from contextlib import suppress

from tests.peers import HOST


class Road(enum.Enum):
    """What becomes of the bytes."""

    OPEN = enum.auto()
    BLOCKED = enum.auto()
    """Nothing passes in either direction, and nothing breaks."""
    ANSWERS_LOST = enum.auto()
    """Requests arrive; the connection breaks with the next answer."""
    REQUESTS_LOST = enum.auto()
    """The connection breaks with the next request."""
    ANSWERS_GARBLED = enum.auto()
    """The next answer, and only that, makes no sense."""


class Proxy:
    def __init__(self, target: str) -> None:
        self._target = target
        self._open = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0
        self.change(Road.OPEN)

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.change(Road.OPEN)
        self.cut()
        await self._server.wait_closed()

    def change(self, road: Road) -> None:
        self.road = road
        (self._open.clear if road is Road.BLOCKED else self._open.set)()

    def cut(self) -> None:
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        host, port = self._target.split(":")
        server_reader, server_writer = await asyncio.open_connection(host, int(port))
        pair = {writer, server_writer}
        self._writers |= pair
        forth = asyncio.create_task(self._carry(reader, server_writer, Road.REQUESTS_LOST))
        back = asyncio.create_task(self._carry(server_reader, writer, Road.ANSWERS_LOST))
        await asyncio.wait((forth, back), return_when=asyncio.FIRST_COMPLETED)
        for task in (forth, back):
            task.cancel()
        for end in pair:
            end.close()
            with suppress(OSError):
                await end.wait_closed()
        self._writers -= pair

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, breaks_on: Road) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._open.wait()
                if self.road is breaks_on:
                    return
                if self.road is Road.ANSWERS_GARBLED and breaks_on is Road.ANSWERS_LOST:
                    data = data[:4] + b"\x7f" + data[5:]  # the highest byte of the answer's number
                    self.change(Road.OPEN)
                writer.write(data)
                await writer.drain()
