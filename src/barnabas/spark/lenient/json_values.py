"""Decodes one JSON value as Spark's from_json does by default: what can be read of it, and why the rest cannot.

This is the slow way, for values that the compiled decoder is not sure of. It does what Spark's JacksonParser does in
the mode PERMISSIVE with partial results, step by step, since Spark reads on behind an error and what it finds there
depends on where it stands. Two things are stricter: bytes that are not UTF-8, and anything behind the value, make it
unreadable as a whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any, TypeAlias

from pyspark.sql import types

from barnabas.spark.lenient.java_numbers import double_text, nearest_float
from barnabas.spark.lenient.json_tokens import JsonError, JsonTokens, Token, without_surrogates
from barnabas.spark.lenient.times import parse_date, parse_day_number, parse_timestamp, parse_timestamp_ntz

_INT32, _INT64 = 1 << 31, 1 << 63
_NUMBERS = (Token.INTEGER, Token.FLOAT)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_ENDLESS = {"NaN": math.nan, **dict.fromkeys(("+INF", "+Infinity", "Infinity"), math.inf)}
_ENDLESS |= dict.fromkeys(("-INF", "-Infinity"), -math.inf)
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_TO_ESCAPE = re.compile('[\x00-\x1f"\\\\\ud800-\udfff\U00010000-\U0010ffff]')
_MOST_SHOWN = 50

Convert: TypeAlias = Callable[[JsonTokens], Any]


class Unreadable(ValueError):
    """A value that its type cannot take."""


class _Partial(Exception):
    """Something that could be read in part."""

    def __init__(self, found: Any, reason: str) -> None:
        super().__init__(reason)
        self.found = found
        self.reason = reason


class LenientJson:
    """Reads objects into the fields of a schema; `zone` is that of timestamps which name none."""

    def __init__(self, schema: types.StructType, zone: tzinfo) -> None:
        self._zone = zone
        self._fields = self._fields_of(schema)

    def read(self, value: bytes) -> tuple[dict[str, Any], str | None]:
        """The fields that can be read, and the reason why others cannot. An empty value has no fields."""
        try:
            tokens = JsonTokens(value.decode())
            if tokens.next() is None:
                return {}, None
            if tokens.token is not Token.START_OBJECT:
                return {}, f"a JSON object is expected, not {tokens.text[:_MOST_SHOWN]}"
            fields, reason = self._object(tokens, self._fields)
        except UnicodeDecodeError as problem:
            return {}, f"not UTF-8: {problem.reason} at byte {problem.start}"
        except JsonError as problem:
            return {}, f"not JSON: {problem}"
        if rest := tokens.rest():
            return {}, f"not JSON: {rest[:_MOST_SHOWN]!r} follows the value"
        return fields, reason

    def _object(self, tokens: JsonTokens, converters: Mapping[str, Convert]) -> tuple[dict[str, Any], str | None]:
        """The fields, and what is wrong with the first that cannot be read."""
        found: dict[str, Any] = {}
        reason: str | None = None
        while tokens.next() not in (None, Token.END_OBJECT):
            name = tokens.name
            if name is None or name not in converters:
                tokens.skip_children()
                continue
            try:
                found[name] = converters[name](tokens)
            except _Partial as problem:
                reason = reason or f"{name}: {problem.reason}"
                found[name] = problem.found
            except (JsonError, Unreadable) as problem:
                reason = reason or f"{name}: {problem}"
                tokens.skip_children()
        return found, reason

    def _fields_of(self, schema: types.StructType) -> dict[str, Convert]:
        return {field.name: self._converter(field.dataType) for field in schema}

    def _converter(self, kind: types.DataType) -> Convert:
        """Null stays null, whatever the type; what a type does not take is unreadable."""
        convert = self._choose(kind)

        def skip_name(tokens: JsonTokens) -> Any:
            if tokens.token is Token.NAME:
                tokens.next()
            return None if tokens.token in (None, Token.NULL) else convert(tokens)

        return skip_name

    def _choose(self, kind: types.DataType) -> Convert:
        if isinstance(kind, types.StructType):
            return partial(self._struct, self._fields_of(kind))
        if isinstance(kind, types.ArrayType):
            return partial(_array, self._converter(kind.elementType))
        if isinstance(kind, types.MapType):
            return partial(_map, self._converter(kind.valueType))
        if isinstance(kind, types.DecimalType):
            return partial(_decimal, kind)
        if isinstance(kind, types.TimestampType):
            return partial(_timestamp, self._zone)
        return _SIMPLE[type(kind)]

    def _struct(self, converters: Mapping[str, Convert], tokens: JsonTokens) -> dict[str, Any]:
        if tokens.token is not Token.START_OBJECT:
            raise _unfit(tokens, "STRUCT")
        found, reason = self._object(tokens, converters)
        if reason is not None:
            raise _Partial(found, reason)
        return found


def _array(convert: Convert, tokens: JsonTokens) -> list[Any]:
    """An element that cannot be read at all spoils the array."""
    if tokens.token is not Token.START_ARRAY:
        raise _unfit(tokens, "ARRAY")
    found: list[Any] = []
    reason: str | None = None
    while tokens.next() not in (None, Token.END_ARRAY):
        try:
            found.append(convert(tokens))
        except _Partial as problem:
            reason = reason or f"[{len(found)}]: {problem.reason}"
            found.append(problem.found)
    if reason is not None:
        raise _Partial(found, reason)
    return found


def _map(convert: Convert, tokens: JsonTokens) -> list[tuple[str, Any]]:
    """A value that cannot be read at all spoils the map, once all of it was read."""
    if tokens.token is not Token.START_OBJECT:
        raise _unfit(tokens, "MAP")
    found: list[tuple[str, Any]] = []
    reason: str | None = None
    is_spoilt = False
    while tokens.next() not in (None, Token.END_OBJECT):
        name = without_surrogates(tokens.name or "")
        try:
            found.append((name, convert(tokens)))
        except _Partial as problem:
            reason = reason or f"{name}: {problem.reason}"
            found.append((name, problem.found))
        except (JsonError, Unreadable) as problem:
            reason = reason or f"{name}: {problem}"
            is_spoilt = True
            tokens.skip_children()
    if is_spoilt:
        raise Unreadable(reason)
    if reason is not None:
        raise _Partial(found, reason)
    return found


def _unfit(tokens: JsonTokens, kind: str) -> Unreadable:
    return Unreadable(f"{tokens.text[:_MOST_SHOWN]!r} is no {kind}")


def _boolean(tokens: JsonTokens) -> bool:
    if tokens.token not in (Token.TRUE, Token.FALSE):
        raise _unfit(tokens, "BOOLEAN")
    return tokens.token is Token.TRUE


def _integer(kind: str, lowest: int, highest: int, tokens: JsonTokens) -> int:
    if tokens.token is not Token.INTEGER or not lowest <= (number := int(tokens.text)) <= highest:
        raise _unfit(tokens, kind)
    return number


def _byte(tokens: JsonTokens) -> int:
    """Numbers up to 255 are taken for what they are as signed bytes."""
    number = _integer("TINYINT", -128, 255, tokens)
    return number - 256 if number > 127 else number


def _floating(kind: str, parse: Callable[[str], float], tokens: JsonTokens) -> float:
    if tokens.token is Token.INTEGER:
        return parse(str(int(tokens.text)))  # without the sign of -0
    text = tokens.text
    if tokens.token in (Token.FLOAT, Token.TEXT) and text in _ENDLESS:
        return _ENDLESS[text]
    if tokens.token is not Token.FLOAT:
        raise _unfit(tokens, kind)
    return parse(text)


def _decimal(kind: types.DecimalType, tokens: JsonTokens) -> Decimal:
    text = tokens.text.replace(",", "") if tokens.token is Token.TEXT else tokens.text
    is_number = tokens.token in (*_NUMBERS, Token.TEXT) and _DECIMAL.fullmatch(text)
    number = rounded_decimal(Decimal(text), kind.precision, kind.scale) if is_number else None
    if number is None:
        raise _unfit(tokens, f"DECIMAL({kind.precision},{kind.scale})")
    return number


def rounded_decimal(number: Decimal, precision: int, scale: int) -> Decimal | None:
    """With that many digits behind the point; None where there are too many before it."""
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or not -_INT32 < exponent < _INT32:
        return None
    if number and number.adjusted() > precision:
        return None
    rounded = number.quantize(
        Decimal((0, (1,), -scale)), ROUND_HALF_UP, Context(prec=precision + scale + len(digits) + 2)
    )
    return (
        rounded
        if abs(rounded.scaleb(scale, Context(prec=precision + len(digits) + scale + 2))) < 10**precision
        else None
    )


def _timestamp(zone: tzinfo, tokens: JsonTokens) -> int:
    """A number is of seconds, and wraps where their microseconds do not fit 64 bits."""
    if tokens.token is Token.INTEGER:
        seconds = _integer("TIMESTAMP", -_INT64, _INT64 - 1, tokens)
        return (seconds * 1_000_000 + _INT64) % (2 * _INT64) - _INT64
    return _time("TIMESTAMP", lambda text: parse_timestamp(text, zone), tokens)


def _time(kind: str, parse: Callable[[str], int | None], tokens: JsonTokens) -> int:
    found = parse(tokens.text) if tokens.token is Token.TEXT and tokens.text else None
    if found is None:
        raise _unfit(tokens, kind)
    return found


def _day(text: str) -> int | None:
    found = parse_date(text)
    return parse_day_number(text) if found is None else found


def _binary(tokens: JsonTokens) -> bytes:
    if tokens.token is not Token.TEXT:
        raise _unfit(tokens, "BINARY")
    return tokens.binary()


def _string(tokens: JsonTokens) -> str:
    """A text, or anything else rewritten as JSON."""
    if tokens.token is Token.TEXT:
        return without_surrogates(tokens.text)
    parts: list[str] = []
    depth = 0
    is_first = True
    while True:
        token = tokens.token
        if token in (Token.END_OBJECT, Token.END_ARRAY):
            if depth == 0:
                raise _unfit(tokens, "STRING")
            depth -= 1
        elif not is_first:
            parts.append(",")
        is_first = token in (Token.START_OBJECT, Token.START_ARRAY, Token.NAME)
        depth += token in (Token.START_OBJECT, Token.START_ARRAY)
        parts.append(_written(tokens))
        if depth == 0:
            return "".join(parts)
        if tokens.next() is None:
            raise JsonError("it ends within a value")


def _written(tokens: JsonTokens) -> str:
    if tokens.token is Token.NAME:
        return f'"{_TO_ESCAPE.sub(_escape, tokens.text)}":'
    if tokens.token is Token.TEXT:
        return f'"{_TO_ESCAPE.sub(_escape, tokens.text)}"'
    if tokens.token is Token.INTEGER:
        return str(int(tokens.text))
    if tokens.token is not Token.FLOAT:
        return tokens.text
    number = _ENDLESS[tokens.text] if tokens.text in _ENDLESS else float(tokens.text)
    return double_text(number) if math.isfinite(number) else f'"{double_text(number)}"'


def _escape(match: re.Match[str]) -> str:
    letter = match[0]
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    units = letter.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


_SIMPLE: Mapping[type[types.DataType], Convert] = {
    types.BooleanType: _boolean,
    types.ByteType: _byte,
    types.ShortType: partial(_integer, "SMALLINT", -(1 << 15), (1 << 15) - 1),
    types.IntegerType: partial(_integer, "INT", -_INT32, _INT32 - 1),
    types.LongType: partial(_integer, "BIGINT", -_INT64, _INT64 - 1),
    types.FloatType: partial(_floating, "FLOAT", nearest_float),
    types.DoubleType: partial(_floating, "DOUBLE", float),
    types.StringType: _string,
    types.BinaryType: _binary,
    types.DateType: partial(_time, "DATE", _day),
    types.TimestampNTZType: partial(_time, "TIMESTAMP_NTZ", parse_timestamp_ntz),
}
