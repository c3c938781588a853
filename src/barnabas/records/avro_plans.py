"""Resolves a writer's Avro schema against a reader's, into the steps by which `avro_codec` reads a record.

Schemas are what JSON makes of their text, with the full names of types wherever a name stands; `fastavro.parse_schema`
makes them so. The rules are Avro's: fields are matched by name or alias, those that the reader lacks are skipped, those
that the writer lacks take the reader's default, and numbers are widened.

What is not covered raises UnsupportedType: recursive types, logical types other than dates, timestamps and decimals, a
logical type that only one side has, arrays whose items may have no bytes, and schemas that do not match. In a branch of
a union it only makes the data of that branch unsure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.records.avro_defaults import encode_default
from barnabas.records.value_columns import UnsupportedType

_INT_BOUNDS = -(1 << 31), (1 << 31) - 1
_LONG_BOUNDS = -(1 << 63), (1 << 63) - 1
_DAY_BOUNDS = -719_162, 2_932_896
"""0001-01-01 to 9999-12-31, as of the two below: slower decoders know no other days."""
_TIMES = {
    "timestamp-millis": (-62_135_596_800_000, 253_402_300_799_999, 1000),
    "timestamp-micros": (-62_135_596_800_000_000, 253_402_300_799_999_999, 1),
}
_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_INTEGERS = {"int": _INT_BOUNDS, "long": _LONG_BOUNDS}
_WIDER = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip
_COLUMNS = {
    "boolean": "boolean", "int": "integer", "long": "integer", "float": "float", "double": "double", "bytes": "binary",
    "fixed": "binary", "string": "string", "enum": "string", "date": "date", **dict.fromkeys(_TIMES, "timestamp"),
    "decimal": "decimal", "record": "struct", "array": "list", "map": "map",
}  # fmt: skip
"""The sinks of the types that have columns."""
_MOST_DIGITS = 38
_DEEPEST = 64
_LARGEST = 10_000
"""The types of a plan; a short schema that uses its types by name can have many more."""

_COLUMN_LOGICAL_TYPES = {"date", *_TIMES, "decimal"}
"""Those that decide the type of a column."""
_CONVERTED = {
    ("int", "date"), ("long", "timestamp-millis"), ("long", "timestamp-micros"), ("bytes", "decimal"),
    ("fixed", "decimal"), ("string", "uuid"), ("int", "time-millis"), ("long", "time-micros"),
    ("long", "local-timestamp-millis"), ("long", "local-timestamp-micros"),
}  # fmt: skip
"""Those that a writer's logical type turns into something else than the type below it."""


def record_step(codec: Any, writer: Any, reader: Any, sink: Any) -> Any:
    """The step that reads a record of the writer into the sink of a struct with the reader's fields."""
    return _Plan(codec, named_types(writer), named_types(reader)).read(writer, reader, sink, 0)


