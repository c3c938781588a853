"""An Arrow table as a producer takes it: which columns there may be, of which types, and what they mean.

    value      bytes or text; null is a tombstone
    key        bytes or text; null is no key
    headers    lists of pairs (key, value), or maps, of text to bytes; null is none
    timestamp  any timestamp, or whole milliseconds since 1970; null is now
    partition  whole numbers; null leaves the choice to the key

Only `value` must be there. Everything is looked at before anything is sent: a table is refused as a whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.records.column_batches import Rows
from barnabas.records.columns import BinaryColumn, HeadersColumn

if TYPE_CHECKING:
    import pyarrow

COLUMNS = ("value", "key", "headers", "timestamp", "partition")
_BYTES_OR_TEXT = (
    "binary", "large_binary", "binary_view", "string", "large_string", "string_view", "fixed_size_binary",
)  # fmt: skip
_MOST_ROWS = 1 << 18
"""So many are looked at in one go: the loop must not stand still for long."""


class TableRows(NamedTuple):
    rows: Rows
    partitions: memoryview | None
    """The partition of each row in 32 bits, -1 where the key decides; None: it always does."""


def rows_of_table(table: Any, now_ms: int) -> Iterator[TableRows]:
    """The rows of an Arrow table or record batch, or of what can be made one without a copy (polars, pandas)."""
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Arrow columns need pyarrow: pip install 'barnabas[arrow]'") from None
    if isinstance(table, pyarrow.RecordBatch):
        table = pyarrow.Table.from_batches([table])
    elif not isinstance(table, pyarrow.Table):
        if not hasattr(table, "__arrow_c_stream__"):
            raise TypeError(f"send_columns takes an Arrow table or record batch, not {type(table).__name__}")
        table = pyarrow.table(table)
    _check_names(table.column_names)
    for batch in table.to_batches(max_chunksize=_MOST_ROWS):
        if batch.num_rows:
            yield _rows_of_batch(batch, now_ms)


def _check_names(names: list[str]) -> None:
    unknown = sorted(set(names) - set(COLUMNS))
    if unknown or "value" not in names or len(set(names)) != len(names):
        what = (
            f"not {', '.join(map(repr, unknown))}; encode them into value, or drop them" if unknown else f"not {names}"
        )
        raise ValueError(
            f"send_columns takes a table with a column value and, where wanted, {', '.join(COLUMNS[1:])}, {what}"
        )


def _rows_of_batch(batch: pyarrow.RecordBatch, now_ms: int) -> TableRows:
    columns = dict(zip(batch.schema.names, batch.columns))
    headers, partitions = columns.get("headers"), columns.get("partition")
    rows = Rows(
        _binary("key", columns["key"]) if "key" in columns else None,
        _binary("value", columns["value"]),
        _timestamps(columns.get("timestamp"), batch.num_rows, now_ms),
        None if headers is None else _headers(headers),
    )
    return TableRows(rows, None if partitions is None else _partitions(partitions))


def _binary(name: str, column: pyarrow.Array) -> BinaryColumn | None:
    from pyarrow import types

    if types.is_null(column.type):
        return None
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not _is_bytes_or_text(column.type):
        raise _wrong_type(name, column, "bytes or text")
    return BinaryColumn.from_arrow(column)


def _is_bytes_or_text(kind: pyarrow.DataType) -> bool:
    from pyarrow import types

    return any(getattr(types, f"is_{name}")(kind) for name in _BYTES_OR_TEXT)


def _headers(column: pyarrow.Array) -> HeadersColumn | None:
    import pyarrow
    from pyarrow import types

    if types.is_null(column.type):
        return None
    if types.is_large_list(column.type):
        column = column.cast(pyarrow.list_(column.type.value_field))
    is_list = types.is_list(column.type) or types.is_map(column.type)
    pair = [field.type for field in column.values.flatten()] if is_list and types.is_struct(column.values.type) else []
    if len(pair) != 2 or not _is_bytes_or_text(pair[0]) or not (_is_bytes_or_text(pair[1]) or types.is_null(pair[1])):
        raise _wrong_type("headers", column, "lists of pairs (key, value), or maps, of text to bytes")
    return HeadersColumn.from_arrow(column)


def _timestamps(column: pyarrow.Array | None, rows: int, now_ms: int) -> memoryview:
    import pyarrow
    from pyarrow import types

    if column is None or types.is_null(column.type):
        return memoryview(array("q", [now_ms]) * rows)
    if types.is_timestamp(column.type):
        column = column.cast(pyarrow.timestamp("ms"), safe=False)
    elif not types.is_integer(column.type):
        raise _wrong_type("timestamp", column, "timestamps, or whole milliseconds since 1970")
    return _integers(column, pyarrow.int64(), now_ms).cast("q")


def _partitions(column: pyarrow.Array) -> memoryview | None:
    import pyarrow
    from pyarrow import types

    if types.is_null(column.type):
        return None
    if not types.is_integer(column.type):
        raise _wrong_type("partition", column, "whole numbers")
    return _integers(column, pyarrow.int32(), -1).cast("i")


def _integers(column: pyarrow.Array, kind: pyarrow.DataType, missing: int) -> memoryview:
    """The bytes of a column of numbers."""
    column = column.cast(kind).fill_null(missing)
    width: int = kind.bit_width // 8
    start = column.offset * width
    return memoryview(column.buffers()[1]).cast("B")[start : start + len(column) * width]


def _wrong_type(name: str, column: pyarrow.Array, wanted: str) -> TypeError:
    return TypeError(f"column {name!r} is of type {column.type}; send_columns takes {wanted} there, so cast it first")
