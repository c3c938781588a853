"""What precedes every request and response: correlation id and, in requests, API key, version and client id.

    request   api_key i16 | api_version i16 | correlation_id i32 | client_id nullable string | tagged fields if flexible
    response  correlation_id i32 | tagged fields if flexible

Whether a header is flexible follows from the API and its version, with one exception: the response to ApiVersions never
is, because a client that has yet to learn the broker's versions must be able to read it (KIP-511). The client id keeps
its two-byte length in flexible headers, too.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.wire.primitives import SHORT_STRING, DecodeError, decode_uvarint, skip_tagged
from barnabas.wire.registry import API_KEYS

API_VERSIONS = 18

_REQUEST = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")
_FLEXIBLE_RESPONSE = struct.Struct(">iB")
_FLEXIBLE_SINCE = {api.key: api.flexible_since for api in API_KEYS.values()}

_read_request = _REQUEST.unpack_from


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


class UnknownApi(DecodeError):
    """A request whose API key has no table; the sender can still be told which request it was."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"API key {api_key} (version {api_version}, correlation id {correlation_id}) is unknown")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header and the position of the body. The version is not judged: it may be one that no table has."""
    try:
        api_key, api_version, correlation_id, size = _read_request(frame)
        flexible_since = _FLEXIBLE_SINCE.get(api_key)
        if flexible_since is None:
            raise UnknownApi(api_key, api_version, correlation_id)
        position = 10
        client_id = None
        if 0 <= size < 128:
            client_id = SHORT_STRING[size](frame, 10)[0].decode()
            position = 10 + size
        elif size > 0:
            position = 10 + size
            client_id = frame[10:position].tobytes().decode()
        elif size != -1:
            raise DecodeError(f"request header has a client id of length {size}")
        if api_version >= flexible_since:
            count = frame[position]
            position += 1
            if count:
                count, position = decode_uvarint(frame, position - 1)
                position = skip_tagged(frame, position, count)
    except (struct.error, IndexError) as error:
        raise DecodeError(f"request header is cut short: the frame has {len(frame)} bytes") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"request header has a client id that is not UTF-8: {error}") from error
    if position > len(frame):
        raise DecodeError(f"request header is cut short: it needs {position} bytes, the frame has {len(frame)}")
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    name = b"" if client_id is None else client_id.encode()
    head = _REQUEST.pack(api_key, api_version, correlation_id, -1 if client_id is None else len(name))
    return head + name + b"\0" if api_version >= _FLEXIBLE_SINCE[api_key] else head + name


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    if api_version >= _FLEXIBLE_SINCE[api_key] and api_key != API_VERSIONS:
        return _FLEXIBLE_RESPONSE.pack(correlation_id, 0)
    return _CORRELATION_ID.pack(correlation_id)


def decode_response_header(api_key: int, api_version: int, frame: memoryview) -> tuple[int, int]:
    """The correlation id and the position of the body."""
    if len(frame) < 4:
        raise DecodeError(f"response header is cut short: the frame has {len(frame)} bytes")
    correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
    if api_version < _FLEXIBLE_SINCE[api_key] or api_key == API_VERSIONS:
        return correlation_id, 4
    count, position = decode_uvarint(frame, 4)
    position = skip_tagged(frame, position, count)
    if position > len(frame):
        raise DecodeError(f"response header is cut short: it needs {position} bytes, the frame has {len(frame)}")
    return correlation_id, position
