"""Arrow columns as the text that databases load in bulk: COPY, LOAD DATA, and INSERT of many rows.

Texts are made column by column, and joined to rows by Arrow: no value becomes a Python object.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.database.columns import Kind
from barnabas.spark.pipeline.errors import SinkError

_TEXT = pa.large_string()
"""With offsets of 64 bits: the text of a batch may be longer than the batch."""


@dataclass(frozen=True, slots=True)
class TextForm:
    """How a database reads rows."""

    database: str
    begin: str
    separator: str
    end: str
    null: str
    escapes: Sequence[tuple[str, str]]
    """Of texts: what is replaced by what, in this order."""
    quotes: Mapping[Kind, tuple[str, str]] = field(default_factory=dict)
    """What stands before and after a value. Binary values are written as hexadecimal digits."""
    boolean: pa.DataType = field(default_factory=pa.bool_)
    """The type whose text is that of a boolean."""
    refuses_nul: bool = False
    refuses_nan: bool = False

    def rows(self, leading: Sequence[pa.Array | pa.Scalar], columns: Sequence[tuple[str, Kind, pa.Array]]) -> pa.Array:
        """One text for each row: numbers that lead it, then the values of the columns."""
        numbers = [each.cast(_TEXT) for each in leading]
        parts = [*numbers, *(self._values(*column) for column in columns)]
        separated = [part for each in parts for part in (self.separator, each)]
        separated[0] = self.begin
        # Without a scalar's type Arrow takes it for a short string, and joins nothing with it.
        texts = [pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in (*separated, self.end, "")]
        return pc.binary_join_element_wise(*texts, null_handling="replace", null_replacement=self.null)

    def _values(self, name: str, kind: Kind, array: pa.Array) -> pa.Array:
        match kind:
            case Kind.TEXT:
                texts = self._escaped(name, array)
            case Kind.BINARY:
                texts = hexadecimal(array)
            case Kind.BOOLEAN:
                texts = array.cast(self.boolean).cast(_TEXT)
            case Kind.REAL:
                if self.refuses_nan and not _all(pc.is_finite(array)):
                    raise SinkError(
                        f"column '{name}' has a value that is not a finite number, which {self.database} cannot hold:"
                        " replace it in a transform"
                    )
                texts = array.cast(pa.float64()).cast(_TEXT)  # so that a float has all digits of its value
            case Kind.TIMESTAMP:
                texts = array.cast(pa.int64()).cast(pa.timestamp("us")).cast(_TEXT)  # in UTC, without a zone
            case _:
                texts = array.cast(_TEXT)
        before, after = self.quotes.get(kind, ("", ""))
        if not before and not after:
            return texts
        return pc.binary_join_element_wise(
            pa.scalar(before, _TEXT), texts, pa.scalar(after, _TEXT), pa.scalar("", _TEXT)
        )

    def _escaped(self, name: str, array: pa.Array) -> pa.Array:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise SinkError(f"column '{name}' has text that is not valid UTF-8: decode it in a transform") from None
        if self.refuses_nul and _any(pc.match_substring(array, "\0")):
            raise SinkError(
                f"column '{name}' has text with the character NUL, which {self.database} cannot hold:"
                " remove it in a transform"
            )
        texts = array.cast(_TEXT)
        for found, written in self.escapes:
            texts = pc.replace_substring(texts, found, written)
        return texts


def hexadecimal(array: pa.Array) -> pa.Array:
    """The bytes of each value as hexadecimal digits."""
    array = array.cast(pa.large_binary())
    validity, offsets, data = array.buffers()
    bounds = memoryview(offsets).cast("q")[array.offset : array.offset + len(array) + 1]
    begin, end = bounds[0], bounds[-1]
    digits = b"" if data is None else bytes(memoryview(data)[begin:end]).hex().encode()
    places = pa.Array.from_buffers(pa.int64(), len(bounds), [None, pa.py_buffer(bounds)])
    doubled = pc.multiply(pc.subtract(places, begin), 2)
    texts = pa.Array.from_buffers(_TEXT, len(array), [None, doubled.buffers()[1], pa.py_buffer(digits)])
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, _TEXT)) if validity is not None else texts


def pieces(rows: pa.Array, max_bytes: int) -> Iterator[memoryview]:
    """The text of rows in pieces of whole rows, each of up to `max_bytes` or of a single row."""
    _, offsets, data = rows.buffers()
    if data is None:
        return
    text = memoryview(data)
    ends = memoryview(offsets).cast("q")[rows.offset : rows.offset + len(rows) + 1]
    row = 0
    while row < len(rows):
        last = max(row + 1, bisect_right(ends, ends[row] + max_bytes) - 1)
        yield text[ends[row] : ends[last]]
        row = last


def _any(found: pa.Array) -> Any:
    return pc.any(found).as_py()


def _all(found: pa.Array) -> bool:
    return pc.all(found).as_py() is not False


_BACKSLASHED = (("\\", r"\\"), ("\t", r"\t"), ("\n", r"\n"), ("\r", r"\r"))
_QUOTED = ("'", "'")

COPY = TextForm(
    database="PostgreSQL",
    begin="",
    separator="\t",
    end="\n",
    null=r"\N",
    escapes=_BACKSLASHED,
    quotes={Kind.BINARY: (r"\\x", "")},
    refuses_nul=True,
)
LOAD_DATA = TextForm(
    database="MySQL",
    begin="",
    separator="\t",
    end="\n",
    null=r"\N",
    escapes=(*_BACKSLASHED, ("\0", r"\0")),
    boolean=pa.int8(),
    refuses_nan=True,
)
INSERT = TextForm(
    database="MySQL",
    begin="(",
    separator=",",
    end="),",
    null="NULL",
    escapes=(("\\", r"\\"), ("'", r"\'")),
    # Decimals and reals are quoted, because without quotes MySQL takes 1.5E-7 for a double and 1.5 for a decimal.
    quotes={
        **dict.fromkeys((Kind.TEXT, Kind.REAL, Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP), _QUOTED),
        Kind.BINARY: ("X'", "'"),
    },
    boolean=pa.int8(),
    refuses_nan=True,
)