class _Plan:
    def __init__(self, codec: Any, writer_types: Mapping[str, Any], reader_types: Mapping[str, Any]) -> None:
        self._codec = codec
        self._writer_types, self._reader_types = writer_types, reader_types
        self._size = 0

    def read(self, writer: Any, reader: Any, sink: Any, depth: int) -> Any:
        """The step from one type to another, both of which may be names."""
        self._descend(depth)
        if isinstance(writer, list):
            return self._codec.ReadUnion([self._read_branch(each, reader, sink, depth + 1) for each in writer])
        if isinstance(reader, list):
            if isinstance(writer, str) != all(isinstance(each, str) for each in reader):
                raise UnsupportedType("one side has a type in full, and the other its name")  # fastavro rejects some
            return self._read_member(writer, reader, sink, depth + 1)
        writer, reader = _resolved(writer, self._writer_types), _resolved(reader, self._reader_types)
        return self._read_type(writer, reader, sink, depth)

    def _descend(self, depth: int) -> None:
        self._size += 1
        if depth > _DEEPEST or self._size > _LARGEST:
            raise UnsupportedType(f"more than {_DEEPEST} levels or {_LARGEST} types, or types that contain themselves")

    def _read_branch(self, writer: Any, reader: Any, sink: Any, depth: int) -> Any:
        try:
            if isinstance(reader, list):
                return self._read_member(writer, reader, sink, depth)
            return self.read(writer, reader, sink, depth)
        except UnsupportedType:
            return self._codec.AvroStep()

    def _read_member(self, writer: Any, reader: list[Any], sink: Any, depth: int) -> Any:
        """Into a union of one type, or of one type and null."""
        if _type(writer) == "null":
            if "null" not in reader or sink.required:
                raise UnsupportedType("null, and the column is never null")
            return self._codec.AppendNull(sink)
        others = [each for each in reader if each != "null"]
        if len(others) != 1:
            raise UnsupportedType("the reader has a union of several types")
        return self.read(writer, others[0], sink, depth)

    def _read_type(self, writer: Any, reader: Any, sink: Any, depth: int) -> Any:
        codec, kind, reader_kind = self._codec, _type(writer), _type(reader)
        logical = _logical_type(writer, reader)
        if kind != reader_kind and (kind, reader_kind) not in _WIDER:
            raise UnsupportedType(f"the writer has {kind}, and the reader {reader_kind}")
        if kind in ("record", "enum", "fixed"):
            _check_names(writer, reader)
        if sink.type_name != _COLUMNS.get(logical or reader_kind):
            raise UnsupportedType(f"a column of type {sink.type_name} for {logical or reader_kind}")
        if logical == "decimal":
            return self._read_decimal(writer, reader, sink)
        match kind:
            case "record":
                return self._read_record(writer, reader, sink, depth)
            case "array":
                self._check_has_bytes(writer["items"], depth)
                return codec.ReadArray(sink, self.read(writer["items"], reader["items"], sink.children[0], depth + 1))
            case "map":
                values = sink.children[0].children[1]
                return codec.ReadMap(sink, self.read(writer["values"], reader["values"], values, depth + 1))
            case "boolean":
                return codec.ReadBoolean(sink)
            case "int" | "long" if reader_kind in ("float", "double"):
                return codec.ReadIntegerAsDouble(sink, *_INTEGERS[kind])
            case "int" | "long" if logical == "date":
                return codec.ReadInteger(sink, *_DAY_BOUNDS)
            case "int" | "long" if logical is not None:
                return codec.ReadInteger(sink, *_TIMES[writer["logicalType"]])
            case "int" | "long":
                low, high = _INTEGERS[kind]
                return codec.ReadInteger(sink, max(low, sink.low), min(high, sink.high))
            case "float":
                return codec.ReadFloat(sink)
            case "double":
                return codec.ReadDouble(sink)
            case "string" | "bytes":
                return codec.ReadBytes(sink, "string" in (kind, reader_kind))
            case "fixed":
                return codec.ReadFixed(sink, _fixed_size(writer, reader))
            case "enum":
                return codec.ReadEnum(sink, _symbols(writer, reader))
        raise UnsupportedType(f"no columns of {kind}")

    def _read_decimal(self, writer: Any, reader: Any, sink: Any) -> Any:
        precision = writer["precision"]
        if not writer.get("scale", 0) == reader.get("scale", 0) == sink.scale:
            raise UnsupportedType("decimals of different scale")
        bound = min(10 ** min(precision, _MOST_DIGITS) - 1, sink.high)
        size = _fixed_size(writer, reader) if writer["type"] == "fixed" else -1
        return self._codec.ReadDecimal(sink, size, -bound, bound)

    def _read_record(self, writer: Any, reader: Any, sink: Any, depth: int) -> Any:
        sinks = {each.name.decode(): each for each in sink.children}
        fields = {field["name"]: field for field in reader["fields"]}
        if sinks.keys() != fields.keys() or len(sinks) != len(reader["fields"]):
            raise UnsupportedType(f"record {reader['name']} has other fields than its columns")
        names = {alias: name for name, field in fields.items() for alias in field.get("aliases", ())}
        names.update({name: name for name in fields})
        steps = []
        for field in writer["fields"]:
            name = names.get(field["name"])
            if name is None:
                steps.append(self._skip(field["type"], depth + 1))
            elif name not in fields:
                raise UnsupportedType(f"two fields of the writer's record {writer['name']} are field {name!r}")
            else:
                steps.append(self.read(field["type"], fields.pop(name)["type"], sinks[name], depth + 1))
        steps += [self._default(field, sinks[name], depth + 1) for name, field in fields.items()]
        return self._codec.ReadRecord(sink, steps)

    def _default(self, field: Mapping[str, Any], sink: Any, depth: int) -> Any:
        if "default" not in field:
            raise UnsupportedType(f"the writer lacks field {field['name']!r}, which has no default")
        datum = encode_default(field["type"], field["default"], self._reader_types)
        own = _Plan(self._codec, self._reader_types, self._reader_types)
        return self._codec.AppendDefault(datum, own.read(field["type"], field["type"], sink, depth))

    def _skip(self, writer: Any, depth: int) -> Any:
        self._descend(depth)
        codec = self._codec
        if isinstance(writer, list):
            return codec.ReadUnion([self._skip(each, depth + 1) for each in writer])
        writer = _resolved(writer, self._writer_types)
        kind = _type(writer)
        match kind:
            case "int" | "long" | "enum":
                return codec.SkipLong()
            case "string" | "bytes":
                return codec.SkipBytes()
            case "null" | "boolean" | "float" | "double":
                return codec.SkipFixed(_FIXED_SIZES[kind])
            case "fixed":
                return codec.SkipFixed(_fixed_size(writer, writer))
            case "record":
                return codec.SkipRecord([self._skip(field["type"], depth + 1) for field in writer["fields"]])
            case "array":
                self._check_has_bytes(writer["items"], depth)
                return codec.SkipBlocks(self._skip(writer["items"], depth + 1))
            case "map":
                return codec.SkipBlocks(codec.SkipRecord([codec.SkipBytes(), self._skip(writer["values"], depth + 1)]))
        raise UnsupportedType(f"the writer has {kind}")

    def _check_has_bytes(self, writer: Any, depth: int) -> None:
        """A value must not be able to claim more items than it has bytes."""
        if not self._has_bytes(writer, depth):
            raise UnsupportedType("an array whose items may have no bytes")

    def _has_bytes(self, writer: Any, depth: int) -> bool:
        """Whether every datum has at least one byte."""
        self._descend(depth)
        writer = _resolved(writer, self._writer_types)
        match "union" if isinstance(writer, list) else _type(writer):
            case "null":
                return False
            case "fixed":
                return _fixed_size(writer, writer) > 0
            case "record":
                return any(self._has_bytes(field["type"], depth + 1) for field in writer["fields"])
        return True


