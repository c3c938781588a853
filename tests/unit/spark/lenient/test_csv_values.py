"""CSV values that the compiled decoder leaves: what is read of them, and the reasons for the rest."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from barnabas.spark.ddl import parse_ddl
from barnabas.spark.lenient.csv_tokens import CsvTokens
from barnabas.spark.lenient.csv_values import LenientCsv

SCHEMA = parse_ddl("id INT, x DOUBLE, s STRING")


@pytest.mark.parametrize(
    ("value", "fields", "reason"),
    [
        (b"1,NaN,a", {"id": 1, "s": "a"}, None),
        (b"1, 2.5 ,a", {"id": 1, "x": 2.5, "s": "a"}, None),
        (b',"",', {}, None),
        (b"1,2", {"id": 1, "x": 2.0}, "the line has 2 tokens, and the schema 3 columns"),
        (b"1,2,a,b", {"id": 1, "x": 2.0, "s": "a"}, "the line has 4 tokens, and the schema 3 columns"),
        (b"a,2,c", {"x": 2.0, "s": "c"}, "id: 'a' is no INT"),
        (b" 1,two,c", {"s": "c"}, "id: ' 1' is no INT"),
        (b"", {}, "the line has 0 tokens, and the schema 3 columns"),
        (b"1,2,\xff", {}, "not UTF-8: invalid start byte at byte 4"),
        ("1,2,\uffff".encode(), {}, "the line has U+FFFF, which would end it for Spark"),
        (b'"' + b'"\\' * 5_000, {}, "not CSV: quotes and escapes are nested too deeply"),
    ],
)
def test_reads_what_can_be_read_and_says_why_the_rest_cannot(
    value: bytes, fields: dict[str, Any], reason: str | None
) -> None:
    found, why = LenientCsv(SCHEMA, UTC).read(value)
    found = {name: field for name, field in found.items() if field == field}  # NaN
    assert (found, why) == (fields, reason)


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("a;b", ["a", "b"]),
        ("a;", ["a", ""]),
        (";", ["", ""]),
        ('"a;b";c', ["a;b", "c"]),
        ('"a" ;"b" ', ["a", "b"]),
        (r'"a \"b\" c";d', ['a "b" c', "d"]),
        (r'"a\\";d', ["a\\", "d"]),
        ('"a ""b"" c";d', ['"a ""b"" c"', "d"]),
        ('a"b;c', ['a"b', "c"]),
        ('"a;b', ["a;b"]),
    ],
)
def test_divides_lines_with_odd_quotes(line: str, tokens: list[str]) -> None:
    assert CsvTokens(";").divide(line) == tokens
