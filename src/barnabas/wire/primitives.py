"""What the generated codecs call off their fast path: varints, long strings, tagged fields, and the two errors.

Varints are little-endian groups of seven bits: at most five bytes for 32 bits, ten for 64; signed ones are zigzag.
Padded encodings (`80 00` for 0) are legal, as they are to Apache Kafka; more bits than the type has are not.
"""

from __future__ import annotations

from struct import Struct

MAX_STRING_BYTES = 0x7FFF  # the old int16 length prefix limits compact strings too


class DecodeError(ValueError):
    """Bytes that are not the message they claim to be; the message says which field is wrong and how."""


class EncodeError(ValueError):
    """A message that its schema cannot carry; the message names the field."""


# Unpackers for strings of 0 to 127 bytes: reading one this way is twice as fast as slicing a memoryview.
SHORT_STRING = [Struct(f"{size}s").unpack_from for size in range(128)]
# The same, indexed by the compact length prefix, which is the size plus one (0 stands for null and is never looked up).
COMPACT_STRING = [SHORT_STRING[0], *SHORT_STRING[:127]]


def decode_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of up to 32 bits and the position after it."""
    try:
        value = buffer[position]
        if value < 0x80:
            return value, position + 1
        byte = buffer[position + 1]
        value += (byte - 1) << 7  # the one takes away the continuation bit of the byte before
        if byte < 0x80:
            return value, position + 2
        byte = buffer[position + 2]
        value += (byte - 1) << 14
        if byte < 0x80:
            return value, position + 3
        byte = buffer[position + 3]
        value += (byte - 1) << 21
        if byte < 0x80:
            return value, position + 4
        byte = buffer[position + 4]
        value += (byte - 1) << 28
    except IndexError:
        raise DecodeError(f"varint at byte {position} is cut short") from None
    if byte > 0x0F:
        raise DecodeError(f"varint at byte {position} is longer than 32 bits")
    return value, position + 5


def encode_uvarint(value: int) -> bytes:
    if 0x80 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if not 0 <= value <= 0xFFFFFFFF:
        raise EncodeError(f"{value} does not fit an unsigned varint of 32 bits")
    return _groups(value)


def decode_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """A signed varint of up to 32 bits and the position after it."""
    value, position = decode_uvarint(buffer, position)
    return (value >> 1) ^ -(value & 1), position


def encode_varint(value: int) -> bytes:
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise EncodeError(f"{value} does not fit a varint of 32 bits")
    return _groups((value << 1) ^ (value >> 31))


def decode_varlong(buffer: memoryview, position: int) -> tuple[int, int]:
    """A signed varint of up to 64 bits and the position after it."""
    value = shift = 0
    try:
        for shift in range(0, 70, 7):
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFFFFFFFFFF:
                    break
                return (value >> 1) ^ -(value & 1), position
    except IndexError:
        raise DecodeError(f"varint is cut short at byte {position}") from None
    raise DecodeError(f"varint before byte {position} is longer than 64 bits")


def encode_varlong(value: int) -> bytes:
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise EncodeError(f"{value} does not fit a varint of 64 bits")
    return _groups((value << 1) ^ (value >> 63))


def _groups(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def long_string(buffer: memoryview, position: int, size: int, where: str) -> str:
    """A string of 128 bytes or more, or the error that a negative or excessive size deserves."""
    if not 0 <= size <= MAX_STRING_BYTES:
        raise DecodeError(f"{where}: {size} is no length of a string")
    return buffer[position : position + size].tobytes().decode()


def skip_tagged(buffer: memoryview, position: int, count: int) -> int:
    """The position after `count` tagged fields that nobody here knows."""
    for _ in range(count):
        _, position = decode_uvarint(buffer, position)
        size, position = decode_uvarint(buffer, position)
        position += size
    return position


def tagged(tag: int, value: bytes | bytearray) -> bytes:
    return encode_uvarint(tag) + encode_uvarint(len(value)) + value
