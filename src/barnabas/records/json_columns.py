"""JSON values as Arrow columns: what `json_codec` is sure of, and which values it leaves to a slower decoder."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from barnabas.core.dataclass import dataclass
from barnabas.records import engine
from barnabas.records.columns import BinaryColumn

if TYPE_CHECKING:
    import pyarrow

_DECIMAL_DIGITS = 18
"""Those whose unscaled value fits 64 bits."""
_ELEMENT_BYTES = 8
_NO_VALIDITY = memoryview(b"")


class UnsupportedType(ValueError):
    """A column has a type that this decoder never reads."""


@dataclass(frozen=True, slots=True)
class JsonRows:
    rows: pyarrow.RecordBatch
    """Of the values that are sure, in their order."""
    unsure: list[int]
    """The indexes of the others."""


class JsonReader:
    """Decodes batch after batch of values into the columns of an Arrow schema.

    A column named in `required` is never null: a value without it is unsure. Timestamps without a zone are taken as
    UTC only where `is_utc` says so.
    """

    def __init__(self, schema: pyarrow.Schema, required: Collection[str] = (), *, is_utc: bool = True) -> None:
        codec = engine.json_codec
        self._schema = schema
        columns = [_column(codec, field, is_utc, is_required=field.name in required) for field in schema]
        self._columns = tuple(columns)
        self._root = codec.JsonSink("struct", b"", self._columns)
        self._decoder = codec.JsonDecoder(self._root)

    def read(self, values: pyarrow.Array) -> JsonRows:
        """Decode an array of bytes."""
        import pyarrow

        column = BinaryColumn.from_arrow(values)
        ends = column.ends
        if ends.format == "i":
            ends = memoryview(pyarrow.Array.from_buffers(
                pyarrow.int32(), len(ends), [None, pyarrow.py_buffer(ends)]
            ).cast(pyarrow.int64()).buffers()[1]).cast("q")  # fmt: skip
        validity = _NO_VALIDITY if column.validity is None else column.validity
        unsure = self._decoder.decode(column.data, ends, validity, column.first_bit, len(column))
        rows = len(column) - len(unsure)
        arrays = [_array(field.type, made) for field, made in zip(self._schema, self._columns)]
        self._root.begin()
        return JsonRows(_record_batch(arrays, self._schema, rows), unsure)


def _record_batch(arrays: list[pyarrow.Array], schema: pyarrow.Schema, rows: int) -> pyarrow.RecordBatch:
    import pyarrow

    if arrays:
        return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
    return pyarrow.RecordBatch.from_struct_array(pyarrow.nulls(rows, pyarrow.struct([])))


def _column(codec: Any, field: pyarrow.Field, is_utc: bool, *, is_required: bool = False) -> Any:
    import pyarrow

    kind, name, types = field.type, field.name.encode(), pyarrow.types
    if types.is_boolean(kind):
        return codec.JsonSink("boolean", name, required=is_required)
    if types.is_signed_integer(kind):
        bound = 1 << (kind.bit_width - 1)
        return codec.JsonSink("integer", name, required=is_required, low=-bound, high=bound - 1)
    if types.is_float64(kind):
        return codec.JsonSink("double", name, required=is_required)
    if types.is_float32(kind):
        return codec.JsonSink("float", name, required=is_required)
    if types.is_string(kind):
        return codec.JsonSink("string", name, required=is_required)
    if types.is_decimal128(kind):
        bound = 10 ** min(kind.precision, _DECIMAL_DIGITS) - 1
        return codec.JsonSink("decimal", name, required=is_required, low=-bound, high=bound, scale=kind.scale)
    if types.is_timestamp(kind) and kind.unit == "us":
        zoned = -1 if kind.tz is None else int(is_utc)
        return codec.JsonSink("timestamp", name, required=is_required, zoned=zoned)
    if types.is_date32(kind):
        return codec.JsonSink("date", name, required=is_required)
    if types.is_struct(kind):
        children = tuple(_column(codec, kind.field(index), is_utc) for index in range(kind.num_fields))
        return codec.JsonSink("struct", name, children, required=is_required)
    if types.is_map(kind) and types.is_string(kind.key_type):
        pair = codec.JsonSink(
            "struct", b"", (_column(codec, kind.key_field, is_utc), _column(codec, kind.item_field, is_utc))
        )
        return codec.JsonSink("map", name, (pair,), required=is_required)
    if types.is_list(kind):
        return codec.JsonSink("list", name, (_column(codec, kind.value_field, is_utc),), required=is_required)
    raise UnsupportedType(f"column {field.name!r} is {kind}")


def _array(kind: Any, column: Any) -> pyarrow.Array:
    """The rows of a column, on the memory that the decoder has filled."""
    import pyarrow

    types = pyarrow.types
    rows, validity, integers, doubles, text = column.buffers()
    bits = memoryview(validity)[: (rows + 7) // 8]
    nulls = rows - (int.from_bytes(bits, "little") & (1 << rows) - 1).bit_count()
    valid = pyarrow.py_buffer(bits) if nulls else None
    if types.is_struct(kind):
        children = [_array(kind.field(index).type, child) for index, child in enumerate(column.children_list())]
        return pyarrow.Array.from_buffers(kind, rows, [valid], nulls, children=children)
    if types.is_string(kind):
        data, ends, _ = text.buffers()
        return pyarrow.Array.from_buffers(kind, rows, [valid, _ends(ends, rows), pyarrow.py_buffer(data)], nulls)
    if types.is_list(kind):
        (element,) = column.children_list()
        children = [_array(kind.value_type, element)]
        return pyarrow.Array.from_buffers(kind, rows, [valid, _ends(integers, rows)], nulls, children=children)
    if types.is_map(kind):
        (pair,) = column.children_list()
        pairs = _array(pyarrow.struct([kind.key_field, kind.item_field]), pair)
        return pyarrow.Array.from_buffers(kind, rows, [valid, _ends(integers, rows)], nulls, children=[pairs])
    if types.is_floating(kind):
        numbers = _flat(pyarrow.float64(), rows, valid, doubles, nulls)
        return numbers if types.is_float64(kind) else numbers.cast(kind, safe=False)
    wide = _flat(pyarrow.int64(), rows, valid, integers, nulls)
    if types.is_timestamp(kind):
        return wide.view(kind)
    if types.is_date32(kind):
        return wide.cast(pyarrow.int32()).view(kind)
    if types.is_decimal128(kind):
        # An integer is a decimal of scale 0, with the same bytes as the unscaled value of any other scale.
        unscaled = wide.cast(pyarrow.decimal128(38, 0))
        return pyarrow.Array.from_buffers(kind, rows, unscaled.buffers(), nulls, unscaled.offset)
    return wide.cast(kind)


def _flat(kind: Any, rows: int, valid: Any, buffer: bytearray, nulls: int) -> pyarrow.Array:
    import pyarrow

    data = pyarrow.py_buffer(memoryview(buffer)[: _ELEMENT_BYTES * rows])
    return pyarrow.Array.from_buffers(kind, rows, [valid, data], nulls)


def _ends(buffer: bytearray, rows: int) -> pyarrow.Buffer:
    """In 32 bits each, as Arrow's ordinary types count."""
    import pyarrow

    wide = memoryview(buffer)[: _ELEMENT_BYTES * (rows + 1)].cast("q")
    return pyarrow.py_buffer(engine.column_codec.narrow(wide, rows + 1))
