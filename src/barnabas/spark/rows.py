"""Fetched batches as Arrow batches of the schema that Spark asked for, without an object per record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.compute

from barnabas.records.columns import Column, ColumnReader, Columns, HeadersColumn
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.schema import arrow_schema

if TYPE_CHECKING:
    from barnabas.client.consume.chunks import Chunk

ROWS_PER_BATCH = 32_768
"""About so many, for a batch of the log is never cut: enough that what a batch costs by itself does not count."""

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
        self._types: list[tuple[int, int]] = []
        """Per batch of the log: its timestamp type, and how many rows there were with it."""
        self._constants = {"topic": _Repeated(wanted.topic), "partition": _Repeated(wanted.partition)}

    def add(self, chunk: Chunk) -> Iterator[pyarrow.RecordBatch]:
        """What a fetch brought, as far as it is in the range."""
        for batch, header in chunk.batches:
            if header.base_offset >= self._range.end:
                break
            self._reader.add_checked(batch, header, chunk.from_offset, self._range.end)
            self._types.append((int(header.is_log_append_time), self._reader.rows))
            if self._reader.rows >= ROWS_PER_BATCH:
                yield self._finish()
        if self._reader.rows:
            yield self._finish()

    def _finish(self) -> pyarrow.RecordBatch:
        columns = self._reader.finish()
        arrays = [self._array(field, columns) for field in self._schema]
        self._types.clear()
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: Any, columns: Columns) -> pyarrow.Array:
        match field.name:
            case "key":
                assert columns.key is not None
                return columns.key.to_arrow()
            case "value":
                assert columns.value is not None
                return columns.value.to_arrow()
            case "offset":
                return _integers(columns.offset, columns.rows)
            case "timestamp":
                milliseconds = _integers(columns.timestamp_ms, columns.rows)
                return pyarrow.compute.multiply_checked(milliseconds, 1000).view(field.type)
            case "timestampType":
                return self._timestamp_types(columns.rows, field.type)
            case "headers":
                assert columns.headers is not None
                return _headers(columns.headers, field.type)
            case name:
                return self._constants[name].array(columns.rows, field.type)

    def _timestamp_types(self, rows: int, kind: Any) -> pyarrow.Array:
        if len({kind for kind, _ in self._types}) == 1:
            return self._constants.setdefault(f"type {self._types[0][0]}", _Repeated(self._types[0][0])).array(
                rows, kind
            )
        before, parts = 0, []
        for value, until in self._types:
            parts.append(pyarrow.repeat(pyarrow.scalar(value, kind), until - before))
            before = until
        return pyarrow.concat_arrays(parts)


class _Repeated:
    """A value for every row; made once for as many rows as a batch had so far."""

    def __init__(self, value: object) -> None:
        self._value = value
        self._made: Any = None

    def array(self, rows: int, kind: Any) -> pyarrow.Array:
        if self._made is None or len(self._made) < rows:
            self._made = pyarrow.repeat(pyarrow.scalar(self._value, kind), rows)
        return self._made[:rows]


def _integers(view: memoryview | None, rows: int) -> pyarrow.Array:
    assert view is not None
    return pyarrow.Array.from_buffers(pyarrow.int64(), rows, [None, pyarrow.py_buffer(view)], 0)


def _headers(column: HeadersColumn, kind: Any) -> pyarrow.Array:
    """Lists of pairs; null, as in Spark's own source, for a record without any."""
    rows = len(column.ends) - 1
    if column.ends[rows] == 0:
        return pyarrow.nulls(rows, kind)
    pairs = pyarrow.StructArray.from_arrays(
        [column.key.to_arrow(text=True), column.value.to_arrow()], fields=list(kind.value_type)
    )
    ends = pyarrow.py_buffer(column.ends)
    places = pyarrow.Array.from_buffers(pyarrow.int32(), rows + 1, [None, ends], 0)
    has_any = pyarrow.compute.not_equal(places[1:], places[:-1])
    return pyarrow.Array.from_buffers(kind, rows, [has_any.buffers()[1], ends], children=[pairs])
