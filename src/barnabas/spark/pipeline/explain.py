"""Why a record cannot be read: its value is read once more, slowly, by Python, until something is wrong.

Spark's parsers only say that a value is bad. What they say it of is rare, so the cause and the stack may cost.
"""

from __future__ import annotations

import csv
import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from barnabas.spark.pipeline.avro import AvroReader
from barnabas.spark.pipeline.definition import Format


@dataclass(frozen=True, slots=True)
class Column:
    """Of a schema: `kind` is Spark's simple name, such as bigint."""

    name: str
    kind: str
    is_required: bool


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the values of a source should be."""

    format: Format
    columns: Sequence[Column] = ()
    separator: str = ","
    avro: AvroReader | None = None


def explain(expected: Expectation, value: bytes | None) -> tuple[str, str]:
    """The cause in one sentence, and the stack."""
    try:
        if value is None:
            _check_required(dict.fromkeys((column.name for column in expected.columns), None), expected.columns)
        else:
            _READERS[expected.format](expected, bytes(value))
        raise ValueError(f"Spark cannot read it as {expected.format.value} with the columns of the schema")
    except Exception as error:
        return f"{type(error).__name__}: {error}", traceback.format_exc()


def _read_json(expected: Expectation, value: bytes) -> None:
    document = json.loads(value.decode())
    if not isinstance(document, dict):
        raise ValueError(f"the value is {_shown(document)}, not an object with columns")
    _check_required(document, expected.columns)
    for column in expected.columns:
        _check(column, document.get(column.name), _JSON_TYPES)


def _read_csv(expected: Expectation, value: bytes) -> None:
    text = value.decode()
    if "\uffff" in text:
        raise ValueError("the line has U+FFFF, which would end it for Spark")
    rows = list(csv.reader([text], delimiter=expected.separator))
    cells = rows[0] if rows else []
    if len(cells) != len(expected.columns):
        raise ValueError(f"the line has {len(cells)} cells, and the schema {len(expected.columns)} columns")
    row = {column.name: cell or None for column, cell in zip(expected.columns, cells)}
    _check_required(row, expected.columns)
    for column in expected.columns:
        _check(column, row[column.name], _CSV_TYPES)


def _read_text(expected: Expectation, value: bytes) -> None:
    value.decode()


def _read_avro(expected: Expectation, value: bytes) -> None:
    assert expected.avro is not None
    expected.avro.read(value)


_READERS: Mapping[Format, Callable[[Expectation, bytes], None]] = {
    Format.JSON: _read_json,
    Format.CSV: _read_csv,
    Format.TEXT: _read_text,
    Format.BYTES: lambda expected, value: None,
    Format.AVRO: _read_avro,
}


def _check_required(row: Mapping[str, Any], columns: Sequence[Column]) -> None:
    for column in columns:
        if column.is_required and row.get(column.name) is None:
            state = "null" if column.name in row else "missing"
            raise ValueError(f"column {column.name!r} is {state}, and the schema says NOT NULL")


def _check(column: Column, value: Any, accepts: Mapping[str, Callable[[Any], object]]) -> None:
    """Raise an error that names the column if its type cannot take the value."""
    check = accepts.get(column.kind.partition("(")[0].partition("<")[0])
    if value is None or check is None:
        return
    try:
        fits = check(value)
    except (ValueError, ArithmeticError, TypeError):
        fits = False
    if fits is False:
        raise ValueError(f"column {column.name!r} is {_shown(value)}, not {column.kind}")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _is_whole(bits: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(check: Callable[[Any], bool], convert: Callable[[str], Any]) -> Callable[[Any], bool]:
    return lambda value: check(convert(value))


_WHOLE_NUMBERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_JSON_TYPES: Mapping[str, Callable[[Any], object]] = {
    **{name: _is_whole(bits) for name, bits in _WHOLE_NUMBERS.items()},
    **dict.fromkeys(("float", "double", "decimal"), _is_number),
    "boolean": lambda value: isinstance(value, bool),
    "timestamp": lambda value: isinstance(value, int) or datetime.fromisoformat(value),
    "date": lambda value: isinstance(value, int) or date.fromisoformat(value),
    "array": lambda value: isinstance(value, list),
    "struct": lambda value: isinstance(value, dict),
    "map": lambda value: isinstance(value, dict),
}
_CSV_TYPES: Mapping[str, Callable[[Any], object]] = {
    **{name: _cell(_is_whole(bits), int) for name, bits in _WHOLE_NUMBERS.items()},
    **dict.fromkeys(("float", "double"), _cell(_is_number, float)),
    "decimal": Decimal,
    "boolean": lambda value: value.lower() in ("true", "false"),
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
}
