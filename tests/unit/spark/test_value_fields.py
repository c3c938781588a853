"""The options of reads that decode values, and the columns that they give."""

from __future__ import annotations

import json
import pickle
import re
from typing import Any

import pytest

from barnabas.client.options import WrongOption
from barnabas.spark.ddl import parse_ddl
from barnabas.spark.options import parse_batch_options, parse_columns
from barnabas.spark.source import BarnabasSource
from barnabas.spark.value_fields import Mode, ValueFields, parse_value_fields

READ = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
JSON = {"value.format": "json", "value.schema": "id BIGINT, `odd name` ARRAY<INT>"}
AVRO: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
AVRO_OPTIONS = {"value.format": "avro", "value.schema": json.dumps(AVRO)}


def test_values_are_left_alone_without_a_format() -> None:
    assert parse_value_fields(READ) is None
    assert parse_batch_options(READ).fields is None


def test_fields_come_from_ddl_or_an_avro_schema() -> None:
    fields = parse_batch_options(READ | JSON).fields
    assert fields == ValueFields("json", parse_ddl("id LONG, `odd name` ARRAY<INT>"), Mode.PERMISSIVE, None)
    assert pickle.loads(pickle.dumps(fields)) == fields
    avro = parse_batch_options(READ | AVRO_OPTIONS | {"value.framing": "none", "mode": "FailFast"}).fields
    assert avro is not None
    assert avro.avro is not None
    assert (avro.schema.simpleString(), avro.schema["id"].nullable) == ("struct<id:bigint>", True)
    assert (avro.avro.framing, avro.avro.registry, avro.mode) == ("none", None, Mode.FAILFAST)


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, "key topic partition offset timestamp timestampType id odd_name _corrupt_record"),
        (
            {"includeheaders": "true"},
            "key topic partition offset timestamp timestampType headers id odd_name _corrupt_record",
        ),
        ({"columns": "value, ID,_corrupt_record"}, "value id _corrupt_record"),
    ],
)
def test_columns_follow_the_fields(options: dict[str, str], columns: str) -> None:
    expected = tuple(name.replace("odd_name", "odd name") for name in columns.split())
    assert parse_columns(options | JSON, parse_value_fields(JSON)) == expected
    assert tuple(BarnabasSource(READ | JSON | options).schema().fieldNames()) == expected


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"value.format": "xml"}, "value.format='xml' is wrong: it must be one of json, csv, avro"),
        ({"value.format": "json"}, "value.format=json needs value.schema, the fields of the values"),
        ({"value.schema": "id INT"}, "value.schema is for values that are decoded; give value.format, one of"),
        ({"mode": "PERMISSIVE"}, "mode is for values that are decoded; give value.format"),
        (JSON | {"mode": "strict"}, "mode='strict' is wrong: it must be one of permissive, dropmalformed, failfast"),
        (JSON | {"timezone": "Mars"}, "timeZone='Mars' is wrong: it must be a time zone such as Europe/Berlin"),
        (JSON | {"value.registry": "x"}, "value.registry is for value.format=avro"),
        (JSON | {"columns": "id,vaule"}, "no column 'vaule'; did you mean 'value'?"),
        (JSON | {"value.schema": "Offset INT"}, "the field 'Offset', which is the name of a column of the record"),
        (JSON | {"value.schema": "a INT, A INT"}, "value.schema has the fields 'a' and 'A', which Spark takes for one"),
        (JSON | {"value.schema": "a"}, "the end stands where a type that values can be decoded into (BOOLEAN, "),
        (JSON | {"value.schema": "a INTERVAL"}, "'INTERVAL' stands where a type that values can be decoded into"),
        (JSON | {"value.schema": "a-b INT"}, "'-b INT' is out of place; put odd names into `backticks`"),
        (JSON | {"value.schema": "a INT b INT"}, "'b' stands where a comma is expected"),
        (JSON | {"value.schema": "a MAP<INT, INT>"}, "the keys of a MAP are STRING, not INT"),
        (JSON | {"value.schema": "a DECIMAL(39)"}, "DECIMAL(39,0) has at most 38 digits"),
        ({"value.format": "csv", "value.schema": "a ARRAY<INT>"}, "'a' of type array<int>; CSV has only simple types"),
        (AVRO_OPTIONS | {"value.schema": "{}"}, "schema of a record as JSON: not an Avro schema: it lacks 'type'"),
        (AVRO_OPTIONS | {"value.schema": '"int"'}, "its Avro schema is not a record"),
        (AVRO_OPTIONS | {"value.framing": "x"}, "value.framing='x' is wrong: it must be one of confluent, none"),
    ],
)  # fmt: skip
def test_wrong_value_options_are_errors(options: dict[str, str], problem: str) -> None:
    with pytest.raises(WrongOption, match=re.escape(problem)):
        parse_batch_options(READ | options)
    with pytest.raises(WrongOption, match=re.escape(problem)):
        BarnabasSource(READ | options).schema()
