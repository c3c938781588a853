"""A small client on the simulated network: one connection, requests pipelined, answers by correlation id.

`Connection.request` writes at once and returns a future, so that requests leave in the order of the calls, whatever the
order in which the loop runs its tasks. `Client` keeps a connection to a broker, and makes a new one when it broke.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from barnabas.core.seams import Network, Socket
from barnabas.wire.compiler import codec
from barnabas.wire.headers import decode_response_header, encode_request_header
from barnabas.wire.registry import Api, api
from barnabas.wire.schema import schema_of

REQUEST_TIMEOUT_S = 20.0
RECONNECT_S = 1.0

_LENGTH = struct.Struct(">i")


class Connection:
    def __init__(self, network: Network, socket: Socket) -> None:
        self.broken = False
        self._network = network
        self._socket = socket
        self._out = bytearray()
        self._in = bytearray()
        self._scratch = bytearray(16_384)
        self._last_correlation_id = 0
        self._waiting: dict[int, tuple[Api, int, asyncio.Future[Any]]] = {}
        network.on_readable(socket, self._read)

    def request(self, message: Any, version: int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.broken:
            future.set_exception(ConnectionError("the connection is broken"))
            return future
        wanted = api(schema_of(type(message)).key)
        self._last_correlation_id += 1
        self._waiting[self._last_correlation_id] = (wanted, version, future)
        header = encode_request_header(wanted.key, version, self._last_correlation_id, "simulation")
        frame = b"".join([header, *codec(type(message), version).encode(message)])
        self._out += _LENGTH.pack(len(frame)) + frame
        self._write()
        return future

    def close(self) -> None:
        if not self.broken:
            self._break(ConnectionError("closed"))

    def _write(self) -> None:
        try:
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError as error:
            self._break(error)
            return
        self._network.on_writable(self._socket, self._write if self._out else None)

    def _read(self) -> None:
        try:
            size = self._socket.recv_into(memoryview(self._scratch))
        except BlockingIOError:
            return
        except OSError as error:
            self._break(error)
            return
        if not size:
            self._break(ConnectionError("closed by the broker"))
            return
        self._in += self._scratch[:size]
        while len(self._in) >= 4 and len(self._in) >= 4 + _LENGTH.unpack_from(self._in)[0]:
            end = 4 + _LENGTH.unpack_from(self._in)[0]
            frame = memoryview(bytes(self._in[4:end]))
            del self._in[:end]
            wanted, version, future = self._waiting.pop(_LENGTH.unpack_from(frame)[0])
            _, position = decode_response_header(wanted.key, version, frame)
            response: Any = codec(wanted.response, version).decode(frame, position)[0]
            if not future.done():
                future.set_result(response)

    def _break(self, error: OSError) -> None:
        self.broken = True
        self._socket.close()
        waiting, self._waiting = self._waiting, {}
        for _, _, future in waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # whether anybody still waits for it is their affair


class Client:
    """A connection to one broker, made anew when the last one broke."""

    def __init__(self, network: Network, host: str, port: int) -> None:
        self._network = network
        self._address = (host, port)
        self._connection: Connection | None = None

    async def connect(self) -> Connection:
        """The connection; an OSError (TimeoutError included), after a pause, if there is none."""
        if self._connection is None or self._connection.broken:
            try:
                socket = await asyncio.wait_for(self._network.connect(*self._address), REQUEST_TIMEOUT_S)
            except OSError:
                await asyncio.sleep(RECONNECT_S)
                raise
            self._connection = Connection(self._network, socket)
        return self._connection

    async def request(self, message: Any, version: int, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """The response; an OSError (TimeoutError included) ends the connection."""
        connection = await self.connect()
        try:
            return await asyncio.wait_for(connection.request(message, version), timeout_s)
        except OSError:
            connection.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
