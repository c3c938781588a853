"""What precedes every request and response: correlation id and, in requests, API key, version and client id.

    request   api_key i16 | api_version i16 | correlation_id i32 | client_id nullable string | tagged fields if flexible
    response  correlation_id i32 | tagged fields if flexible

Whether a header is flexible follows from the API and its version, with one exception: the response to ApiVersions never
is, because a client that has yet to learn the broker's versions must be able to read it (KIP-511). The client id keeps
its two-byte length in flexible headers, too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from barnabas.wire.primitives import DecodeError, decode_uvarint, skip_tagged
from barnabas.wire.registry import API_KEYS

API_VERSIONS = 18

_REQUEST = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")
_FRAMED_RESPONSE = struct.Struct(">4xi")
_FRAMED_FLEXIBLE_RESPONSE = struct.Struct(">4xix")  # no tagged field is known for responses: a zero counts them
_FLEXIBLE_SINCE = {api.key: api.flexible_since for api in API_KEYS.values()}

_read_request = _REQUEST.unpack_from


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int
    """The position at which the body begins."""


_make_header = partial(tuple.__new__, RequestHeader)  # a named tuple's own constructor costs three times as much


class UnknownApi(DecodeError):
    """A request whose API key has no table; the sender can still be told which request it was."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"API key {api_key} (version {api_version}, correlation id {correlation_id}) is unknown")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


def decode_request_header(frame: memoryview) -> RequestHeader:
    """The header of a request. The version is not judged: it may be one that no table has."""
    try:
        api_key, api_version, correlation_id, size = _read_request(frame)
        flexible_since = _FLEXIBLE_SINCE.get(api_key)
        if flexible_since is None:
            raise UnknownApi(api_key, api_version, correlation_id)
        position = 10 + size
        if size >= 0:
            client_id = str(frame[10:position], "utf-8")
        elif size == -1:
            position, client_id = 10, None
        else:
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
    return _make_header((api_key, api_version, correlation_id, client_id, position))


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    name = b"" if client_id is None else client_id.encode()
    head = _REQUEST.pack(api_key, api_version, correlation_id, -1 if client_id is None else len(name))
    return head + name + b"\0" if api_version >= _FLEXIBLE_SINCE[api_key] else head + name


def response_head(api_key: int, api_version: int) -> Callable[[int], bytes]:
    """What makes the head of a response's frame of its correlation id: room for the length, then the header."""
    flexible = api_version >= _FLEXIBLE_SINCE[api_key] and api_key != API_VERSIONS
    return (_FRAMED_FLEXIBLE_RESPONSE if flexible else _FRAMED_RESPONSE).pack


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
