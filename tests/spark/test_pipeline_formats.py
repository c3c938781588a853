"""From records to rows: what each format makes of good and of bad values, and tables of the newest rows."""

from __future__ import annotations

import io
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from fastavro import parse_schema, schemaless_writer

from barnabas.spark.pipeline.definition import Format, Source
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.formats import make_decoder
from barnabas.spark.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def avro(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(AVRO), row)
    return b"\0\0\0\0\7" + out.getvalue()


def records(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    columns = ["key", "value", "topic", "partition", "offset", "timestamp"]
    rows = [(b"k", value, "t", 0, offset, None) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, spark_schema(columns)).coalesce(1)


def read(spark: SparkSession, source: Source, values: list[bytes | None]) -> tuple[list[tuple[Any, ...]], list[int]]:
    """The rows without their origin, and the offsets of the records that cannot be read."""
    decoder, frame = make_decoder(source), records(spark, values)
    rows = decoder.decode(frame, stop_at_bad=False)
    assert rows.columns[-4:] == ["_topic", "_partition", "_offset", "_timestamp"]
    good = [tuple(row)[:-4] for row in rows.collect()]
    return good, [row.offset for row in decoder.bad(frame).collect()]


MOMENT = datetime(2026, 11, 16, 10)  # noqa: DTZ001  # Spark gives times without zone
JSON = Source("s", ("t",), schema="id INT NOT NULL, x DOUBLE, at TIMESTAMP, tags ARRAY<STRING>", key="k")
BAD_JSON = [
    *(b'{"x":1}', b'{"id":"ten"}', b'{"id":1,"at":"soon"}', b'{"id":3000000000}'),
    *(b'{"id":', b"[]", b"7", b"", None, b"\xff"),
    *(b'{"id":1} junk', b'{"id":1}{"id":2}', b'{"id":1},{"id":2}', b'{"id":1}}', b'{"id":1}]} junk', b'{"id":1},"x":2'),
]
CSV = Source("s", ("t",), format=Format.CSV, schema="id INT NOT NULL, x DOUBLE, s STRING", options={"sep": ";"})


@pytest.mark.parametrize(
    ("source", "values", "good", "bad"),
    [
        (
            JSON,
            [b'{"id":1,"x":1.5,"at":"2026-11-16T10:00:00Z","tags":["a"]}', b' {"id":2,"more":1}\n', *BAD_JSON],
            [("k", 1, 1.5, MOMENT, ["a"]), ("k", 2, None, None, None)],
            [*range(2, 18)],
        ),
        (
            CSV,
            [
                b"1;2.5;a",
                b"1;;",
                b"1;2.5",
                b"1;2;3;4",
                b";2;c",
                b"a;2;c",
                b"",
                None,
                b"\xff",
                b"1;;\xef\xbf\xbf;",
                b"2;;",
            ],
            [(1, 2.5, "a"), (1, None, None), (2, None, None)],
            [2, 3, 4, 5, 6, 7, 8, 9],
        ),
        (Source("s", ("t",), format=Format.TEXT), [b"a", b"", None, b"\xff"], [("a",), ("",), (None,)], [3]),
        (Source("s", ("t",), format=Format.BYTES), [b"a", None, b"\xff"], [(b"a",), (None,), (b"\xff",)], []),
        (
            Source("s", ("t",), format=Format.AVRO, schema=json.dumps(AVRO)),
            [avro({"id": 1, "note": None, "at": MOMENT, "tags": ["a"]}), b"abc", b"\0\0\0\0\1", None],
            [(1, None, MOMENT, ["a"])],
            [1, 2, 3],
        ),
    ],
    ids=["json", "csv", "text", "bytes", "avro"],
)
def test_a_format_reads_what_fits_its_schema_and_nothing_else(
    spark: SparkSession, source: Source, values: list[bytes | None], good: list[tuple[Any, ...]], bad: list[int]
) -> None:
    assert read(spark, source, values) == (good, bad)


def test_a_table_has_the_newest_row_of_each_key_and_none_that_was_deleted(spark: SparkSession) -> None:
    source = Source("s", ("t",), schema="id INT NOT NULL, s STRING", newest_by=("id",))
    assert read(spark, source, [b'{"id":1,"s":"a"}', b'{"id":2,"s":"b"}', b'{"id":1,"s":"c"}']) == (
        [(1, "c"), (2, "b")],
        [],
    )
    by_key = Source("s", ("t",), schema="id INT NOT NULL, s STRING", key="k", newest_by=("k",))
    assert read(spark, by_key, [b'{"id":1,"s":"a"}', None]) == ([], [])


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (Source("s", ("t",), schema="id INTEGR"), "source 's': its schema is not in Spark's language"),
        (Source("s", ("t",), schema="_offset INT"), "column '_offset' is there twice"),
        (Source("s", ("t",), schema="id INT", newest_by=("ident",)), "newest_by names 'ident', which is no column"),
    ],
)
def test_a_wrong_schema_is_told_with_its_source(spark: SparkSession, source: Source, problem: str) -> None:
    with pytest.raises(PipelineError, match=problem):
        make_decoder(source)
