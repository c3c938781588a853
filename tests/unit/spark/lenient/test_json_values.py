"""What can be read of odd JSON values. That it is what Spark reads is shown by tests/spark/test_lenient_json.py."""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal
from typing import Any

import pytest

from barnabas.spark.ddl import parse_ddl
from barnabas.spark.lenient.java_numbers import double_text, nearest_float
from barnabas.spark.lenient.json_values import LenientJson
from barnabas.spark.lenient.times import parse_date, parse_timestamp, parse_timestamp_ntz


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("STRING", "1.10", "1.1"),
        ("STRING", "1e400", '"Infinity"'),
        ("STRING", '{ "b" : [1, -0, "\\u0001"] }', '{"b":[1,0,"\\u0001"]}'),
        ("STRING", '"\\ud800"', "?"),
        ("TINYINT", "200", -56),
        ("DOUBLE", '"-INF"', float("-inf")),
        ("FLOAT", "16777217", 16777216.0),
        ("DECIMAL(4,2)", "1.005", Decimal("1.01")),
        ("DECIMAL(4,2)", '"1,0"', Decimal("10.00")),
        ("DECIMAL(4,2)", "1e999999999", None),
        ("TIMESTAMP", "1", 1_000_000),
        ("DATE", '"7"', 7),
        ("BINARY", '"YWI="', b"ab"),
        ("BINARY", '"YWI"', None),
        ("ARRAY<INT>", '[1, "x"]', None),
        ("ARRAY<STRUCT<x: INT>>", '[{"x": 1}, {"x": "y"}]', [{"x": 1}, {}]),
        ("MAP<STRING, INT>", '{"x": 1, "y": "z"}', None),
        ("BOOLEAN", "'true'", None),
    ],
)
def test_odd_values_of_a_field(kind: str, text: str, found: Any) -> None:
    row, reason = LenientJson(parse_ddl(f"a {kind}"), UTC).read(f'{{"a": {text}}}'.encode())
    assert row.get("a") == found
    assert (reason is None) == (found is not None and "{}" not in str(found))


@pytest.mark.parametrize(
    ("value", "found", "reason"),
    [
        (b"", {}, None),
        (b" \n", {}, None),
        (b"null", {}, "a JSON object is expected, not null"),
        (b"[]", {}, "a JSON object is expected, not ["),
        (b'{"a": 1} x', {}, "not JSON: 'x' follows the value"),
        (b'{"a": 1, "a": 2}', {"a": 2}, None),
        (b"{'a': 3}", {"a": 3}, None),
        (b'{"A": 3}', {}, None),
        (b'{"a": \xff}', {}, "not UTF-8: invalid start byte at byte 6"),
        (b'{"a": 01}', {}, "not JSON: the number at position 7 begins with a zero"),
        (b'{"x":' * 1001, {}, "not JSON: it is nested deeper than 1000 levels"),
    ],
)
def test_odd_values_as_a_whole(value: bytes, found: dict[str, Any], reason: str | None) -> None:
    assert LenientJson(parse_ddl("a INT"), UTC).read(value) == (found, reason)


def test_numbers_are_written_as_java_writes_them() -> None:
    texts = [double_text(number) for number in (0.001, 1e-5, 1e7, 1234567.0, 2.0**-1074, 2e-3, 8.41e21, -0.0)]
    assert texts == ["0.001", "1.0E-5", "1.0E7", "1234567.0", "4.9E-324", "0.002", "8.409999999999999E21", "-0.0"]


def test_floats_are_rounded_once() -> None:
    assert nearest_float("1.00000017881393432617187499") == 1.0000001192092896
    assert nearest_float("1.00000017881393432617187501") == 1.000000238418579
    assert nearest_float("3.5e38") == float("inf")


def test_texts_of_times() -> None:
    assert parse_date(" 2024-2-29T") == 19782
    assert parse_date("2023-02-29") is None
    assert parse_timestamp("2024-03-31 02:30:00 Europe/Berlin", UTC) == 1_711_848_600_000_000
    assert parse_timestamp("2024-03-31T02:30:00GMT+1", UTC) == 1_711_848_600_000_000
    assert parse_timestamp("2024-03-31T02:30:00 Nowhere", UTC) is None
    assert parse_timestamp_ntz("2024") == 1_704_067_200_000_000
    assert parse_timestamp_ntz("2024-01-01 00:00:00Z") is None