def named_types(schema: Any) -> dict[str, Any]:
    """The types that a schema defines, by their full names."""
    found: dict[str, Any] = {}
    if isinstance(schema, list):
        for each in schema:
            found |= named_types(each)
    elif isinstance(schema, Mapping):
        if "name" in schema:
            found[schema["name"]] = schema
        inner = [schema[key] for key in ("items", "values") if key in schema]
        for each in [*inner, *(field["type"] for field in schema.get("fields", ()))]:
            found |= named_types(each)
    return found


def _resolved(schema: Any, types: Mapping[str, Any]) -> Any:
    return types.get(schema, schema) if isinstance(schema, str) else schema


def _type(schema: Any) -> str:
    return str(schema["type"] if isinstance(schema, Mapping) else schema)


def _logical_type(writer: Any, reader: Any) -> str | None:
    """The one that both have."""
    written = writer.get("logicalType") if isinstance(writer, Mapping) else None
    if (_type(writer), written) not in _CONVERTED:
        written = None
    wanted = reader.get("logicalType") if isinstance(reader, Mapping) else None
    if wanted not in _COLUMN_LOGICAL_TYPES:
        wanted = None
    if written != wanted and not (written in _TIMES and wanted in _TIMES):
        raise UnsupportedType(f"the writer has {written or _type(writer)}, and the reader {wanted or _type(reader)}")
    return str(wanted) if wanted else None


def _check_names(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> None:
    """Types match if their names do, without the namespace, or by an alias of the reader's."""
    short = writer["name"].rpartition(".")[2]
    if short != reader["name"].rpartition(".")[2] and not {short, writer["name"]} & set(reader.get("aliases", ())):
        raise UnsupportedType(f"the writer has {writer['name']}, and the reader {reader['name']}")


def _fixed_size(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> int:
    size = writer["size"]
    if type(size) is not int or size < 0 or reader["size"] != size:
        raise UnsupportedType(f"the writer has {size} bytes, and the reader {reader['size']}")
    return size


def _symbols(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> list[bytes | None]:
    """What the reader makes of each symbol of the writer's; None: nothing."""
    default = reader.get("default")
    if not isinstance(default, str) or not default:
        default = None
    found = [symbol if symbol in reader["symbols"] else default for symbol in writer["symbols"]]
    return [None if symbol is None else symbol.encode() for symbol in found]
