"""Avro values as Arrow columns: what is sure, how schemas are resolved, and that no value disturbs another."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow
import pytest

from barnabas.records.avro_columns import AvroColumnReader
from barnabas.records.value_columns import UnsupportedType

TIME = pyarrow.timestamp("us", "UTC")
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}


class Field(dict[str, Any]):
    """Of a record."""


def record(*fields: Any) -> dict[str, Any]:
    """Of fields, or of types: those become fields that are named after their position."""
    named = [each if isinstance(each, Field) else field(f"f{index}", each) for index, each in enumerate(fields)]
    return {"type": "record", "name": "Row", "fields": named}


def field(name: str, kind: Any, **more: Any) -> Field:
    return Field(name=name, type=kind, **more)


def read_rows(
    columns: list[tuple[str, pyarrow.DataType]], writer: Any, reader: Any, *values: bytes | None, **options: Any
) -> list[Any]:
    """The row of each value, as a tuple; "unsure" for those that are not sure."""
    made = AvroColumnReader(pyarrow.schema(columns), reader, is_framed=True, find_writer=lambda _: writer, **options)
    framed = [None if value is None else b"\0\0\0\0\1" + value for value in values]
    found = made.read(pyarrow.array(framed, pyarrow.binary()))
    found.rows.validate(full=True)
    rows = iter(found.rows.to_pylist())
    return ["unsure" if index in found.unsure else tuple(next(rows).values()) for index in range(len(values))]


def read(kind: pyarrow.DataType, schema: Any, *data: bytes, writer: Any = None) -> list[Any]:
    """The values of one column."""
    rows = read_rows([("f0", kind)], record(schema if writer is None else writer), record(schema), *data)
    return [row if row == "unsure" else row[0] for row in rows]


@pytest.mark.usefixtures("either_engine")
class TestBothEngines:
    def test_decodes_integers_within_the_width_of_their_type(self) -> None:
        widest = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        assert read(pyarrow.int64(), "long", b"\x00", b"\x01", b"\xac\x02", b"\x80\x00", *widest) == [
            0, -1, 150, 0, 2**63 - 1, -(2**63),
        ]  # fmt: skip
        assert read(pyarrow.int32(), "int", b"\xfe\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x10") == [2**31 - 1, "unsure"]

    @pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9 + b"\x02", b"\xff" * 20, b"\x00\x00"])
    def test_finds_a_number_without_end_or_with_more_behind_it_unsure(self, data: bytes) -> None:
        assert read(pyarrow.int64(), "long", b"\x02", data, b"\x04") == [1, "unsure", 2]

    def test_decodes_booleans_floats_and_bytes(self) -> None:
        assert read(pyarrow.bool_(), "boolean", b"\0", b"\1", b"\2", b"") == [False, True, True, "unsure"]
        assert read(pyarrow.float64(), "double", struct.pack("<d", 0.1), b"1234567") == [0.1, "unsure"]
        assert read(pyarrow.float32(), "float", struct.pack("<f", 1.5), b"123") == [1.5, "unsure"]
        assert read(pyarrow.binary(), "bytes", b"\x04\xff\x00", b"\x00", b"\x06ab", b"\x01") == [
            b"\xff\0", b"", "unsure", "unsure",
        ]  # fmt: skip
        fixed = {"type": "fixed", "name": "F", "size": 3}
        assert read(pyarrow.binary(), fixed, b"abc", b"ab", b"abcd") == [b"abc", "unsure", "unsure"]

    def test_decodes_text_that_is_valid_utf_8(self) -> None:
        texts = ["", "a", "é", "日本語 and more than eight bytes", "eight by😀", "\0"]
        encoded = [bytes([2 * len(text.encode())]) + text.encode() for text in texts]
        wrong = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"12345678\xe2\x82"]
        assert read(pyarrow.string(), "string", *encoded, *(bytes([2 * len(each)]) + each for each in wrong)) == [
            *texts, *["unsure"] * len(wrong),
        ]  # fmt: skip

    def test_decodes_dates_and_times_of_the_years_1_to_9999(self) -> None:
        day = {"type": "int", "logicalType": "date"}
        millis, micros = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
        assert read(pyarrow.date32(), day, long(0), long(-719162), long(2932896), long(-719163), long(2932897)) == [
            date(1970, 1, 1), date.min, date.max, "unsure", "unsure",
        ]  # fmt: skip
        late = 253402300800000
        assert read(TIME, millis, long(1), long(late - 1), long(late), long(-62135596800001)) == [
            datetime(1970, 1, 1, 0, 0, 0, 1000, UTC), datetime(9999, 12, 31, 23, 59, 59, 999000, UTC), *["unsure"] * 2,
        ]  # fmt: skip
        assert read(TIME, micros, long(late * 1000 - 1), long(2**63 - 1)) == [
            datetime.max.replace(tzinfo=UTC),
            "unsure",
        ]
        assert read(TIME, micros, long(7), writer=millis) == [datetime(1970, 1, 1, 0, 0, 0, 7000, UTC)]

    def test_decodes_decimals_that_fit_their_precision(self) -> None:
        kind = pyarrow.decimal128(6, 2)
        data = [b"\x02\x7f", b"\x02\x80", b"\x00", b"\x06\x0f\x42\x3f", b"\x06\x0f\x42\x40", b"\x14" + b"\xff" * 10]
        assert read(kind, DECIMAL, *data) == [
            Decimal("1.27"), Decimal("-1.28"), Decimal("0.00"), Decimal("9999.99"), "unsure", Decimal("-0.01"),
        ]  # fmt: skip
        wide = {"type": "fixed", "name": "F", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 0}
        data = [number.to_bytes(9, "big", signed=True) for number in (2**63 - 1, 2**63, -(2**63) + 1, -(2**63) - 1)]
        assert read(pyarrow.decimal128(20, 0), wide, *data) == [
            Decimal(2**63 - 1), "unsure", Decimal(-(2**63) + 1), "unsure",
        ]  # fmt: skip

    def test_decodes_enums_by_symbol_with_the_default_for_new_ones(self) -> None:
        old = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
        new = {"type": "enum", "name": "E", "symbols": ["C", "B", "A"]}
        assert read(pyarrow.string(), old, b"\0", b"\2", b"\4", b"\1", b"\6", writer=new) == [
            "unsure", "B", "A", "unsure", "unsure",
        ]  # fmt: skip
        assert read(pyarrow.string(), {**old, "default": "B"}, b"\0", writer=new) == ["B"]

    def test_decodes_arrays_in_blocks_with_and_without_a_size(self) -> None:
        schema = {"type": "array", "items": ["null", "int"]}
        data = [b"\0", b"\4\2\2\0\0", b"\2\2\6\1\4\2\x08\0", b"\2\2\6", b"\xff\xff\x03", b"\xff" * 9 + b"\x01\0\0"]
        assert read(pyarrow.list_(pyarrow.int32()), schema, *data) == [[], [1, None], [3, 4], *["unsure"] * 3]

    def test_decodes_maps_whose_keys_differ(self) -> None:
        kind, schema = pyarrow.map_(pyarrow.string(), pyarrow.int64()), {"type": "map", "values": "long"}
        many = b"".join(b"\4%02d\2" % index for index in range(40))
        data = [b"\0", b"\4\2a\2\2b\4\0", b"\4\2a\2\2a\4\0", b"\2\2\xff\2\0", b"\x50" + many + b"\0",
                b"\x52" + many + b"\x0401\2\0"]  # fmt: skip
        assert read(kind, schema, *data) == [
            [], [("a", 1), ("b", 2)], "unsure", "unsure", [(f"{index:02}", 1) for index in range(40)], "unsure",
        ]  # fmt: skip

    @pytest.mark.parametrize("schema", [["null", "long"], ["long", "null"]])
    def test_decodes_unions_with_null_in_any_order(self, schema: list[str]) -> None:
        null, one = bytes([2 * schema.index("null")]), bytes([2 * schema.index("long"), 2])
        assert read(pyarrow.int64(), schema, null, one, b"\4\2", b"\1\2") == [None, 1, "unsure", "unsure"]
        assert read(pyarrow.int64(), schema, b"\2", writer="long") == [1]
        assert read(pyarrow.int64(), "long", null, one, writer=schema) == ["unsure", 1]

    def test_decodes_a_union_of_several_types_where_the_branch_fits(self) -> None:
        writer = ["string", "int", "null", {"type": "array", "items": "int"}]
        assert read(pyarrow.int64(), ["null", "long"], b"\2\6", b"\4", b"\0\2a", b"\6\0", writer=writer) == [
            3, None, "unsure", "unsure",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("writer", "reader", "kind", "datum", "value"),
        [
            ("int", "long", pyarrow.int64(), b"\3", -2), ("int", "float", pyarrow.float32(), b"\3", -2.0),
            ("int", "double", pyarrow.float64(), b"\3", -2.0), ("long", "float", pyarrow.float32(), b"\3", -2.0),
            ("long", "double", pyarrow.float64(), b"\3", -2.0),
            ("float", "double", pyarrow.float64(), struct.pack("<f", 0.5), 0.5),
            ("string", "bytes", pyarrow.binary(), b"\2a", b"a"), ("bytes", "string", pyarrow.string(), b"\2a", "a"),
        ],
    )  # fmt: skip
    def test_widens_what_the_writer_has(self, writer: str, reader: str, kind: Any, datum: bytes, value: Any) -> None:
        assert read(kind, reader, datum, writer=writer) == [value]

    def test_text_for_bytes_and_bytes_for_text_must_be_utf_8(self) -> None:
        assert read(pyarrow.binary(), "bytes", b"\2\xff", writer="string") == ["unsure"]
        assert read(pyarrow.string(), "string", b"\2\xff", writer="bytes") == ["unsure"]

    def test_resolves_fields_by_name_and_alias_in_any_order(self) -> None:
        inner = {"type": "record", "name": "Inner", "fields": [field("x", "int"), field("gone", "string")]}
        writer = record(field("b", inner), field("old", "string"), field("same", "Inner"), field("skipped", SKIPPED))
        reader_inner = {**inner, "fields": [field("y", ["null", "int"], default=None), field("x", "long")]}
        reader = record(
            field("a", "string", aliases=["old"]), field("b", reader_inner), field("same", "Inner"),
            field("c", {"type": "array", "items": "string"}, default=["p", "q"]),
        )  # fmt: skip
        columns = [
            ("a", pyarrow.string()), ("b", pyarrow.struct([("y", pyarrow.int32()), ("x", pyarrow.int64())])),
            ("same", pyarrow.struct([("y", pyarrow.int32()), ("x", pyarrow.int64())])),
            ("c", pyarrow.list_(pyarrow.string())),
        ]  # fmt: skip
        data = b"\2\4zz" + b"\6old" + b"\4\2-"
        row = ("old", {"y": None, "x": 1}, {"y": None, "x": 2}, ["p", "q"])
        skipped = [b"\0\2u", b"\2\2\6\0", b"\4\1\x0c\2\2k\2v\0\0"]
        assert read_rows(columns, writer, reader, *(data + each for each in skipped)) == [row] * 3
        wrong_size = b"\4\1\x0a\2\2k\2v\0\0"
        assert read_rows(columns, writer, reader, data + wrong_size, data, data + b"\6") == ["unsure"] * 3

    @pytest.mark.parametrize(
        ("writer", "reader"),
        [
            (record(), record("long")),
            (record("string"), record("long")),
            ({**record("long"), "name": "Other"}, record("long")),
            (record({"type": "long", "logicalType": "timestamp-millis"}), record("long")),
            (record(field("f0", "long"), field("tree", ["null", "Row"])), record("long")),
            (record(field("f0", "long"), field("empty", {"type": "array", "items": "null"})), record("long")),
            (record(field("f0", "long"), field("f", {"type": "fixed", "name": "F", "size": -1})), record("long")),
            (record(field("f0", "long"), field("f", {"type": "fixed", "name": "F", "size": 2**80})), record("long")),
            (record(field("f0", "long"), field("old", "long")), record(field("f0", "long", aliases=["old"]))),
        ],
        ids=["no default", "mismatch", "name", "logical type", "recursive", "no bytes", "negative", "large", "twice"],
    )
    def test_finds_values_of_a_writer_that_is_not_covered_unsure(self, writer: Any, reader: Any) -> None:
        assert read_rows([("f0", pyarrow.int64())], writer, reader, b"\2", b"\2\0", b"") == ["unsure"] * 3

    def test_a_schema_that_grows_without_end_by_names_is_not_covered(self) -> None:
        kinds: list[Any] = [{"type": "record", "name": "T0", "fields": [field("x", "int")]}]
        for level in range(1, 12):
            fields = [field("first", kinds[-1]), *(field(f"g{index}", f"T{level - 1}") for index in range(9))]
            kinds.append({"type": "record", "name": f"T{level}", "fields": fields})
        writer = record(field("f0", "long"), field("all", kinds[-1]))
        assert read_rows([("f0", pyarrow.int64())], writer, record("long"), b"\2") == ["unsure"]

    def test_null_is_a_row_of_nulls_unless_a_column_is_required(self) -> None:
        schema = record(["null", "long"], ["null", "string"])
        columns = [("f0", pyarrow.int64()), ("f1", pyarrow.string())]
        assert read_rows(columns, schema, schema, None, b"\2\2\0", None) == [(None, None), (1, None), (None, None)]
        assert read_rows(columns, schema, schema, None, b"\2\2\0", b"\0\0", required=["f0"]) == [
            "unsure", (1, None), "unsure",
        ]  # fmt: skip

    def test_reads_several_writers_in_one_batch_in_order(self) -> None:
        writers = {1: record(field("a", "int")), 2: record(field("b", "string"), field("a", "long")), 3: "string"}
        asked: list[int] = []

        def find(number: int) -> Any:
            asked.append(number)
            return writers.get(number)

        reader = AvroColumnReader(
            pyarrow.schema([("a", pyarrow.int64())]), record(field("a", "long")), is_framed=True, find_writer=find
        )
        one, two = b"\0\0\0\0\1\2", b"\0\0\0\0\2\2x\4"
        values = [one, two, b"\0\0\0\0\3\2a", one, b"\0\0\1\0\1\2", two, b"\1\0\0\0\1\2", b"\0\0\0\0", b"", one]
        found = reader.read(pyarrow.array(values, pyarrow.binary()))
        assert (found.unsure, found.rows.column("a").to_pylist()) == ([2, 4, 6, 7, 8], [1, 2, 1, 2, 1])
        assert asked == [1, 2, 3, 0x10001]
        reader.read(pyarrow.array(values, pyarrow.binary()))
        assert asked[4:] == [3, 0x10001]  # may be known by now

    def test_an_error_of_the_registry_is_raised_and_leaves_no_rows(self) -> None:
        writers = {1: record("int")}

        def find(number: int) -> Any:
            if number not in writers:
                raise OSError("no answer")
            return writers[number]

        reader = AvroColumnReader(
            pyarrow.schema([("f0", pyarrow.int32())]), record("int"), is_framed=True, find_writer=find
        )
        one, two = b"\0\0\0\0\1\2", b"\0\0\0\0\2\2"
        with pytest.raises(OSError, match="no answer"):
            reader.read(pyarrow.array([one, one, two], pyarrow.binary()))
        assert reader.read(pyarrow.array([one], pyarrow.binary())).rows.to_pylist() == [{"f0": 1}]

    def test_reads_bare_values_slices_and_several_batches(self) -> None:
        values = pyarrow.array([long(index) if index % 7 else None for index in range(1000)], pyarrow.binary())
        reader = AvroColumnReader(pyarrow.schema([("f0", pyarrow.int64())]), record("long"), is_framed=False)
        found = [reader.read(values[start : start + 13]).rows.column(0).to_pylist() for start in range(0, 1000, 13)]
        assert [value for some in found for value in some] == [index if index % 7 else None for index in range(1000)]

    def test_random_bytes_neither_crash_nor_leave_a_trace(self) -> None:
        random = Random(20261118)
        kinds = [
            "string", "double", DECIMAL, {"type": "array", "items": "bytes"},
            {"type": "map", "values": ["null", "int"]},
        ]  # fmt: skip
        writer = record(*kinds, field("skipped", SKIPPED))
        columns = [
            ("f0", pyarrow.string()), ("f1", pyarrow.float64()), ("f2", pyarrow.decimal128(6, 2)),
            ("f3", pyarrow.list_(pyarrow.binary())), ("f4", pyarrow.map_(pyarrow.string(), pyarrow.int32())),
        ]  # fmt: skip
        good = b"\2a" + bytes(8) + b"\2\1" + b"\2\2b\0" + b"\2\2k\2\4\0" + b"\2\2\4\0"
        row = ("a", 0.0, Decimal("0.01"), [b"b"], [("k", 2)])
        noise = [random.randbytes(random.randrange(60)) for _ in range(300)]
        damaged = [good[:at] + random.randbytes(random.randrange(1, 12)) + good[at:] for at in range(len(good))]
        rows = read_rows(columns, writer, record(*kinds), good, *noise, good, *damaged, good)
        assert [rows[0], rows[301], rows[-1]] == [row] * 3
        assert rows.count("unsure") > 300


SKIPPED = ["string", {"type": "array", "items": "long"}, {"type": "array", "items": {"type": "map", "values": "bytes"}}]


def long(value: int) -> bytes:
    rest, encoded = value << 1 ^ value >> 63, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def test_rejects_a_column_of_a_type_that_no_schema_has() -> None:
    with pytest.raises(UnsupportedType, match="column 'f0' is uint8"):
        AvroColumnReader(pyarrow.schema([("f0", pyarrow.uint8())]), record("int"), is_framed=True)


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.float64(), pyarrow.list_(pyarrow.int64()), TIME])
def test_a_column_of_another_type_than_the_schema_is_never_filled(kind: pyarrow.DataType) -> None:
    assert read(kind, "long", b"\2") == ["unsure"]
