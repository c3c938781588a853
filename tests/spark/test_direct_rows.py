"""The direct path gives the rows that the Spark path gives: the oracle is Spark's own decoder, record by record."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from fastavro import parse_schema

from barnabas.records.csv_columns import SEPARATORS
from barnabas.spark.decoded_rows import PARSED, decode_batches
from barnabas.spark.direct.decoding import RowDecoder
from barnabas.spark.pipeline.definition import Format, Source
from barnabas.spark.pipeline.formats import Decoder, make_decoder
from barnabas.spark.pipeline.paths import decoding_of
from barnabas.spark.schema import arrow_schema, spark_schema
from tests import csv_values
from tests.avro_values import Data
from tests.json_values import ddl, random_schema, random_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = (3, 15, 21)
"""Of schemas with many types, whose values are often sure."""
VALUES = 2_000
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}]},
        {"name": "sizes", "type": {"type": "map", "values": ["null", "double"]}},
        {"name": "notes", "type": {"type": "array", "items": ["null", "string"]}},
        {
            "name": "place",
            "type": [
                "null",
                {"type": "record", "name": "Place", "fields": [{"name": "day", "type": ["null", "int"]}]},
            ],
        },
        {"name": "id", "type": "long", "default": 5},
    ],
}


def raw_records(values: list[bytes | None]) -> pyarrow.RecordBatch:
    rows = len(values)
    schema = arrow_schema(COLUMNS)
    keys = pyarrow.array([b"k%d" % index for index in range(rows)], pyarrow.binary())
    times = pyarrow.array(range(rows), pyarrow.int64()).view(schema.field("timestamp").type)
    arrays = [
        keys, pyarrow.array(values, pyarrow.binary()), pyarrow.repeat("t", rows),
        pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), rows), pyarrow.array(range(rows), pyarrow.int64()), times,
    ]  # fmt: skip
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def rows_by_spark(spark: SparkSession, decoder: Decoder, records: pyarrow.RecordBatch) -> pyarrow.Table:
    from pyspark.sql.types import StructField, StructType

    schema = spark_schema(COLUMNS)  # Spark would take timestamps without a zone for those of the session
    if PARSED in records.schema.names:
        schema = schema.add(PARSED, StructType([StructField(each.name, each.dataType) for each in decoder.schema]))
    frame = spark.createDataFrame(pyarrow.Table.from_batches([records]), schema).coalesce(1)
    return decoder.decode(frame, stop_at_bad=False).toArrow().sort_by("_offset")


def with_nulls(records: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """The same, but that Spark may know of fields without a value in a struct that has none."""
    at = records.schema.get_field_index(PARSED)
    parsed = records.column(at)
    fields = [field.with_nullable(True) for field in parsed.type]
    children = [parsed.field(index) for index in range(len(fields))]
    return records.set_column(
        at, PARSED, pyarrow.StructArray.from_arrays(children, fields=fields, mask=parsed.is_null())
    )


def check_sure_rows(spark: SparkSession, source: Source, values: list[bytes | None], *, least: float) -> None:
    """All rows that tasks are sure of are those of Spark, and at least that part of the values is sure."""
    decoder, records = make_decoder(source), raw_records(values)
    decoded = RowDecoder(decoding_of(spark, decoder), source.key).decode(records)
    by_spark = rows_by_spark(spark, decoder, records)
    sure = set(decoded.rows.column("_offset").to_pylist())
    assert len(sure) + (0 if decoded.unsure is None else len(decoded.unsure)) == len(values)
    assert len(sure) > least * len(values)
    expected = by_spark.filter(pyarrow.compute.is_in(by_spark["_offset"], decoded.rows.column("_offset")))
    ours = pyarrow.Table.from_batches([decoded.rows])
    assert ours.column_names == expected.column_names
    assert len(ours) == len(expected), "a value that Spark rejects was sure"
    for name in ours.column_names:
        assert ours[name].equals(expected[name].cast(ours[name].type)), name
    [both] = decode_batches(iter([records]), records.schema.names, decoding_of(spark, decoder))
    by_both = rows_by_spark(spark, decoder, with_nulls(both))
    assert by_both.schema == by_spark.schema
    for name in by_spark.column_names:
        assert are_equal(by_both[name], by_spark[name]), f"{name}: decoded by tasks, and the unsure ones by Spark"


def are_equal(one: pyarrow.ChunkedArray, other: pyarrow.ChunkedArray) -> bool:
    """NaN is equal to itself here."""
    return one.equals(other) or repr(one.to_pylist()) == repr(other.to_pylist())


@pytest.mark.parametrize("seed", SEEDS)
def test_json_rows_that_tasks_decode_are_those_of_spark(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    fields = random_schema(random)
    required = frozenset(name for name in fields if random.random() < 0.1)
    source = Source("s", ("t",), schema=ddl(fields, required), key="k")
    check_sure_rows(spark, source, [random_value(random, fields) for _ in range(VALUES)], least=0.01)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(4, 100))])
def test_csv_rows_that_tasks_decode_are_those_of_spark(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    fields = csv_values.random_schema(random)
    required = frozenset(name for name in fields if random.random() < 0.1)
    separator = csv_values.SEPARATORS[seed % len(csv_values.SEPARATORS)]
    options = {} if separator == "," else {"sep": separator}
    source = Source("s", ("t",), format=Format.CSV, schema=ddl(fields, required), key="k", options=options)
    values = [csv_values.random_value(random, fields, separator) for _ in range(VALUES)]
    check_sure_rows(spark, source, values, least=0.1)


@pytest.mark.parametrize(("form", "text"), [(Format.JSON, '{"c0":%s}'), (Format.CSV, "%s")], ids=["json", "csv"])
def test_floats_are_rounded_as_in_spark(spark: SparkSession, form: Format, text: str) -> None:
    """Also those that are near to the middle between two."""
    random, numbers = Random(1), []
    for _ in range(VALUES):
        (low,) = struct.unpack("<f", struct.pack("<f", random.gauss(0, 1) * 10 ** random.randint(-37, 37)))
        (bits,) = struct.unpack("<I", struct.pack("<f", low))
        (high,) = struct.unpack("<f", struct.pack("<I", bits + 1))
        middle = (
            (Decimal(low) + Decimal(high)) / 2 * (1 + random.choice((0, 1, -1)) * Decimal(10) ** -random.randint(8, 25))
        )
        numbers += [repr(low), f"{low:.9g}", f"{middle:.{random.randint(8, 40)}g}"]
    source = Source("s", ("t",), format=form, schema="c0 FLOAT", key="k")
    check_sure_rows(spark, source, [(text % number).encode() for number in numbers], least=0.6)


@pytest.mark.proof
@pytest.mark.parametrize("separator", sorted(SEPARATORS))
def test_any_separator_divides_as_in_spark(spark: SparkSession, separator: str) -> None:
    random = Random(separator)
    fields = {"c0": "STRING", "c1": "STRING"}
    source = Source("s", ("t",), format=Format.CSV, schema=ddl(fields), key="k", options={"sep": separator})
    values = [csv_values.random_value(random, fields, separator) for _ in range(VALUES)]
    check_sure_rows(spark, source, values, least=0.1)


@pytest.mark.parametrize(
    ("source", "values", "unsure"),
    [
        (Source("s", ("t",), format=Format.TEXT), [b"a", None, b"\xff", "é".encode(), b""], [2]),
        (Source("s", ("t",), format=Format.BYTES, key="k"), [b"a", None, b"\xff", b""], []),
    ],
    ids=["text", "bytes"],
)
def test_values_without_fields_are_decoded_in_tasks(
    spark: SparkSession, source: Source, values: list[bytes | None], unsure: list[int]
) -> None:
    decoder, records = make_decoder(source), raw_records(values)
    decoded = RowDecoder(decoding_of(spark, decoder), decoder.source.key).decode(records)
    found = [] if decoded.unsure is None else decoded.unsure.column("offset").to_pylist()
    assert found == unsure
    by_spark = rows_by_spark(spark, decoder, records)
    assert pyarrow.Table.from_batches([decoded.rows]).to_pylist() == by_spark.to_pylist()


def test_avro_rows_that_tasks_decode_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    random, writers = Random(1), {7: AVRO, 8: {**AVRO, "fields": AVRO["fields"][::-1][1:]}}
    for number, schema in writers.items():
        (tmp_path / f"{number}.avsc").write_text(json.dumps(schema))
    source = Source("s", ("t",), format=Format.AVRO, schema=json.dumps(AVRO), registry=str(tmp_path), key="k")
    values = [None, b"", b"\0\0\0\0\11\2"]
    for number in random.choices([7, 8], k=VALUES):
        parsed: Any = parse_schema(writers[number])
        values.append(b"\0\0\0\0" + bytes([number]) + Data(random, parsed["__named_schemas"]).value(parsed))
    decoder, records = make_decoder(source), raw_records(values)
    decoded = RowDecoder(decoding_of(spark, decoder), source.key).decode(records)
    by_spark = rows_by_spark(spark, decoder, records)
    ours = pyarrow.Table.from_batches([decoded.rows])
    assert VALUES // 2 < len(ours) < VALUES
    assert ours.column_names == by_spark.column_names
    assert repr(ours.to_pylist()) == repr(by_spark.to_pylist())  # NaN is not equal to itself
