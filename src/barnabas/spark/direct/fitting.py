"""Fits rows to the columns of a table that may have more columns, or wider ones."""

from __future__ import annotations

import pyarrow


def fit(rows: pyarrow.RecordBatch, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """The same rows with the columns of the schema, in its order; what they lack is null."""
    if rows.schema.equals(schema):
        return rows
    arrays = [
        _fit(rows.column(field.name), field.type)
        if field.name in rows.schema.names
        else pyarrow.nulls(len(rows), field.type)
        for field in schema
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _fit(array: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array:
    if array.type.equals(kind):
        return array
    types = pyarrow.types
    if types.is_timestamp(kind) and types.is_timestamp(array.type):
        return array.cast(kind, safe=False)  # nanoseconds are cut off, as Spark does
    if array.offset and types.is_nested(kind):
        array = array.take(pyarrow.array(range(len(array)), pyarrow.int64()))  # Arrow puts no mask on a slice
    if types.is_struct(kind) and types.is_struct(array.type):
        known = {field.name: index for index, field in enumerate(array.type)}
        children = [
            _fit(array.field(known[field.name]), field.type)
            if field.name in known
            else pyarrow.nulls(len(array), field.type)
            for field in kind
        ]
        return pyarrow.StructArray.from_arrays(children, fields=list(kind), mask=_mask(array))
    if types.is_list(kind) and types.is_list(array.type):
        values = _fit(array.values, kind.value_type)
        return pyarrow.ListArray.from_arrays(array.offsets, values, type=kind, mask=_mask(array))
    if types.is_map(kind) and types.is_map(array.type):
        items = _fit(array.items, kind.item_type)
        return pyarrow.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=_mask(array))
    return array.cast(kind)


def _mask(array: pyarrow.Array) -> pyarrow.Array | None:
    return array.is_null() if array.null_count else None
