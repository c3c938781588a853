from __future__ import annotations

import io
import struct

import kio.schema.request_header.v1.header
import kio.schema.request_header.v2.header
import pytest
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from barnabas.wire.headers import (
    RequestHeader,
    UnknownApi,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    response_head,
)
from barnabas.wire.primitives import DecodeError
from barnabas.wire.registry import API_KEYS, Api

PRODUCE, SASL_HANDSHAKE, API_VERSIONS = 0, 17, 18


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ü" * 100])
@pytest.mark.parametrize("api", API_KEYS.values(), ids=lambda api: api.stem)
def test_request_headers_are_those_of_kio_and_come_back(api: Api, client_id: str | None) -> None:
    for version in range(api.min_version, api.max_version + 1):
        flexible = version >= api.flexible_since
        kio_headers = kio.schema.request_header
        header = (kio_headers.v2 if flexible else kio_headers.v1).header.RequestHeader(
            request_api_key=i16(api.key), request_api_version=i16(version), correlation_id=i32(-7), client_id=client_id
        )
        theirs = io.BytesIO()
        entity_writer(type(header))(theirs, header)
        ours = encode_request_header(api.key, version, -7, client_id)
        assert ours == theirs.getvalue()
        assert decode_request_header(memoryview(ours + b"body")) == (api.key, version, -7, client_id, len(ours))


def test_unknown_tagged_fields_in_a_request_header_are_skipped() -> None:
    wire = encode_request_header(PRODUCE, 9, 1, "me")[:-1] + b"\x02\x00\x03abc\x80\x08\x00"
    assert decode_request_header(memoryview(wire + b"body")) == RequestHeader(PRODUCE, 9, 1, "me", len(wire))


@pytest.mark.parametrize("version", [3, 9])
def test_every_truncation_of_a_request_header_is_a_decode_error(version: int) -> None:
    wire = memoryview(encode_request_header(PRODUCE, version, 1, "x" * 200))
    for size in range(len(wire)):
        with pytest.raises(DecodeError):
            decode_request_header(wire[:size])


@pytest.mark.parametrize(
    "client_id", [struct.pack(">h", -2), struct.pack(">h", -32768), b"\x00\x02\xff\xfe", b"\x00\x80" + b"\xff" * 128]
)
def test_a_client_id_that_is_no_string_is_a_decode_error(client_id: bytes) -> None:
    with pytest.raises(DecodeError, match="client id"):
        decode_request_header(memoryview(struct.pack(">hhi", PRODUCE, 3, 1) + client_id))


@pytest.mark.parametrize("key", [-1, 4, 32767])
def test_an_unknown_api_key_is_reported_with_what_the_sender_needs(key: int) -> None:
    with pytest.raises(UnknownApi) as caught:
        decode_request_header(memoryview(struct.pack(">hhih", key, 3, 99, -1)))
    assert (caught.value.api_key, caught.value.api_version, caught.value.correlation_id) == (key, 3, 99)


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_the_header_of_an_api_versions_request_from_the_future_is_read(version: int) -> None:
    wire = struct.pack(">hhih2sB", API_VERSIONS, version, 42, 2, b"me", 0)
    assert decode_request_header(memoryview(wire + b"who knows")) == (API_VERSIONS, version, 42, "me", len(wire))


@pytest.mark.parametrize("api", API_KEYS.values(), ids=lambda api: api.stem)
def test_response_headers_have_tagged_fields_where_the_api_is_flexible(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        room, wire = (head := response_head(api.key, version)(77))[:4], head[4:]
        flexible = version >= api.flexible_since and api.key != API_VERSIONS
        assert (room, wire) == (bytes(4), struct.pack(">i", 77) + b"\0" * flexible)
        assert decode_response_header(api.key, version, memoryview(wire + b"body")) == (77, len(wire))


def test_unknown_tagged_fields_in_a_response_header_are_skipped() -> None:
    assert decode_response_header(PRODUCE, 9, memoryview(struct.pack(">i", 5) + b"\x01\x07\x02hi" + b"body")) == (5, 9)


@pytest.mark.parametrize("wire", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1", b"\0\0\0\1\1\0\5abc"])
def test_a_truncated_response_header_is_a_decode_error(wire: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_response_header(PRODUCE, 9, memoryview(wire))
