"""Whatever the bytes, decoding gives a message or a DecodeError: never another error, never a hang."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.wire.compiler import codec
from barnabas.wire.primitives import DecodeError, encode_uvarint
from barnabas.wire.schema import Field, Kind, string, table_of
from tests.wire_oracles.messages import MESSAGES, full, is_flexible, versions


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_every_truncation_is_a_decode_error(message: type[Any]) -> None:
    for version in versions(message):
        decode, encode = codec(message, version).decode, codec(message, version).encode
        wire = memoryview(b"".join(encode(full(message, version))))
        assert [size for size in range(len(wire)) if not is_refused(decode, wire[:size])] == [], f"version {version}"


def is_refused(decode: Callable[[memoryview], object], data: memoryview) -> bool:
    try:
        decode(data)
    except DecodeError:
        return True
    return False


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_mutated_bytes_give_a_message_or_a_decode_error(message: type[Any]) -> None:
    chance = random.Random(message.__name__)
    for version in versions(message):
        decode, encode = codec(message, version).decode, codec(message, version).encode
        wire = b"".join(encode(full(message, version)))
        for _ in range(20):  # `make fuzz` has ten million more
            mutated = bytearray(wire)
            for position in chance.choices(range(len(wire)), k=3) if wire else ():
                mutated[position] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            try:
                _, position = decode(memoryview(mutated))
            except DecodeError:
                continue
            assert position <= len(mutated)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_unknown_tagged_fields_are_skipped_at_every_level(message: type[Any]) -> None:
    for version in versions(message):
        if is_flexible(message, version):
            sent = full(message, version)
            wire = bytes(WithUnknownTags(version).struct(sent))
            assert codec(message, version).decode(memoryview(wire)) == (sent, len(wire))


class WithUnknownTags:
    """A slow, plain encoder of flexible versions that adds two tagged fields, which no table has, to every struct."""

    UNKNOWN = b"".join(encode_uvarint(tag) + b"\x04spam" for tag in (1000, 70000))

    def __init__(self, version: int) -> None:
        self.version = version

    def struct(self, value: Any) -> bytearray:
        out, tagged = bytearray(), []
        for field in table_of(type(value)):
            if field.versions.has(self.version):
                encoded = self.field(field, getattr(value, field.name))
                if field.tagged.has(self.version):
                    assert field.tag is not None
                    tagged.append((field.tag, encoded))
                else:
                    out += encoded
        out += encode_uvarint(len(tagged) + 2)
        for tag, encoded in sorted(tagged):
            out += encode_uvarint(tag) + encode_uvarint(len(encoded)) + encoded
        return out + self.UNKNOWN

    def field(self, field: Field, value: Any) -> bytes:
        if field.is_array:
            assert field.of is not None
            return encode_uvarint(len(value) + 1) + b"".join(self.value(field.of, item) for item in value)
        if isinstance(field.of, type):
            return b"\x01" * field.nullable.has(self.version) + self.struct(value)
        return self.value(field.kind, value)

    def value(self, of: Kind | type, value: Any) -> bytes:
        if isinstance(of, type):
            return bytes(self.struct(value))
        if of.format is not None:
            return struct.pack(">" + of.format, value)
        data = value.encode() if of is string else bytes(value)
        return encode_uvarint(len(data) + 1) + data
