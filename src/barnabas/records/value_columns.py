"""Columns that a decoder has filled, as Arrow arrays, and the sinks that such columns need.

`value_sinks` has the layout; the decoders of JSON, CSV and Avro fill it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.core.dataclass import dataclass
from barnabas.records.columns import BinaryColumn

if TYPE_CHECKING:
    import pyarrow

_LARGEST_INT64 = (1 << 63) - 1
"""Which bounds the unscaled values of decimals."""
_ELEMENT_BYTES = 8
_NO_VALIDITY = memoryview(b"")


class UnsupportedType(ValueError):
    """A column or a schema has a type that a decoder never reads."""


@dataclass(frozen=True, slots=True)
class DecodedValues:
    rows: pyarrow.RecordBatch
    """Of the values that are sure, in their order."""
    unsure: list[int]
    """The indexes of the others."""


def values_of(array: pyarrow.Array) -> tuple[memoryview, memoryview, memoryview, int, int]:
    """An array of bytes as decoders take it: data, ends of 64 bits, validity, its first bit, rows."""
    import pyarrow

    column = BinaryColumn.from_arrow(array)
    ends = column.ends
    if ends.format == "i":
        ends = memoryview(pyarrow.Array.from_buffers(
            pyarrow.int32(), len(ends), [None, pyarrow.py_buffer(ends)]
        ).cast(pyarrow.int64()).buffers()[1]).cast("q")  # fmt: skip
    validity = _NO_VALIDITY if column.validity is None else column.validity
    return column.data, ends, validity, column.first_bit, len(column)


def record_batch(schema: pyarrow.Schema, sinks: tuple[Any, ...], rows: int) -> pyarrow.RecordBatch:
    import pyarrow

    if not sinks:
        return pyarrow.RecordBatch.from_struct_array(pyarrow.nulls(rows, pyarrow.struct([])))
    arrays = [_array(field.type, sink) for field, sink in zip(schema, sinks)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def sink_of(codec: Any, field: pyarrow.Field, is_utc: bool = True, *, is_required: bool = False) -> Any:
    """An empty sink of the codec for a field, with sinks below it for what it consists of."""
    import pyarrow

    kind, name, types = field.type, field.name.encode(), pyarrow.types
    if types.is_boolean(kind):
        return codec.ValueSink("boolean", name, required=is_required)
    if types.is_signed_integer(kind):
        bound = 1 << (kind.bit_width - 1)
        return codec.ValueSink("integer", name, required=is_required, low=-bound, high=bound - 1)
    if types.is_float64(kind):
        return codec.ValueSink("double", name, required=is_required)
    if types.is_float32(kind):
        return codec.ValueSink("float", name, required=is_required)
    if types.is_string(kind) or types.is_binary(kind):
        return codec.ValueSink(str(kind), name, required=is_required)
    if types.is_decimal128(kind):
        bound = min(10**kind.precision - 1, _LARGEST_INT64)
        return codec.ValueSink("decimal", name, required=is_required, low=-bound, high=bound, scale=kind.scale)
    if types.is_timestamp(kind) and kind.unit == "us":
        zoned = -1 if kind.tz is None else int(is_utc)
        return codec.ValueSink("timestamp", name, required=is_required, zoned=zoned)
    if types.is_date32(kind):
        return codec.ValueSink("date", name, required=is_required)
    if types.is_struct(kind):
        children = tuple(sink_of(codec, kind.field(index), is_utc) for index in range(kind.num_fields))
        return codec.ValueSink("struct", name, children, required=is_required)
    if types.is_map(kind) and types.is_string(kind.key_type):
        pair = codec.ValueSink(
            "struct", b"", (sink_of(codec, kind.key_field, is_utc), sink_of(codec, kind.item_field, is_utc))
        )
        return codec.ValueSink("map", name, (pair,), required=is_required)
    if types.is_list(kind):
        return codec.ValueSink("list", name, (sink_of(codec, kind.value_field, is_utc),), required=is_required)
    raise UnsupportedType(f"column {field.name!r} is {kind}")


def _array(kind: Any, sink: Any) -> pyarrow.Array:
    """The rows of a column. The sink keeps its memory, and Arrow's pool has some at hand: new pages would cost most."""
    import pyarrow

    types = pyarrow.types
    rows, validity, numbers, text = sink.buffers()
    bits = memoryview(validity)[: (rows + 7) // 8]
    nulls = rows - (int.from_bytes(bits, "little") & (1 << rows) - 1).bit_count()
    valid = _copied(bits, len(bits)) if nulls else None
    if types.is_struct(kind):
        children = [_array(kind.field(index).type, child) for index, child in enumerate(sink.children)]
        return pyarrow.Array.from_buffers(kind, rows, [valid], nulls, children=children)
    if types.is_string(kind) or types.is_binary(kind):
        data, ends, _ = text.buffers()
        text_bytes = memoryview(ends).cast("q")[rows]
        return pyarrow.Array.from_buffers(kind, rows, [valid, _ends(ends, rows), _copied(data, text_bytes)], nulls)
    if types.is_list(kind):
        (element,) = sink.children
        children = [_array(kind.value_type, element)]
        return pyarrow.Array.from_buffers(kind, rows, [valid, _ends(numbers, rows)], nulls, children=children)
    if types.is_map(kind):
        (pair,) = sink.children
        pairs = _array(pyarrow.struct([kind.key_field, kind.item_field]), pair)
        return pyarrow.Array.from_buffers(kind, rows, [valid, _ends(numbers, rows)], nulls, children=[pairs])
    if types.is_floating(kind):
        if types.is_float64(kind):
            return _flat(kind, rows, valid, numbers, nulls)
        doubles = pyarrow.Array.from_buffers(pyarrow.float64(), rows, [valid, pyarrow.py_buffer(numbers)], nulls)
        return doubles.cast(kind, safe=False)
    if types.is_timestamp(kind) or types.is_int64(kind):
        return _flat(kind, rows, valid, numbers, nulls)
    wide = pyarrow.Array.from_buffers(pyarrow.int64(), rows, [valid, pyarrow.py_buffer(numbers)], nulls)
    if types.is_date32(kind):
        return wide.cast(pyarrow.int32()).view(kind)
    if types.is_decimal128(kind):
        # An integer is a decimal of scale 0, with the same bytes as the unscaled value of any other scale.
        unscaled = wide.cast(pyarrow.decimal128(38, 0))
        return pyarrow.Array.from_buffers(kind, rows, unscaled.buffers(), nulls, unscaled.offset)
    return wide.cast(kind)


def _flat(kind: Any, rows: int, valid: Any, buffer: bytearray, nulls: int) -> pyarrow.Array:
    import pyarrow

    return pyarrow.Array.from_buffers(kind, rows, [valid, _copied(buffer, _ELEMENT_BYTES * rows)], nulls)


def _ends(buffer: bytearray, rows: int) -> pyarrow.Buffer:
    """In 32 bits each, as Arrow's ordinary types count; an error if that is too small."""
    import pyarrow

    wide = pyarrow.Array.from_buffers(pyarrow.int64(), rows + 1, [None, pyarrow.py_buffer(buffer)])
    return wide.cast(pyarrow.int32()).buffers()[1]


def _copied(data: bytearray | memoryview, size: int) -> pyarrow.Buffer:
    import pyarrow

    copy = pyarrow.allocate_buffer(size)
    memoryview(copy).cast("B")[:] = memoryview(data)[:size]
    return copy
