"""Encodes the default of a field, as a schema has it in JSON, into a datum of the field's type.

A default that does not clearly mean one value raises UnsupportedType: a record without all its fields, bytes that are
not ASCII, decimals, and times in milliseconds. A slower decoder takes those.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from barnabas.records.value_columns import UnsupportedType

_BOUNDS = {"int": 1 << 31, "long": 1 << 63}
_EXACT_FLOAT = 1 << 24
_UNCLEAR = ("decimal", "timestamp-millis")


def encode_default(schema: Any, value: Any, types: Mapping[str, Any]) -> bytes:
    """`types` are those that the schema may name."""
    if isinstance(schema, list):
        index = schema.index("null") if value is None and "null" in schema else _first_other(schema)
        return _long(index) + encode_default(schema[index], value, types)
    if isinstance(schema, str):
        schema = types.get(schema, schema)
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    logical = schema.get("logicalType") if isinstance(schema, Mapping) else None
    match kind, value:
        case _ if logical in _UNCLEAR:
            pass
        case "null", None:
            return b""
        case "boolean", bool():
            return bytes([value])
        case "int" | "long", int() if not isinstance(value, bool) and -_BOUNDS[kind] <= value < _BOUNDS[kind]:
            return _long(value)
        case "float" | "double", int() if not isinstance(value, bool) and abs(value) <= _EXACT_FLOAT:
            return struct.pack("<f" if kind == "float" else "<d", value)
        case "double", float():
            return struct.pack("<d", value)
        case "float", float() if abs(value) < 3e38:
            return struct.pack("<f", value)
        case "string", str():
            return _counted(value.encode(errors="surrogatepass"))
        case "bytes", str() if value.isascii():
            return _counted(value.encode())
        case "fixed", str() if value.isascii() and len(value) == schema["size"]:
            return value.encode()
        case "enum", str() if value in schema["symbols"]:
            return _long(schema["symbols"].index(value))
        case "array", list():
            return _blocks([encode_default(schema["items"], each, types) for each in value])
        case "map", dict():
            keys = [_counted(key.encode(errors="surrogatepass")) for key in value]
            values = [encode_default(schema["values"], each, types) for each in value.values()]
            return _blocks([key + each for key, each in zip(keys, values)])
        case "record", dict() if all(field["name"] in value for field in schema["fields"]):
            return b"".join(encode_default(field["type"], value[field["name"]], types) for field in schema["fields"])
    raise UnsupportedType(f"the default {value!r} of a field of type {logical or kind}")


def _first_other(schema: list[Any]) -> int:
    return next((index for index, each in enumerate(schema) if each != "null"), 0)


def _long(value: int) -> bytes:
    rest, encoded = value << 1 ^ value >> 63, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def _counted(data: bytes) -> bytes:
    return _long(len(data)) + data


def _blocks(items: list[bytes]) -> bytes:
    return b"".join([_long(len(items)), *items, b"\0"]) if items else b"\0"
