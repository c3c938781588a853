"""The compiler on small tables, so that each rule of the encoding is seen byte by byte."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from barnabas.wire.compiler import codec, source
from barnabas.wire.messages.k00_produce import ProduceRequest
from barnabas.wire.primitives import DecodeError, EncodeError
from barnabas.wire.schema import (
    ZERO_UUID,
    Buffer,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    nested,
    records,
    schema,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)


@struct
class Point:
    x: int = int32(default=-1)
    y: int = int32("1+", default=-1)


@schema(versions="0-3", flexible="2+")
class Shape:
    """Fixed-size fields around those that have a length; tagged ones from version 2 on."""

    small: int = int8()
    name: str = string()
    label: str | None = string("1+", nullable="1+", default=None)
    corners: list[Point] = array(Point)
    origin: Point | None = nested(Point, "2+", nullable="2+", default=None)
    data: Buffer | None = records(nullable="0+")
    last: int = int16()
    colour: str = string("2+", default="red", tag=0, tagged="2+")
    centre: Point = nested(Point, "2+", tag=3, tagged="2+")
    holes: list[Point] = array(Point, "3+", tag=1, tagged="3+")


@schema(versions="0-1", flexible="1+")
class Kinds:
    flag: bool = boolean()
    a: int = int8()
    b: int = int16()
    c: int = int32()
    d: int = int64()
    e: int = uint16()
    f: int = uint32()
    g: float = float64()
    h: bytes = uuid()
    i: Buffer = bytes_()
    numbers: list[int] = array(int32)
    flags: list[bool] = array(boolean)
    ids: list[bytes] = array(uuid)
    names: list[str] = array(string)
    chunks: list[Buffer] = array(bytes_)


def encoded(message: Any, version: int) -> bytes:
    return b"".join(codec(type(message), version).encode(message))


def decoded(cls: Any, version: int, wire: bytes) -> Any:
    message, position = codec(cls, version).decode(memoryview(wire))
    assert position == len(wire)
    return message


def test_an_old_version_has_fixed_lengths() -> None:
    shape = Shape(1, "ab", None, [Point(2)], None, b"xyz", 5)
    wire = b"\x01\0\x02ab\0\0\0\x01\0\0\0\x02\0\0\0\x03xyz\0\x05"
    assert encoded(shape, 0) == wire
    assert decoded(Shape, 0, wire) == shape


def test_a_flexible_version_has_compact_lengths_and_tagged_fields() -> None:
    shape = Shape(1, "ab", None, [Point(2, 3)], Point(4, 5), b"xyz", 5, "blue", Point(6, 7), [Point(8, 9)])
    wire = (
        b"\x01"
        b"\x03ab"
        b"\0"
        b"\x02\0\0\0\x02\0\0\0\x03\0"
        b"\x01\0\0\0\x04\0\0\0\x05\0"
        b"\x04xyz"
        b"\0\x05"
        b"\x03"
        b"\0\x05\x05blue"
        b"\x01\x0a\x02\0\0\0\x08\0\0\0\x09\0"
        b"\x03\x09\0\0\0\x06\0\0\0\x07\0"
    )
    assert encoded(shape, 3) == wire
    assert decoded(Shape, 3, wire) == shape


def test_tagged_fields_at_their_default_are_not_written() -> None:
    assert encoded(Shape(), 3) == b"\x00\x01\0\x01\xff\0\0\0\0"
    assert decoded(Shape, 3, encoded(Shape(), 3)) == Shape()


def test_a_tagged_struct_is_written_when_only_a_tagged_field_of_its_own_is_set() -> None:
    @struct
    class Inside:
        number: int = int32(tag=0, tagged="0+")

    @schema(versions="0", flexible="0+")
    class Around:
        inside: Inside = nested(Inside, tag=0, tagged="0+")

    assert encoded(Around(Inside(5)), 0) == b"\x01\0\x07\x01\0\x04\0\0\0\x05"
    assert decoded(Around, 0, encoded(Around(Inside(5)), 0)) == Around(Inside(5))
    assert encoded(Around(), 0) == b"\0"


def test_a_field_outside_its_versions_is_left_out_and_decodes_to_its_default() -> None:
    assert decoded(Shape, 0, encoded(Shape(label="gone", corners=[Point(1, 2)]), 0)) == Shape(corners=[Point(1, -1)])


@pytest.mark.parametrize("version", [0, 1])
def test_every_kind_comes_back_at_its_limits(version: int) -> None:
    low = Kinds(False, -128, -(2**15), -(2**31), -(2**63), 0, 0, -1.5, bytes(16), b"", [], [], [], [], [])
    high = Kinds(
        *(True, 127, 2**15 - 1, 2**31 - 1, 2**63 - 1, 2**16 - 1, 2**32 - 1, 1e300, bytes(range(16)), b"\xff" * 1000),
        *([-1, 2**31 - 1], [True, False], [bytes(range(16)), ZERO_UUID], ["", "ü" * 300], [b"", b"z" * 200]),
    )
    for message in (low, high):
        assert decoded(Kinds, version, encoded(message, version)) == message


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 129, 16383, 16384, 32767])
def test_lengths_of_every_size_are_read_and_written(version: int, size: int) -> None:
    shape = Shape(name="n" * size, data=bytes(size) or None, corners=[Point()] * (size % 1000))
    assert decoded(Shape, version, encoded(shape, version)) == shape


class FileSlice:
    """What a broker sends by sendfile: it has a length, and nobody may look inside."""

    def __len__(self) -> int:
        return 70000


def test_records_are_parts_of_their_own_that_nobody_touches() -> None:
    for version in (0, 3):
        data = FileSlice()
        before, between, after = codec(Shape, version).encode(Shape(data=data))
        assert between is data
        decoded_size = decoded(Shape, version, bytes(before) + bytes(70000) + bytes(after))
        assert len(decoded_size.data) == 70000


def test_records_decode_to_a_view_of_the_input() -> None:
    wire = bytearray(encoded(Shape(data=b"abc"), 3))
    shape, _ = codec(Shape, 3).decode(memoryview(wire))
    wire[wire.index(b"abc")] = ord("A")
    assert isinstance(shape.data, memoryview)
    assert bytes(shape.data) == b"Abc"


def test_decoding_begins_at_the_position_and_leaves_the_rest() -> None:
    wire = encoded(Shape(name="x"), 3)
    assert codec(Shape, 3).decode(memoryview(b"head" + wire + b"tail"), 4) == (Shape(name="x"), 4 + len(wire))


@pytest.mark.parametrize(
    ("version", "wire", "complaint"),
    [
        (0, "00 fffe", "name: -2 is no length"),
        (0, "00 ffff", "name: null"),
        (1, "00 0000 fffe", "label: -2 is no length"),
        (0, "00 0000 ffffffff", "corners: length -1"),
        (0, "00 0000 7fffffff", "corners: 2147483647 elements"),
        (0, "00 0000 00000000 fffffffe", "data: length -2"),
        (0, "00 0002 c328 00000000 ffffffff 0000", "not UTF-8"),
        (2, "00 00", "name: null"),
        (2, "00 ffffffffff00", "longer than 32 bits"),
        (2, "00 818002", "name: 32768 is no length"),
        (2, "00 01 00 00", "corners: length -1"),
        (2, "00 01 00 ffffffff0f", "corners: 4294967294 elements"),
        (2, "00 01 00 01 ff 00 0000 01 00 04 03 6162 00", "tagged field colour is not as long"),
        (2, "00 01 00 01 ff 00 0000 01 00 05 05 6162", "cut short"),
        (2, "00 01 00 01 ff ffffffff0f 0000 00", "cut short"),
        (2, "00 01 00 01 ff 00 0000 ffffffff0f 05 00", "cut short"),
    ],
)
def test_wrong_bytes_are_a_decode_error_that_says_what_is_wrong(version: int, wire: str, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        codec(Shape, version).decode(memoryview(bytes.fromhex(wire)))


@pytest.mark.parametrize(
    ("version", "shape", "complaint"),
    [
        (0, Shape(small=128), "small: 128 does not fit int8"),
        (0, Shape(small=None), "small: null is not allowed"),  # type: ignore[arg-type]
        (0, Shape(name=None), "name: null is not allowed"),  # type: ignore[arg-type]
        (3, Shape(name=7), "name: 7 is no string"),  # type: ignore[arg-type]
        (0, Shape(name="n" * 32768), "name: 32768 bytes are too many"),
        (3, Shape(name="n" * 32768), "name: 32768 bytes are too many"),
        (3, Shape(name="\ud800"), "name: .* UTF-8"),
        (0, Shape(corners=None), "corners: null is not allowed"),  # type: ignore[arg-type]
        (0, Shape(corners=7), "corners: 7 is no list"),  # type: ignore[arg-type]
        (0, Shape(corners=[Point(1), Point(2**31)]), r"corners\[1\]\.x: 2147483648 does not fit int32"),
        (0, Shape(corners=[None]), r"corners\[0\]\.x: None is no Point"),  # type: ignore[list-item]
        (3, Shape(data=7), "data: 7 has no length"),
        (3, Shape(centre=None), "centre: null is not allowed"),  # type: ignore[arg-type]
        (3, Shape(holes=None), "holes: null is not allowed"),  # type: ignore[arg-type]
        (0, Kinds(flag=None), "flag: null is not allowed"),  # type: ignore[arg-type]
        (0, Kinds(h=b"short"), "h: b'short' is no uuid"),
        (1, Kinds(ids=[b"short"]), r"ids\[0\]: b'short' is no uuid"),
        (1, Kinds(numbers=[1, 2**31]), r"numbers\[1\]: 2147483648 does not fit int32"),
        (1, Kinds(numbers=[1, None]), r"numbers\[1\]: None does not fit int32"),  # type: ignore[list-item]
        (1, Kinds(g="x"), "g: 'x' does not fit float64"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_the_table_does_not_allow_is_an_encode_error_that_names_it(
    version: int, shape: Any, complaint: str
) -> None:
    with pytest.raises(EncodeError, match=complaint):
        encoded(shape, version)


def test_a_version_that_the_table_does_not_cover_is_refused() -> None:
    with pytest.raises(ValueError, match="Shape has versions 0-3, not 4"):
        codec(Shape, 4)
    with pytest.raises(TypeError, match="Point is no message"):
        codec(Point, 0)


def test_a_codec_is_compiled_once() -> None:
    assert codec(Shape, 2) is codec(Shape, 2)
    assert codec(Shape, 2).decode is codec(Shape, 2).decode
    with pytest.raises(AttributeError):
        codec(Shape, 2).decoed  # noqa: B018


def test_the_generated_code_can_be_read() -> None:
    text = source(Shape, 3)
    assert "def decode(buffer, position=0):" in text
    assert "def encode(message, head=b''):" in text


def test_a_request_with_too_many_elements_is_refused_before_they_are_made() -> None:
    pairs = 100_001
    body = pack(">hhiih1si", -1, 1, 1000, 1, 1, b"t", pairs) + pack(">ii", 0, -1) * pairs
    with pytest.raises(DecodeError, match="more than 100000 elements"):
        codec(ProduceRequest, 3).decode(memoryview(body))
