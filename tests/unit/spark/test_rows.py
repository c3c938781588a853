"""Batches of the log become Arrow batches of exactly the schema that Spark asks for."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructType

from barnabas.client.consume.chunks import scan
from barnabas.client.options import WrongOption
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.spark import rows
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.rows import RowBatches
from barnabas.spark.schema import ALL_COLUMNS, PLAIN_COLUMNS, arrow_schema, chosen_columns, spark_schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batch(base_offset: int, count: int, compression: Compression = Compression.NONE, **options: Any) -> bytes:
    builder = BatchBuilder(compression, **options)
    for number in range(base_offset, base_offset + count):
        headers = [("a", b"%d" % number), ("b", None)] if number % 3 == 0 else []
        value = None if number % 4 == 3 else b"value %d" % number
        builder.append(b"k%d" % number if number % 2 else None, value, headers, 1000 + number)
    return bytes(builder.build(base_offset))


def row(offset: int, *, timestamp_ms: int | None = None) -> dict[str, Any]:
    milliseconds = 1000 + offset if timestamp_ms is None else timestamp_ms
    return {
        "key": b"k%d" % offset if offset % 2 else None,
        "value": None if offset % 4 == 3 else b"value %d" % offset,
        "topic": "orders",
        "partition": 4,
        "offset": offset,
        "timestamp": EPOCH + timedelta(milliseconds=milliseconds),
        "timestampType": 0 if timestamp_ms is None else 1,
        "headers": [{"key": "a", "value": b"%d" % offset}, {"key": "b", "value": None}] if offset % 3 == 0 else None,
    }


def read(fetched: bytes, start: int, end: int, names: tuple[str, ...] = ALL_COLUMNS) -> list[Any]:
    made = RowBatches(names, OffsetRange("orders", 4, start, end))
    found = list(made.add(scan(memoryview(fetched), start, [])))
    for each in found:
        each.validate(full=True)
        assert each.schema.equals(arrow_schema(names), check_metadata=True)
    return found


def test_the_arrow_schema_is_what_spark_makes_of_its_own() -> None:
    for names in (PLAIN_COLUMNS, ALL_COLUMNS, ("offset",), ("headers", "value")):
        assert arrow_schema(names).equals(to_arrow_schema(spark_schema(names), timezone="UTC"), check_metadata=True)


def test_rows_of_the_range_have_every_column() -> None:
    [found] = read(batch(0, 10) + batch(10, 10, Compression.ZSTD), 5, 17)
    assert found.to_pylist() == [row(offset) for offset in range(5, 17)]


@pytest.mark.parametrize("name", ALL_COLUMNS)
def test_a_column_alone_is_as_it_is_among_all(name: str) -> None:
    [found] = read(batch(0, 10), 2, 9, (name,))
    assert found.to_pylist() == [{name: row(offset)[name]} for offset in range(2, 9)]


def test_columns_come_in_the_order_that_is_asked_for() -> None:
    [found] = read(batch(0, 3), 0, 3, ("offset", "value", "topic"))
    assert found.schema.names == ["offset", "value", "topic"]


def test_the_type_of_a_timestamp_is_that_of_its_batch() -> None:
    [found] = read(batch(0, 2) + batch(2, 2, log_append_time_ms=77) + batch(4, 1), 0, 5)
    assert found.to_pylist() == [row(0), row(1), row(2, timestamp_ms=77), row(3, timestamp_ms=77), row(4)]


def test_batches_are_bounded_in_rows_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = b"".join(batch(base, 10, Compression.GZIP) for base in range(0, 100, 10))
    monkeypatch.setattr(rows, "ROWS_PER_BATCH", 30)
    assert [each.num_rows for each in read(fetched, 0, 100)] == [30, 30, 30, 10]
    monkeypatch.setattr(rows, "BYTES_PER_BATCH", 1)
    assert [each.num_rows for each in read(fetched, 0, 100)] == [10] * 10
    assert [found.to_pylist() for found in read(fetched, 0, 100)][9] == [row(offset) for offset in range(90, 100)]


def test_a_fetch_with_nothing_of_the_range_makes_no_batch() -> None:
    assert read(batch(10, 5), 3, 7) == []


def test_a_timestamp_beyond_what_spark_can_hold_is_an_error() -> None:
    builder = BatchBuilder()
    builder.append(None, b"", timestamp_ms=2**61)
    with pytest.raises(ValueError, match=r"orders-4 \[0, 1\) holds a timestamp that Spark cannot hold"):
        read(bytes(builder.build(0)), 0, 1)


def test_rows_are_made_without_loading_pandas() -> None:
    """Which takes longer than most tasks do."""
    program = (
        "import sys; import test_rows as t; t.read(t.batch(0, 4) + t.batch(4, 4, log_append_time_ms=7), 0, 8);"
        "print([name for name in ('pandas', 'pyspark.pandas') if name in sys.modules])"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, timeout=60, check=True
    )
    assert done.stdout == b"[]\n"


def test_a_schema_of_the_users_chooses_columns() -> None:
    assert chosen_columns(spark_schema(["value", "offset"])) == ("value", "offset")
    assert chosen_columns(spark_schema(["value"]), ("value",)) == ("value",)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (StructType().add("value", StringType()), "the schema has value:string where the source has value:binary"),
        (StructType().add("offset", LongType(), nullable=False), "offset:bigint not null"),
        (StructType().add("ofset", LongType()), "no column 'ofset'; did you mean 'offset'?"),
        (StructType().add("Offset", LongType()), "where the source has offset:bigint"),
        (spark_schema(["offset"]), "columns=value and a schema of other columns exclude each other"),
    ],
)
def test_a_schema_that_is_not_ours_is_refused(schema: StructType, told: str) -> None:
    with pytest.raises(WrongOption, match=told.replace("?", r"\?")):
        chosen_columns(schema, ("value",) if "columns=" in told else None)
