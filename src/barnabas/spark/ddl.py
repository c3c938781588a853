"""Parses schemas of decoded values in Spark's DDL, such as `id BIGINT, at TIMESTAMP`: a data source has no JVM to ask.

Takes the types that values can be decoded into. Every field may be null, as from_json has it; comments are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from pyspark.sql import types

_TOKEN = re.compile(
    r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")|(\w+)|([<>(),:]))", re.DOTALL
)
_SIMPLE: Mapping[str, Callable[[], types.DataType]] = {
    "BOOLEAN": types.BooleanType,
    **dict.fromkeys(("TINYINT", "BYTE"), types.ByteType),
    **dict.fromkeys(("SMALLINT", "SHORT"), types.ShortType),
    **dict.fromkeys(("INT", "INTEGER"), types.IntegerType),
    **dict.fromkeys(("BIGINT", "LONG"), types.LongType),
    **dict.fromkeys(("FLOAT", "REAL"), types.FloatType),
    "DOUBLE": types.DoubleType,
    "STRING": types.StringType,
    "BINARY": types.BinaryType,
    "DATE": types.DateType,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), types.TimestampType),
    "TIMESTAMP_NTZ": types.TimestampNTZType,
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_COMPOUND = ("ARRAY", "MAP", "STRUCT")
_MOST_DIGITS = 38


def parse_ddl(text: str) -> types.StructType:
    """Raises ValueError that says what is wrong, and where."""
    return types.StructType(_Parser(text).fields(""))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._token = ""
        self._name: str | None = None
        self._next()

    def fields(self, end: str) -> list[types.StructField]:
        found = [self._field()]
        while self._token == ",":
            self._next()
            found.append(self._field())
        self._expect(end)
        return found

    def _field(self) -> types.StructField:
        if self._name is None:
            raise self._error("the name of a field")
        name = self._name
        self._next()
        if self._token == ":":
            self._next()
        kind = self._type()
        if self._token.upper() == "NOT":
            self._next()
            self._expect("NULL")
        if self._token.upper() == "COMMENT":
            self._next()
            if self._token[:1] not in ("'", '"'):
                raise self._error("a comment in quotes")
            self._next()
        return types.StructField(name, kind)

    def _type(self) -> types.DataType:
        word = self._token.upper()
        known = [*_SIMPLE, *_DECIMALS, *_COMPOUND]
        if word not in known:
            raise self._error(f"a type that values can be decoded into ({', '.join(known)})")
        self._next()
        if word in _SIMPLE:
            return _SIMPLE[word]()
        if word in _DECIMALS:
            return self._decimal()
        self._expect("<")
        if word == "STRUCT":
            return types.StructType(self.fields(">"))
        if word == "ARRAY":
            found: types.DataType = types.ArrayType(self._type())
        else:
            key = self._type()
            if not isinstance(key, types.StringType):
                raise ValueError(f"the keys of a MAP are STRING, not {key.simpleString().upper()}")
            self._expect(",")
            found = types.MapType(key, self._type())
        self._expect(">")
        return found

    def _decimal(self) -> types.DecimalType:
        numbers = [10, 0]
        if self._token == "(":
            self._next()
            numbers = [self._number(), 0]
            if self._token == ",":
                self._next()
                numbers[1] = self._number()
            self._expect(")")
        precision, scale = numbers
        if not 0 < precision <= _MOST_DIGITS or scale > precision:
            raise ValueError(
                f"DECIMAL({precision},{scale}) has at most {_MOST_DIGITS} digits, and fewer behind the point"
            )
        return types.DecimalType(precision, scale)

    def _number(self) -> int:
        if not self._token.isdecimal():
            raise self._error("a number of digits")
        number = int(self._token)
        self._next()
        return number

    def _expect(self, token: str) -> None:
        if self._token.upper() != token:
            raise self._error(repr(token) if token else "a comma")
        self._next()

    def _next(self) -> None:
        """At the end the token is empty."""
        if not self._text[self._at :].strip():
            self._at, self._token, self._name = len(self._text), "", None
            return
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise ValueError(f"{self._text[self._at :].strip()[:20]!r} is out of place; put odd names into `backticks`")
        self._at = match.end()
        quoted, _, word, _ = match.groups()
        self._token = match[0].strip() if quoted is None else ""
        self._name = quoted[1:-1].replace("``", "`") if quoted is not None else word

    def _error(self, expected: str) -> ValueError:
        found = repr(self._token or self._name or "") if self._token or self._name else "the end"
        return ValueError(f"{found} stands where {expected} is expected")
