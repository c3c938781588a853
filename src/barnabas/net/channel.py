"""The client's end of a connection: requests out, several in flight, each answered by its correlation id."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from barnabas.core.errors import ErrorCode
from barnabas.net.probe import protocol_of
from barnabas.wire.compiler import codec
from barnabas.wire.frames import FrameError, FrameSplitter
from barnabas.wire.headers import decode_response_header, encode_request_header
from barnabas.wire.messages.k18_api_versions import ApiVersionsRequest
from barnabas.wire.primitives import DecodeError
from barnabas.wire.registry import Api, api
from barnabas.wire.schema import schema_of

if TYPE_CHECKING:
    from barnabas.core.seams import Network, Socket

_API_VERSIONS = 18
_LENGTH = struct.Struct(">i")
_ERROR = struct.Struct(">h")
_SCRATCH_BYTES = 64 * 1024
_MAX_REPLY_BYTES = 2**31 - 1
_TRUSTED_BYTES = 64 << 20


class ChannelClosed(ConnectionError):
    """The connection ended before the reply came; whether the request was carried out is not known."""


class ClosedUnheard(ChannelClosed):
    """The connection ended before the first reply, as it does where TLS is expected."""


class NotKafka(ChannelClosed):
    """The peer answered in another protocol."""


class UnsupportedByPeer(Exception):
    """The peer serves no version of an API that we can speak."""


def _api_of(message: Any) -> Api:
    return api(schema_of(type(message)).key)


class Channel:
    """One connection to a broker at `address`. `versions` holds, per API key, what the broker serves."""

    def __init__(self, network: Network, socket: Socket, address: str, client_id: str | None) -> None:
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        self.closed = False
        self._network = network
        self._socket = socket
        self._client_id = client_id
        self._splitter = FrameSplitter(memoryview(bytearray(_SCRATCH_BYTES)), _MAX_REPLY_BYTES, _TRUSTED_BYTES)
        self._correlation_id = 0
        self._waiting: dict[int, tuple[Api, int, asyncio.Future[Any]]] = {}
        self._out: deque[memoryview] = deque()
        self._writing = False
        self._drained: asyncio.Event = asyncio.Event()
        self._drained.set()
        network.on_readable(socket, self._readable)

    @classmethod
    async def open(cls, network: Network, host: str, port: int, client_id: str | None = "barnabas") -> Channel:
        """Connect and learn which versions the broker serves."""
        channel = cls(network, await network.connect(host, port), f"{host}:{port}", client_id)
        try:
            await channel._negotiate()
        except BaseException:
            channel.close()
            raise
        return channel

    async def _negotiate(self) -> None:
        from barnabas import __version__

        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        version = api(_API_VERSIONS).max_version
        response = await self._call(request, version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = next((k.max_version for k in response.api_keys if k.api_key == _API_VERSIONS), 0)
            response = await self._call(request, min(version, offered))
        self.versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}

    def version_for(self, wanted: Api, highest: int | None = None) -> int:
        """The newest version of an API that both ends speak."""
        offered = self.versions.get(wanted.key)
        if offered is None:
            raise UnsupportedByPeer(f"broker {self.address} does not serve {wanted.name}")
        version = min(offered[1], wanted.max_version if highest is None else highest)
        if version < max(offered[0], wanted.min_version):
            raise UnsupportedByPeer(
                f"broker {self.address} serves {wanted.name} {offered[0]}-{offered[1]}; "
                f"this client speaks {wanted.min_version}-{wanted.max_version}"
            )
        return version

    async def request(self, message: Any, version: int | None = None, *, highest: int | None = None) -> Any:
        """Send a request and wait for its response. Without `version` it is the newest that both ends speak."""
        return await self._call(message, self.version_for(_api_of(message), highest) if version is None else version)

    def begin(self, message: Any, *, highest: int | None = None) -> asyncio.Future[Any]:
        """Send a request in the newest version that both ends speak; its response will be in the future."""
        return self._begin(message, self.version_for(_api_of(message), highest))

    async def send(self, message: Any, version: int | None = None) -> None:
        """Send a request that gets no response (Produce with acks=0)."""
        wanted = _api_of(message)
        self._write(self._encode(wanted, message, self.version_for(wanted) if version is None else version))
        await self._drained.wait()
        self._check_open()

    async def _call(self, message: Any, version: int) -> Any:
        future = self._begin(message, version)
        correlation_id = self._correlation_id
        try:
            return await future
        finally:
            self._waiting.pop(correlation_id, None)  # whoever does not wait any more must not be failed

    def _begin(self, message: Any, version: int) -> asyncio.Future[Any]:
        wanted = _api_of(message)
        parts = self._encode(wanted, message, version)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._correlation_id] = (wanted, version, future)
        self._write(parts)
        return future

    def _encode(self, wanted: Api, message: Any, version: int) -> list[Any]:
        self._check_open()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(wanted.key, version, self._correlation_id, self._client_id)
        parts = [header, *codec(type(message), version).encode(message)]
        return [_LENGTH.pack(sum(len(part) for part in parts)), *parts]

    def _check_open(self) -> None:
        if self.closed:
            raise ChannelClosed(f"the connection to {self.address} is closed")

    def _write(self, parts: list[Any]) -> None:
        large = max(len(part) for part in parts) > _SCRATCH_BYTES
        self._out.extend(memoryview(part) for part in (parts if large else [b"".join(parts)]))
        self._flush()

    def _flush(self) -> None:
        out = self._out
        try:
            while out:
                sent = self._socket.send_more(out[0]) if len(out) > 1 else self._socket.send(out[0])
                if sent == len(out[0]):
                    out.popleft()
                else:
                    out[0] = out[0][sent:]
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(ChannelClosed(f"the connection to {self.address} broke: {error}"))
            return
        if bool(out) != self._writing:
            self._writing = bool(out)
            self._network.on_writable(self._socket, self._flush if out else None)
        if out:
            self._drained.clear()
        else:
            self._drained.set()

    def _readable(self) -> None:
        # uvloop tells of a reset once, and bytes that came before it hide it: whoever still waits must learn of it.
        while self._receive() and self._waiting:
            pass

    def _receive(self) -> bool:
        """Take what there is; whether there may be more."""
        try:
            count = self._socket.recv_into(self._splitter.writable())
        except BlockingIOError:
            return False
        except OSError as error:
            self._fail(self._ended(f"the connection to {self.address} broke: {error}"))
            return False
        if not count:
            self._fail(self._ended(f"{self.address} closed the connection"))
            return False
        in_scratch = not self._splitter.held_bytes
        if in_scratch and not self.versions and (other := protocol_of(bytes(self._splitter.writable()[:4]))):
            self._fail(NotKafka(f"{self.address} speaks {other}, not Kafka's protocol"))
            return False
        try:
            for frame in self._splitter.received(count):
                self._reply(memoryview(bytes(frame)) if in_scratch else frame)
        except (FrameError, DecodeError) as error:
            kind = ChannelClosed if self.versions else NotKafka
            self._fail(kind(f"{self.address} does not speak Kafka's protocol: {error}"))
            return False
        return True

    def _ended(self, how: str) -> ChannelClosed:
        return ChannelClosed(how) if self.versions else ClosedUnheard(f"{how} before its first answer")

    def _reply(self, frame: memoryview) -> None:
        if len(frame) < 6:
            raise DecodeError(f"a reply of {len(frame)} bytes")
        correlation_id = _LENGTH.unpack_from(frame)[0]
        waiting = self._waiting.get(correlation_id)
        if waiting is None:
            return
        called, version, future = waiting
        # A broker that does not know our ApiVersions version answers in version 0 (KIP-511).
        if called.key == _API_VERSIONS and _ERROR.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        _, position = decode_response_header(called.key, version, frame)
        response, _ = codec(called.response, version).decode(frame, position)
        del self._waiting[correlation_id]  # not before: a reply that makes no sense is its caller's error, too
        if not future.done():  # it may have been cancelled
            future.set_result(response)

    def _fail(self, error: Exception) -> None:
        waiting = list(self._waiting.values())
        self._waiting.clear()
        self.close()
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(error)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._network.on_readable(self._socket, None)
        if self._writing:
            self._network.on_writable(self._socket, None)
        self._socket.close()
        self._out.clear()
        self._drained.set()
        self._fail(ChannelClosed(f"the connection to {self.address} was closed"))
