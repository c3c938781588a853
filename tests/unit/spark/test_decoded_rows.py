"""Rows as the data source hands them to Spark where tasks decode values."""

from __future__ import annotations

import pyarrow
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from barnabas.client.options import WrongOption
from barnabas.spark.decoded_rows import decode_batches, decoded_schema
from barnabas.spark.decoding import Decoding, value_reader, without
from barnabas.spark.options import parse_batch_options, parse_decoding
from barnabas.spark.schema import arrow_schema

FIELDS = StructType().add("id", LongType()).add("name", StringType())
JSON = Decoding("json", FIELDS.json(), ("id",), is_utc=True)
COLUMNS = ("value", "offset")


def batch(values: list[bytes | None]) -> pyarrow.RecordBatch:
    arrays = [pyarrow.array(values, pyarrow.binary()), pyarrow.array(range(len(values)), pyarrow.int64())]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=arrow_schema(COLUMNS))


def test_values_that_are_unsure_stay_raw() -> None:
    values = [b'{"id":1,"name":"a"}', b'{"id":2,"name":3}', b"junk", b'{"id":4}', None]
    (found,) = decode_batches(iter([batch(values)]), COLUMNS, JSON)
    assert found.to_pylist() == [
        {"value": None, "offset": 0, "parsed": {"id": 1, "name": "a"}},
        {"value": b'{"id":2,"name":3}', "offset": 1, "parsed": None},
        {"value": b"junk", "offset": 2, "parsed": None},
        {"value": None, "offset": 3, "parsed": {"id": 4, "name": None}},
        {"value": None, "offset": 4, "parsed": None},
    ]
    assert found.schema.names == decoded_schema(COLUMNS, JSON).names


def test_a_batch_without_unsure_values_has_no_raw_ones() -> None:
    (found,) = decode_batches(iter([batch([b'{"id":1}'] * 3)]), COLUMNS, JSON)
    assert found.column("value").null_count == 3
    assert found.column("parsed").null_count == 0


def test_a_decoding_survives_the_way_through_options() -> None:
    assert Decoding.load(JSON.dump()) == JSON
    assert parse_decoding({"decoding": JSON.dump()}) == JSON
    assert parse_decoding({}) is None
    with pytest.raises(WrongOption, match="decoding="):
        parse_batch_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "decoding": "{}"})


def test_text_that_is_not_utf_8_is_unsure() -> None:
    decoding = Decoding("text", StructType().add("value", StringType()).json(), (), is_utc=True)
    rows, unsure = value_reader(decoding)(pyarrow.array([b"a", b"\xff", None], pyarrow.binary()))
    assert (rows.column(0).to_pylist(), unsure) == (["a", None], [1])


def test_rows_can_be_left_out() -> None:
    assert without(pyarrow.array([1, 2, 3]), [1]).to_pylist() == [1, 3]
