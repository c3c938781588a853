"""CSV values as Arrow columns: what `csv_codec` is sure of, and which values it leaves to a slower decoder."""

from __future__ import annotations

import string
from collections.abc import Collection
from typing import TYPE_CHECKING

from barnabas.records import engine
from barnabas.records.value_columns import DecodedValues, UnsupportedType, record_batch, sink_of, values_of

if TYPE_CHECKING:
    import pyarrow

SEPARATORS = frozenset(("\t", *string.punctuation)) - {'"', "\\"}


class CsvReader:
    """Decodes batch after batch of values into the columns of an Arrow schema.

    A column named in `required` is never null: a value without it is unsure. Timestamps without a zone are taken as
    UTC only where `is_utc` says so.
    """

    def __init__(
        self, schema: pyarrow.Schema, required: Collection[str] = (), *, separator: str = ",", is_utc: bool = True
    ) -> None:
        codec = engine.csv_codec
        for field in schema:
            _check_is_one_token(field)
        if separator not in SEPARATORS:
            raise ValueError(f"separator {separator!r} is not supported; use one of {' '.join(sorted(SEPARATORS))}")
        self._schema = schema
        self._sinks = tuple(sink_of(codec, field, is_utc, is_required=field.name in required) for field in schema)
        self._root = codec.ValueSink("struct", b"", self._sinks)
        self._decoder = codec.CsvDecoder(self._root, ord(separator))

    def read(self, values: pyarrow.Array) -> DecodedValues:
        """Decode an array of bytes."""
        unsure = self._decoder.decode(*values_of(values))
        rows = record_batch(self._schema, self._sinks, len(values) - len(unsure))
        self._root.begin()
        return DecodedValues(rows, unsure)


def _check_is_one_token(field: pyarrow.Field) -> None:
    import pyarrow

    if pyarrow.types.is_binary(field.type) or pyarrow.types.is_nested(field.type):
        raise UnsupportedType(f"column {field.name!r} is {field.type}")
