"""JSON values as Arrow columns: what is sure, what is not, and that no value disturbs another."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow
import pytest

from barnabas.records import engine, json_codec
from barnabas.records.json_columns import JsonReader
from barnabas.records.value_columns import UnsupportedType
from tests.json_values import arrow_type, random_schema, random_value

TIME = pyarrow.timestamp("us", "UTC")
LOCAL_TIME = pyarrow.timestamp("us")


def read(kind: pyarrow.DataType, *texts: str, is_utc: bool = True) -> list[Any]:
    """The values of a column `c` by what stands behind its name; "unsure" for those that are not sure."""
    reader = JsonReader(pyarrow.schema([("c", kind)]), is_utc=is_utc)
    found = reader.read(pyarrow.array([f'{{"c":{text}}}'.encode() for text in texts], pyarrow.binary()))
    found.rows.validate(full=True)
    values = iter(found.rows.column("c").to_pylist())
    return ["unsure" if index in found.unsure else next(values) for index in range(len(texts))]


@pytest.mark.usefixtures("either_engine")
class TestBothEngines:
    def test_decodes_integers_within_the_width_of_the_column(self) -> None:
        assert read(pyarrow.int8(), "127", "-128", "128", "255", "-0", "null") == [
            127, -128, "unsure", "unsure", 0, None,
        ]  # fmt: skip
        assert read(pyarrow.int32(), "2147483647", "2147483648", "1.0", "1e3", "01", '"1"') == [
            2147483647, *["unsure"] * 5,
        ]  # fmt: skip
        widest = ["9223372036854775807", "-9223372036854775807", "9223372036854775808", "99999999999999999999"]
        assert read(pyarrow.int64(), *widest) == [2**63 - 1, -(2**63) + 1, "unsure", "unsure"]

    def test_decodes_doubles_as_python_does(self) -> None:
        texts = ["0.1", "-0.0", "1e23", "8.41e21", "4.9e-324", "0.30000000000000004", "123456789.123456789123456789"]
        assert [repr(each) for each in read(pyarrow.float64(), *texts)] == [repr(float(text)) for text in texts]
        assert read(pyarrow.float64(), "1e400", "-0", "1.", ".5", "1234567890123456789", "7") == ["unsure"] * 5 + [7.0]

    def test_decodes_floats_only_where_rounding_once_is_certain(self) -> None:
        texts = ["1.5", "0.1", "1e-11", "0.12345679", "-0.0"]
        nearest = pyarrow.array([float(text) for text in texts], pyarrow.float32()).to_pylist()
        assert read(pyarrow.float32(), *texts) == nearest
        midway = "1.00000005960464477540"  # whose nearest double is 1 + 2 ** -24
        assert read(pyarrow.float32(), "16777217", midway, "3.4028235e38", "1e-39", "1e-400") == ["unsure"] * 5

    def test_decodes_decimals_that_need_no_rounding(self) -> None:
        kind = pyarrow.decimal128(6, 2)
        assert read(kind, "1.5", "-9999.99", "10000", "1.234", "1e2") == [
            Decimal("1.50"), Decimal("-9999.99"), "unsure", "unsure", "unsure",
        ]  # fmt: skip

    def test_decodes_text_with_escapes_and_rejects_invalid_text(self) -> None:
        texts = ['"a"', r'"\u00e9\ud83d\ude00\n\/"', '"é😀"', r'"\ud83d"', r'"\ude00"', r'"\q"', '"a\nb"', "1", '"']
        assert read(pyarrow.string(), *texts) == ["a", "é😀\n/", "é😀", *["unsure"] * 6]

    def test_decodes_times_with_a_zone_or_in_utc(self) -> None:
        moment = datetime(2026, 11, 18, 9, 0, 0, 120000, UTC)
        texts = ['"2026-11-18T09:00:00.12Z"', '"2026-11-18 10:30:00.12+01:30"', '"2026-11-18T09:00:00.12"']
        assert read(TIME, *texts) == [moment] * 3
        assert read(TIME, *texts, is_utc=False) == [moment, moment, "unsure"]
        assert read(LOCAL_TIME, *texts) == ["unsure", "unsure", moment.replace(tzinfo=None)]
        assert read(TIME, "1700000000", '"2026-02-29T00:00:00Z"', '"2026-11-18"', '"2026-11-18T09:00:00.1234567Z"') == [
            datetime.fromtimestamp(1700000000, UTC), "unsure", "unsure", "unsure",
        ]  # fmt: skip

    @pytest.mark.parametrize("year", [1, 4, 100, 400, 1582, 1899, 1900, 1969, 1970, 2000, 2024, 9999])
    def test_decodes_every_day_of_a_year(self, year: int) -> None:
        first = date(year, 1, 1).toordinal()
        days = [date.fromordinal(first + index) for index in range(365)]
        assert read(pyarrow.date32(), *(f'"{day.isoformat()}"' for day in days)) == days

    def test_decodes_nested_lists_maps_and_objects(self) -> None:
        kind = pyarrow.struct(
            [("l", pyarrow.list_(pyarrow.struct([("m", pyarrow.map_(pyarrow.string(), pyarrow.int64()))])))]
        )
        texts = ['{"l":[{"m":{"a":1,"b":null}},null,{}]}', "{}", '{"l":[]}', '{"l":[{"m":{"a":1,"a":2}}]}', '{"l":5}']
        assert read(kind, *texts) == [
            {"l": [{"m": [("a", 1), ("b", None)]}, None, {"m": None}]}, {"l": None}, {"l": []}, "unsure", "unsure",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        "value",
        [b"", b"null", b"1", b"[]", b'{"a":1} x', b'{"a":1}{"a":2}', b'{"a":1,"a":2}', b'{"a":1', b'{"a":1,}', b'{a:1}',
         b'{"x":"\xff","a":1}', b'\xef\xbb\xbf{"a":1}', b'{"a":1}\x00', b'{"\\u0061":1}', b'{"x":tru,"a":1}',
         b'{"x":01}'],
    )  # fmt: skip
    def test_leaves_no_row_of_an_unsure_value(self, value: bytes) -> None:
        schema = pyarrow.schema(
            [("a", pyarrow.int64()), ("s", pyarrow.string()), ("l", pyarrow.list_(pyarrow.int64()))]
        )
        good = b'{"a":1,"s":"x","l":[1,2]}'
        partly = b'{"l":[7,8],"s":"gone","a":' + (value or b"?")
        found = JsonReader(schema).read(pyarrow.array([good, value, partly, good], pyarrow.binary()))
        assert found.unsure == [1, 2]
        assert found.rows.to_pylist() == [json.loads(good)] * 2

    def test_decodes_null_to_a_row_of_nulls_unless_a_column_is_required(self) -> None:
        schema = pyarrow.schema([("a", pyarrow.int64())])
        values = pyarrow.array([None, b"{}", b'{"a":null}', b'{"a":1}'], pyarrow.binary())
        assert JsonReader(schema).read(values).rows.column("a").to_pylist() == [None, None, None, 1]
        assert JsonReader(schema, ["a"]).read(values).unsure == [0, 1, 2]

    def test_reads_slices_and_several_batches(self) -> None:
        values = pyarrow.array([f'{{"a":{index}}}'.encode() if index % 7 else None for index in range(1000)])
        reader = JsonReader(pyarrow.schema([("a", pyarrow.int64())]))
        found = [reader.read(values[start : start + 13]).rows.column("a").to_pylist() for start in range(0, 1000, 13)]
        assert [value for some in found for value in some] == [index if index % 7 else None for index in range(1000)]

    @pytest.mark.parametrize("text", ["[" * 100 + "]" * 100, '{"x":' * 100 + "1" + "}" * 100])
    def test_finds_deep_nesting_unsure(self, text: str) -> None:
        assert read(pyarrow.int64(), "1", f'1,"x":{text}') == [1, "unsure"]


def test_both_engines_agree_on_random_values() -> None:
    random = Random(20261118)
    for _ in range(30):
        schema = random_schema(random)
        arrow = pyarrow.schema([(name, arrow_type(kind)) for name, kind in schema.items()])
        values = pyarrow.array([random_value(random, schema) for _ in range(100)], pyarrow.binary())
        outcomes = []
        for codec in (engine.json_codec, json_codec):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engine, "json_codec", codec)
                found = JsonReader(arrow).read(values)
            found.rows.validate(full=True)
            outcomes.append(found)
        assert outcomes[0].unsure == outcomes[1].unsure
        assert outcomes[0].rows.equals(outcomes[1].rows)


def test_rejects_a_type_that_it_never_reads() -> None:
    with pytest.raises(UnsupportedType, match="column 'b' is binary"):
        JsonReader(pyarrow.schema([("a", pyarrow.list_(pyarrow.field("b", pyarrow.binary())))]))
