"""Decodes raw records into the rows of a source, inside a task.

A record that cannot be decoded with certainty is *unsure*: it is set aside as it is, and decoded by Spark with the same
decoder that the Spark path uses. So both paths give the same rows, and reject the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow
import pyarrow.compute

from barnabas.records.json_columns import JsonReader
from barnabas.spark.pipeline.definition import Format
from barnabas.spark.pipeline.sinks import OFFSET, PARTITION, TIMESTAMP, TOPIC

_ORIGIN = {"topic": TOPIC, "partition": PARTITION, "offset": OFFSET, "timestamp": TIMESTAMP}


@dataclass(frozen=True, slots=True)
class Reading:
    """What the values of a source are; goes to the tasks."""

    format: Format
    fields: pyarrow.Schema
    required: frozenset[str]
    key: str | None
    """The column that takes the record's key, as text."""
    is_utc: bool
    """Timestamps without a zone are in UTC."""


@dataclass(frozen=True, slots=True)
class Decoded:
    rows: pyarrow.RecordBatch
    unsure: pyarrow.RecordBatch | None
    """Raw records, if there are any."""


class RowDecoder:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._read_values = _READERS[reading.format](reading)

    def decode(self, records: pyarrow.RecordBatch) -> Decoded:
        """The rows of raw records that have at least the columns value, topic, partition, offset and timestamp."""
        fields, unsure = self._read_values(records.column("value"))
        raw = None
        if unsure:
            indexes = pyarrow.array(unsure, pyarrow.int64())
            raw = records.take(indexes)
            records = records.filter(_all_but(indexes, len(records)))
        arrays = {} if self._reading.key is None else {self._reading.key: _text(records.column("key"))}
        arrays.update(zip(self._reading.fields.names, fields.columns))
        arrays.update((name, records.column(column)) for column, name in _ORIGIN.items())
        return Decoded(pyarrow.RecordBatch.from_pydict(arrays), raw)


ReadValues = Callable[[pyarrow.Array], tuple[pyarrow.RecordBatch, list[int]]]
"""The fields of the values that are sure, and the indexes of those that are not."""


def _json(reading: Reading) -> ReadValues:
    reader = JsonReader(reading.fields, reading.required, is_utc=reading.is_utc)

    def read(values: pyarrow.Array) -> tuple[pyarrow.RecordBatch, list[int]]:
        found = reader.read(values)
        return found.rows, found.unsure

    return read


def _one_text(reading: Reading) -> ReadValues:
    def read(values: pyarrow.Array) -> tuple[pyarrow.RecordBatch, list[int]]:
        try:
            return pyarrow.RecordBatch.from_arrays([values.cast(pyarrow.string())], schema=reading.fields), []
        except pyarrow.ArrowInvalid:
            unsure = [index for index, value in enumerate(values) if not _is_text(value.as_py())]
            kept = values.filter(_all_but(pyarrow.array(unsure, pyarrow.int64()), len(values)))
            return pyarrow.RecordBatch.from_arrays([_text(kept)], schema=reading.fields), unsure

    return read


def _one_binary(reading: Reading) -> ReadValues:
    return lambda values: (pyarrow.RecordBatch.from_arrays([values], schema=reading.fields), [])


_READERS: Mapping[Format, Callable[[Reading], ReadValues]] = {
    Format.JSON: _json,
    Format.TEXT: _one_text,
    Format.BYTES: _one_binary,
}
FORMATS = frozenset(_READERS)
"""Those that a task can decode."""


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


def _text(values: pyarrow.Array) -> pyarrow.Array:
    """Bytes as text without a look at them: so Spark casts a key."""
    return pyarrow.Array.from_buffers(pyarrow.string(), len(values), values.buffers(), values.null_count, values.offset)


def _all_but(indexes: pyarrow.Array, rows: int) -> pyarrow.Array:
    everything = pyarrow.array(range(rows), pyarrow.int64())
    return pyarrow.compute.invert(pyarrow.compute.is_in(everything, value_set=indexes))
