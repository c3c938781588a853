"""Decodes one CSV value as Spark's from_csv does by default: what can be read of it, and why the rest cannot.

This is the slow way, for values that the compiled decoder is not sure of, in the mode PERMISSIVE: a column whose token
is missing or unfit is null, and tokens behind the last column are left out. Two things are stricter: bytes that are not
UTF-8, and U+FFFF, which ends a line for from_csv, make the value unreadable as a whole. A byte order mark belongs to
the text; from_csv leaves it out of the first value that it parses, and of no other.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import tzinfo
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

from pyspark.sql import types

from barnabas.spark.lenient.csv_tokens import CsvError, CsvTokens
from barnabas.spark.lenient.java_numbers import nearest_float
from barnabas.spark.lenient.json_values import rounded_decimal
from barnabas.spark.lenient.times import parse_date, parse_timestamp, parse_timestamp_ntz

_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,10})?")
_FLOAT = re.compile(r"([+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?", re.ASCII)
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?", re.ASCII)
_ENDLESS = {"NaN": math.nan, "+NaN": math.nan, "-NaN": math.nan}
_ENDLESS |= {"Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}
_SPARKS_ENDLESS = {"Inf": math.inf, "-Inf": -math.inf}
_BLANKS = "".join(map(chr, range(33)))  # of Java's trim()
_MOST_DIGITS = 100  # more than any column takes
_MOST_SHOWN = 50

Convert: TypeAlias = Callable[[str], Any]
"""None for a token that the type cannot take."""


class LenientCsv:
    """Reads lines into the fields of a schema; `zone` is that of timestamps which name none."""

    def __init__(self, schema: types.StructType, zone: tzinfo, separator: str = ",") -> None:
        self._tokens = CsvTokens(separator)
        self._fields = [(each.name, each.dataType.simpleString(), _converter(each.dataType, zone)) for each in schema]

    def read(self, value: bytes) -> tuple[dict[str, Any], str | None]:
        """The fields that can be read, and the reason why others cannot."""
        try:
            line = value.decode()
            if "\uffff" in line:
                return {}, "the line has U+FFFF, which would end it for Spark"
            tokens = self._tokens.divide(line) if line else []
        except UnicodeDecodeError as problem:
            return {}, f"not UTF-8: {problem.reason} at byte {problem.start}"
        except CsvError as problem:
            return {}, f"not CSV: {problem}"
        reason = None
        if len(tokens) != len(self._fields):
            reason = f"the line has {len(tokens)} tokens, and the schema {len(self._fields)} columns"
        found: dict[str, Any] = {}
        for token, (name, kind, convert) in zip(tokens, self._fields):
            if not token:
                continue
            field = convert(token)
            if field is None:
                reason = reason or f"{name}: {token[:_MOST_SHOWN]!r} is no {kind.upper()}"
            else:
                found[name] = field
        return found, reason


def _converter(kind: types.DataType, zone: tzinfo) -> Convert:
    if isinstance(kind, types.DecimalType):
        return partial(_decimal, kind)
    if isinstance(kind, types.TimestampType):
        return lambda token: parse_timestamp(token, zone)
    return _SIMPLE[type(kind)]


def _boolean(token: str) -> bool | None:
    return {"TRUE": True, "FALSE": False}.get(token.upper())


def _integer(bits: int, token: str) -> int | None:
    """Java takes the digits of all scripts, as far as they are one char each."""
    if not _INTEGER.fullmatch(token) or any(letter > "\uffff" for letter in token):
        return None
    digits = token.lstrip("+-").lstrip("0")
    if len(digits) > _MOST_DIGITS:
        return None
    number = int(token[: -len(digits)][:1] + digits) if digits else 0
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _double(token: str) -> float | None:
    return _floating(float, token)


def _float(token: str) -> float | None:
    found = _floating(nearest_float, token)
    return None if found is None else _as_float(found)


def _floating(parse: Callable[[str], float], token: str) -> float | None:
    if token in _SPARKS_ENDLESS:
        return _SPARKS_ENDLESS[token]
    text = token.strip(_BLANKS)
    if text in _ENDLESS:
        return _ENDLESS[text]
    if match := _FLOAT.fullmatch(text):
        return parse(match[1])
    if match := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return math.copysign(math.inf, -1 if text.startswith("-") else 1)
    return None


def _as_float(value: float) -> float:
    """Of 32 bits; only a hexadecimal number has more."""
    try:
        (rounded,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(rounded)


def _decimal(kind: types.DecimalType, token: str) -> Decimal | None:
    text = token.replace(",", "")
    if not _DECIMAL.fullmatch(text) or any(letter > "\uffff" for letter in text):
        return None
    return rounded_decimal(Decimal(text), kind.precision, kind.scale)


_SIMPLE: Mapping[type[types.DataType], Convert] = {
    types.BooleanType: _boolean,
    types.ByteType: partial(_integer, 8),
    types.ShortType: partial(_integer, 16),
    types.IntegerType: partial(_integer, 32),
    types.LongType: partial(_integer, 64),
    types.FloatType: _float,
    types.DoubleType: _double,
    types.StringType: str,
    types.BinaryType: str.encode,
    types.DateType: parse_date,
    types.TimestampNTZType: parse_timestamp_ntz,
}
READABLE_TYPES: tuple[type[types.DataType], ...] = (*_SIMPLE, types.TimestampType, types.DecimalType)
"""A token has no types inside it."""
