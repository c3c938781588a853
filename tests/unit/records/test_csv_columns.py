"""CSV values as Arrow columns: what is sure, what is not, and that no value disturbs another."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow
import pyarrow.csv
import pytest

from barnabas.records import csv_codec, engine
from barnabas.records.csv_columns import SEPARATORS, CsvReader
from barnabas.records.value_columns import DecodedValues, UnsupportedType
from tests.csv_values import ODD_TOKENS, good_value, random_schema, random_value
from tests.json_values import SIMPLE, arrow_type

TIME = pyarrow.timestamp("us", "UTC")
LOCAL_TIME = pyarrow.timestamp("us")


def read(kind: pyarrow.DataType, *tokens: str, is_utc: bool = True) -> list[Any]:
    """The values of a column by its tokens, which have another behind; "unsure" for those that are not sure."""
    reader = CsvReader(pyarrow.schema([("c", kind), ("d", pyarrow.string())]), is_utc=is_utc)
    found = reader.read(pyarrow.array([f"{token},x".encode() for token in tokens], pyarrow.binary()))
    found.rows.validate(full=True)
    values = iter(found.rows.column("c").to_pylist())
    return ["unsure" if index in found.unsure else next(values) for index in range(len(tokens))]


@pytest.mark.usefixtures("either_engine")
class TestBothEngines:
    def test_decodes_integers_within_the_width_of_the_column(self) -> None:
        assert read(pyarrow.int8(), "127", "-128", "128", "-129", "-0", "+7", "007", "") == [
            127, -128, "unsure", "unsure", 0, 7, 7, None,
        ]  # fmt: skip
        bad = ["1.0", "1e3", " 1", "1 ", "1\r", "+", "-", "--1", "0" * 20 + "1", "\u0661"]
        assert read(pyarrow.int32(), "2147483647", *bad) == [2147483647, *["unsure"] * len(bad)]
        widest = ["9223372036854775807", "-9223372036854775807", "9223372036854775808", "9999999999999999999"]
        assert read(pyarrow.int64(), *widest) == [2**63 - 1, -(2**63) + 1, "unsure", "unsure"]

    def test_decodes_doubles_as_python_does(self) -> None:
        texts = ["0.1", "-0.0", "1e23", "8.41e21", "4.9e-324", "0.30000000000000004", "123456789.123456789123456789"]
        assert [repr(each) for each in read(pyarrow.float64(), *texts)] == [repr(float(text)) for text in texts]
        bad = ["1e400", "-0", "1.", ".5", "+1.5", "01.5", "1d", "NaN", "Inf", " 1.5", "1.5 "]
        assert read(pyarrow.float64(), *bad) == ["unsure"] * len(bad)

    def test_decodes_decimals_that_need_no_rounding(self) -> None:
        kind = pyarrow.decimal128(6, 2)
        assert read(kind, "1.5", "-9999.99", "10000", "1.234", "1e2", '"1,234.5"') == [
            Decimal("1.50"), Decimal("-9999.99"), *["unsure"] * 4,
        ]  # fmt: skip

    def test_decodes_booleans_in_letters_of_either_case(self) -> None:
        texts = ["true", "False", "TRUE", "fAlSe", "", "1", "t", "yes", "truex", "tru\x05", "fal\u017fe"]
        assert read(pyarrow.bool_(), *texts) == [True, False, True, False, None, *["unsure"] * 6]

    def test_decodes_text_in_quotes_and_without(self) -> None:
        good = ["a", " a ", 'a"b', "a\\", "\\", "é😀", "a\nb\r", '"a,b"', '" a "', '"a\nb"', '"é"', '""', ""]
        assert read(pyarrow.string(), *good) == [
            "a", " a ", 'a"b', "a\\", "\\", "é😀", "a\nb\r", "a,b", " a ", "a\nb", "é", None, None,
        ]  # fmt: skip
        bad = ['"', '"a', '"a"b', '"a" ', '"a""b"', '"a\\"', '"a\\nb"', "\ufeffa", "a\uffff", '"\uffff"', "\0", "a\x1f"]
        assert read(pyarrow.string(), *bad) == ["unsure"] * len(bad)

    def test_decodes_times_with_a_zone_or_in_utc(self) -> None:
        moment = datetime(2026, 11, 18, 9, 0, 0, 120000, UTC)
        texts = ["2026-11-18T09:00:00.12Z", '"2026-11-18 10:30:00.12+01:30"', "2026-11-18T09:00:00.12"]
        assert read(TIME, *texts) == [moment] * 3
        assert read(TIME, *texts, is_utc=False) == [moment, moment, "unsure"]
        assert read(LOCAL_TIME, *texts) == ["unsure", "unsure", moment.replace(tzinfo=None)]
        bad = [
            "1700000000",
            "2026-02-29T00:00:00Z",
            "2026-11-18",
            "2026-11-18T09:00:00.1234567Z",
            "2026-11-18T09:00:00.",
        ]
        assert read(TIME, *bad) == ["unsure"] * len(bad)

    def test_decodes_dates(self) -> None:
        texts = ["2026-11-18", '"0001-01-01"', "2024-02-29", "2026-02-29", "2026-1-1", " 2026-11-18", "2026-11-18x"]
        days = [date(2026, 11, 18), date(1, 1, 1), date(2024, 2, 29)]
        assert read(pyarrow.date32(), *texts) == [*days, *["unsure"] * 4]

    @pytest.mark.parametrize(
        "value", [b"", b"1", b"1,x", b"1,x,2,3", b"1,x,2,", b'1,"x,2', b"1,\xff,2", b"1,x,y", b","]
    )
    def test_leaves_no_row_of_an_unsure_value(self, value: bytes) -> None:
        schema = pyarrow.schema([("a", pyarrow.int64()), ("s", pyarrow.string()), ("b", pyarrow.int64())])
        good = b"1,x,2"
        found = CsvReader(schema).read(pyarrow.array([good, value, good], pyarrow.binary()))
        assert found.unsure == [1]
        assert found.rows.to_pylist() == [{"a": 1, "s": "x", "b": 2}] * 2

    def test_decodes_null_to_a_row_of_nulls_unless_a_column_is_required(self) -> None:
        schema = pyarrow.schema([("a", pyarrow.int64()), ("b", pyarrow.string())])
        values = pyarrow.array([None, b",", b',""', b"1,"], pyarrow.binary())
        assert CsvReader(schema).read(values).rows.column("a").to_pylist() == [None, None, None, 1]
        assert CsvReader(schema, ["a"]).read(values).unsure == [0, 1, 2]

    @pytest.mark.parametrize("separator", sorted(SEPARATORS))
    def test_divides_tokens_by_its_separator_alone(self, separator: str) -> None:
        schema = pyarrow.schema([("a", pyarrow.string()), ("b", pyarrow.string())])
        others = "".join(sorted(SEPARATORS - {separator}))
        value = f'"x{separator}y"{separator}{others}'.encode()
        found = CsvReader(schema, separator=separator).read(pyarrow.array([value], pyarrow.binary()))
        assert found.rows.to_pylist() == [{"a": f"x{separator}y", "b": others}]

    def test_reads_slices_and_several_batches(self) -> None:
        values = pyarrow.array([f"{index},x".encode() if index % 7 else None for index in range(1000)])
        reader = CsvReader(pyarrow.schema([("a", pyarrow.int64()), ("b", pyarrow.string())]))
        found = [reader.read(values[start : start + 13]).rows.column("a").to_pylist() for start in range(0, 1000, 13)]
        assert [value for some in found for value in some] == [index if index % 7 else None for index in range(1000)]

    def test_finds_long_values_unsure(self) -> None:
        reader = CsvReader(pyarrow.schema([("a", pyarrow.string())]))
        values = pyarrow.array([b"x" * 1_000_000, b"x" * 1_000_001], pyarrow.binary())
        assert reader.read(values).unsure == [1]


def test_both_engines_agree_on_random_values() -> None:
    random = Random(20261118)
    for _ in range(30):
        schema = random_schema(random)
        values = [random_value(random, schema) for _ in range(100)]
        ours, plain = (decode_random(schema, values, codec) for codec in (engine.csv_codec, csv_codec))
        assert ours.unsure == plain.unsure
        assert ours.rows.equals(plain.rows)


@pytest.mark.parametrize("kind", SIMPLE)
def test_values_as_programs_write_them_are_sure(kind: str) -> None:
    random, schema = Random(kind), {"c0": kind, "c1": "STRING"}
    found = decode_random(schema, [good_value(random, schema) for _ in range(2_000)], engine.csv_codec)
    assert len(found.unsure) < 10


def test_decodes_what_pyarrow_and_python_decode() -> None:
    random = Random(7)
    schema = {"c0": "BIGINT", "c1": "STRING", "c2": "DOUBLE", "c3": "DATE"}
    rows = [good_value(random, schema) for _ in range(500)]
    found = decode_random(schema, [*rows], engine.csv_codec)
    assert found.unsure == []
    kinds = {name: arrow_type(kind) for name, kind in schema.items()}
    by_pyarrow = pyarrow.csv.read_csv(
        io.BytesIO(b"\n".join(rows)),
        pyarrow.csv.ReadOptions(column_names=list(schema)),
        convert_options=pyarrow.csv.ConvertOptions(column_types={**kinds, "c0": pyarrow.string()}),
    )  # its integers have no sign +
    ours = pyarrow.Table.from_batches([found.rows])
    assert ours.drop_columns("c0").equals(by_pyarrow.drop_columns("c0"))
    by_python = csv.reader(row.decode() for row in rows)
    assert ours["c0"].to_pylist() == [int(row[0]) for row in by_python]


def test_random_bytes_and_truncations_do_no_harm() -> None:
    random = Random(1)
    schema = {f"c{index}": kind for index, kind in enumerate(SIMPLE)}
    whole = good_value(random, schema)
    values = [whole[:end] for end in range(whole.rindex(b","))]
    values += [random.randbytes(random.randrange(60)) for _ in range(20_000)]
    letters = [token.encode() for token in ODD_TOKENS] + [b",", b'"', b"\xef\xbf", b"\xf0\x9f", b"9", b"-"]
    values += [b"".join(random.choices(letters, k=random.randrange(40))) for _ in range(20_000)]
    values += [b'"' * 500_000, b"," * 500_000, b"\xf0" * 500_000, b'","' * 300_000]
    found = decode_random(schema, [*values], engine.csv_codec)
    assert len(found.unsure) == len(values)
    one = decode_random({"c0": "STRING"}, [*values], engine.csv_codec)
    assert 0 < len(one.unsure) < len(values)


def test_rejects_types_and_separators_that_it_never_reads() -> None:
    for kind in (pyarrow.binary(), pyarrow.list_(pyarrow.int64()), pyarrow.struct([("x", pyarrow.int64())])):
        with pytest.raises(UnsupportedType, match="column 'a' is"):
            CsvReader(pyarrow.schema([("a", kind)]))
    for separator in ('"', "\\", "\n", "ab", "", "é"):
        with pytest.raises(ValueError, match="is not supported"):
            CsvReader(pyarrow.schema([("a", pyarrow.string())]), separator=separator)


def decode_random(schema: dict[str, str], values: list[bytes | None], codec: Any) -> DecodedValues:
    arrow = pyarrow.schema([(name, arrow_type(kind)) for name, kind in schema.items()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "csv_codec", codec)
        found = CsvReader(arrow).read(pyarrow.array(values, pyarrow.binary()))
    found.rows.validate(full=True)
    return found
