"""Fetched batches as Arrow batches of the schema that Spark asked for, without an object per record.

Arrow arrays are made from buffers alone: to make one of Python's own values, pyarrow loads pandas where it is
installed, and a task would wait for that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.compute

from barnabas.records.columns import BinaryColumn, Column, ColumnReader, Columns, HeadersColumn
from barnabas.spark.schema import arrow_schema

if TYPE_CHECKING:
    from barnabas.client.consume.chunks import Chunk
    from barnabas.spark.ranges import OffsetRange

ROWS_PER_BATCH = 32_768
"""About so many, for a batch of the log is never cut: enough that what a batch costs by itself does not count."""
BYTES_PER_BATCH = 16 << 20
"""About so many, decompressed: few enough that what Spark holds of a task stays small."""

_DECODED = {
    "key": Column.KEY,
    "value": Column.VALUE,
    "offset": Column.OFFSET,
    "timestamp": Column.TIMESTAMP,
    "headers": Column.HEADERS,
}


class RowBatches:
    """Makes the batches of one range."""

    def __init__(self, names: Sequence[str], wanted: OffsetRange) -> None:
        self._schema = arrow_schema(names)
        self._range = wanted
        columns = Column(0)
        for name in names:
            columns |= _DECODED.get(name, Column(0))
        self._reader = ColumnReader(columns)
        self._largest = 0
        """How many bytes of values a batch had at most, for which room is made at once."""
        self._types: list[tuple[int, int]] = []
        """Per batch of the log: its timestamp type, and how many rows there were with it."""
        self._repeated: dict[object, pyarrow.Array] = {}

    def add(self, chunk: Chunk) -> Iterator[pyarrow.RecordBatch]:
        """What a fetch brought, as far as it is in the range."""
        for batch, header in chunk.batches:
            if header.base_offset >= self._range.end:
                break
            self._reader.add_checked(batch, header, chunk.from_offset, self._range.end)
            self._types.append((int(header.is_log_append_time), self._reader.rows))
            if self._reader.rows >= ROWS_PER_BATCH or self._reader.size_bytes >= BYTES_PER_BATCH:
                yield self._finish()
        if self._reader.rows:
            yield self._finish()

    def _finish(self) -> pyarrow.RecordBatch:
        columns = self._reader.finish()
        if columns.value is not None:
            self._largest = max(self._largest, len(columns.value.data))
            self._reader.expect(self._largest)
        arrays = [self._array(field.name, field.type, columns) for field in self._schema]
        self._types.clear()
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, kind: Any, columns: Columns) -> pyarrow.Array:
        match name:
            case "key":
                return _binary(columns.key)
            case "value":
                return _binary(columns.value)
            case "topic":
                return self._repeat(self._range.topic, kind, columns.rows)
            case "partition":
                return self._repeat(self._range.partition, kind, columns.rows)
            case "offset":
                return _integers(columns.offset)
            case "timestamp":
                return self._microseconds(columns.timestamp_ms).view(kind)
            case "timestampType":
                return self._timestamp_types(kind, columns.rows)
            case _:
                return _headers(columns.headers, kind)

    def _repeat(self, value: str | int, kind: Any, rows: int) -> pyarrow.Array:
        """A value for every row, made once for as many rows as a batch had so far."""
        made = self._repeated.get((value, kind))
        if made is None or len(made) < rows:
            made = self._repeated[value, kind] = pyarrow.repeat(_scalar(value, kind), rows)
        return made[:rows]

    def _microseconds(self, milliseconds: memoryview | None) -> pyarrow.Array:
        try:
            return pyarrow.compute.multiply_checked(_integers(milliseconds), _scalar(1000, pyarrow.int64()))
        except pyarrow.ArrowInvalid:
            raise ValueError(f"{self._range} holds a timestamp that Spark cannot hold; leave that column out") from None

    def _timestamp_types(self, kind: Any, rows: int) -> pyarrow.Array:
        """0 for the time of creation, 1 for that of appending: they differ where the topic's setting was changed."""
        first = self._types[0][0]
        if all(value == first for value, _ in self._types):
            return self._repeat(first, kind, rows)
        parts, before = [], 0
        for value, until in self._types:
            parts.append(pyarrow.repeat(_scalar(value, kind), until - before))
            before = until
        return pyarrow.concat_arrays(parts)


def _scalar(value: str | int, kind: Any) -> pyarrow.Scalar:
    if isinstance(value, int):
        buffers = [None, value.to_bytes(kind.byte_width, sys.byteorder, signed=True)]
    else:
        data = value.encode()
        buffers = [None, bytes(4) + len(data).to_bytes(4, sys.byteorder), data]
    return pyarrow.Array.from_buffers(kind, 1, [buffer and pyarrow.py_buffer(buffer) for buffer in buffers])[0]


def _binary(column: BinaryColumn | None) -> pyarrow.Array:
    assert column is not None
    return column.to_arrow()


def _integers(column: memoryview | None) -> pyarrow.Array:
    assert column is not None
    return pyarrow.Array.from_buffers(pyarrow.int64(), len(column), [None, pyarrow.py_buffer(column)], 0)


def _headers(column: HeadersColumn | None, kind: Any) -> pyarrow.Array:
    """Lists of pairs; null, as in Spark's own source, for a record without any."""
    assert column is not None
    rows = len(column.ends) - 1
    if column.ends[rows] == 0:
        return pyarrow.nulls(rows, kind)
    arrays = [column.key.to_arrow(text=True), column.value.to_arrow()]
    pairs = pyarrow.StructArray.from_arrays(arrays, fields=list(kind.value_type))
    buffer = pyarrow.py_buffer(column.ends)
    ends = pyarrow.Array.from_buffers(pyarrow.int32(), rows + 1, [None, buffer], 0)
    has_any = pyarrow.compute.not_equal(ends[1:], ends[:-1])
    return pyarrow.Array.from_buffers(kind, rows, [has_any.buffers()[1], buffer], children=[pairs])
