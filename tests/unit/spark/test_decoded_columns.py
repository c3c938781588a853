"""Rows that a task makes of records whose values it decodes."""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest

from barnabas.spark.ddl import parse_ddl
from barnabas.spark.decoded_columns import ColumnDecoder, MalformedValue
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.schema import arrow_schema
from barnabas.spark.value_fields import Mode, ValueFields

RANGE = OffsetRange("t", 3, 10, 20)
FIELDS = parse_ddl("id BIGINT, at TIMESTAMP, tags MAP<STRING, INT>")
VALUES = [b'{"id":1,"at":"2026-11-18 09:00:00"}', b'{"id":"x","tags":{"a":1}}', None, b"{", b'{"id":5}']


def decoded(columns: str, mode: Mode = Mode.PERMISSIVE, values: list[bytes | None] = VALUES) -> list[dict[str, Any]]:
    decoder = ColumnDecoder(ValueFields("json", FIELDS, mode, "+01:00"), columns.split(), RANGE)
    raw = {
        "value": pyarrow.array(values, pyarrow.binary()),
        "offset": pyarrow.array(range(10, 10 + len(values)), pyarrow.int64()),
    }
    arrays = [raw[name] for name in decoder.raw_columns]
    batch = pyarrow.RecordBatch.from_arrays(arrays, schema=arrow_schema(decoder.raw_columns))
    rows: list[dict[str, Any]] = pyarrow.Table.from_batches(list(decoder.decode(iter([batch])))).to_pylist()
    return rows


def test_rows_keep_the_order_of_the_records() -> None:
    rows = decoded("id offset tags _corrupt_record")
    assert [(row["id"], row["offset"]) for row in rows] == [(1, 10), (None, 11), (None, 12), (None, 13), (5, 14)]
    assert [row["tags"] for row in rows] == [None, [("a", 1)], None, None, None]
    assert [row["_corrupt_record"] for row in rows] == [
        None, "id: 'x' is no BIGINT", None, "not JSON: it ends within an object", None,
    ]  # fmt: skip


def test_texts_without_a_zone_are_of_the_zone_of_the_read() -> None:
    assert str(decoded("at")[0]["at"]) == "2026-11-18 08:00:00+00:00"


def test_only_chosen_fields_make_a_value_malformed() -> None:
    assert [row["_corrupt_record"] for row in decoded("tags _corrupt_record")[:2]] == [None, None]


def test_values_are_not_decoded_where_nobody_asks() -> None:
    decoder = ColumnDecoder(ValueFields("json", FIELDS, Mode.PERMISSIVE, None), ["offset"], RANGE)
    assert decoder.raw_columns == ("offset",)


def test_malformed_values_are_left_out() -> None:
    assert [row["offset"] for row in decoded("id offset", Mode.DROPMALFORMED)] == [10, 12, 14]
    assert [row["offset"] for row in decoded("offset", Mode.DROPMALFORMED)] == [10, 11, 12, 14]


def test_malformed_value_fails_the_read() -> None:
    expected = "topic 't', partition 3, offset 11: the value cannot be read as json: id: 'x' is no BIGINT"
    with pytest.raises(MalformedValue, match=expected):
        decoded("id", Mode.FAILFAST)
    assert decoded("id", Mode.FAILFAST, VALUES[:1]) == [{"id": 1}]
