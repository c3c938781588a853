from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire.primitives import (
    DecodeError,
    EncodeError,
    decode_uvarint,
    decode_varint,
    decode_varlong,
    encode_uvarint,
    encode_varint,
    encode_varlong,
    skip_tagged,
    tagged,
)

# Pairs from the protocol buffers documentation and from the limits of the types.
UNSIGNED = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (2**14, "808001"),
    (2**32 - 1, "ffffffff0f"),
]
SIGNED = [(0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (63, "7e"), (-64, "7f"), (64, "8001"), (-(2**31), "ffffffff0f")]
SIGNED_64 = [*SIGNED, (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01")]


@pytest.mark.parametrize(("value", "wire"), UNSIGNED)
def test_unsigned_varints_are_groups_of_seven_bits(value: int, wire: str) -> None:
    assert encode_uvarint(value).hex() == wire
    assert decode_uvarint(memoryview(bytes.fromhex("aa" + wire + "bb")), 1) == (value, 1 + len(wire) // 2)


@pytest.mark.parametrize(("value", "wire"), SIGNED)
def test_signed_varints_are_zigzag(value: int, wire: str) -> None:
    assert encode_varint(value).hex() == wire
    assert decode_varint(memoryview(bytes.fromhex(wire)), 0) == (value, len(wire) // 2)


@pytest.mark.parametrize(("value", "wire"), SIGNED_64)
def test_signed_varlongs_are_zigzag(value: int, wire: str) -> None:
    assert encode_varlong(value).hex() == wire
    assert decode_varlong(memoryview(bytes.fromhex(wire)), 0) == (value, len(wire) // 2)


@given(st.integers(0, 2**32 - 1))
def test_every_unsigned_varint_comes_back(value: int) -> None:
    wire = encode_uvarint(value)
    assert decode_uvarint(memoryview(wire), 0) == (value, len(wire))


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_signed_varint_comes_back(value: int) -> None:
    assert decode_varint(memoryview(encode_varint(value)), 0)[0] == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_varlong_comes_back(value: int) -> None:
    assert decode_varlong(memoryview(encode_varlong(value)), 0)[0] == value


@pytest.mark.parametrize("wire", ["8000", "808000", "80808000", "8080808000"])
def test_a_padded_varint_is_read_as_apache_kafka_reads_it(wire: str) -> None:
    assert decode_uvarint(memoryview(bytes.fromhex(wire)), 0) == (0, len(wire) // 2)


@pytest.mark.parametrize("wire", ["", "80", "8080", "808080", "80808080", "8080808080", "ffffffff10", "ffffffffffff"])
def test_a_varint_that_is_cut_short_or_too_long_is_a_decode_error(wire: str) -> None:
    with pytest.raises(DecodeError):
        decode_uvarint(memoryview(bytes.fromhex(wire)), 0)


@pytest.mark.parametrize("wire", ["", "80", "ff" * 9, "ff" * 10, "ff" * 9 + "02", "80" * 10 + "00"])
def test_a_varlong_that_is_cut_short_or_too_long_is_a_decode_error(wire: str) -> None:
    with pytest.raises(DecodeError):
        decode_varlong(memoryview(bytes.fromhex(wire)), 0)


def test_a_value_beyond_the_type_is_an_encode_error() -> None:
    for encode, value in [
        (encode_uvarint, -1),
        (encode_uvarint, 2**32),
        (encode_varint, 2**31),
        (encode_varint, -(2**31) - 1),
        (encode_varlong, 2**63),
    ]:
        with pytest.raises(EncodeError):
            encode(value)


def test_tagged_fields_are_skipped_by_their_size() -> None:
    wire = tagged(5, b"abc") + tagged(1000, bytes(200)) + b"next"
    assert wire[skip_tagged(memoryview(wire), 0, 2) :] == b"next"
