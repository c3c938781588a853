"""Random pairs of Avro schemas, as a reader and an older or newer writer have them, and data: good, odd and broken.

Everything comes from one `random.Random`, so that a seed repeats a run. Data are encoded here, not by a library: they
have what libraries do not write, such as blocks in pieces and with sizes, and numbers longer than they need be.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeAlias

Schema: TypeAlias = Any

SIMPLE: tuple[Schema, ...] = (
    "boolean", "int", "long", "float", "double", "bytes", "string", {"type": "string", "avro.java.string": "String"},
    {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 3},
)  # fmt: skip
NARROWER = {"long": ("int",), "float": ("int", "long"), "double": ("int", "long", "float"), "bytes": ("string",),
            "string": ("bytes",)}  # fmt: skip
ODD: tuple[Schema, ...] = (
    {"type": "string", "logicalType": "uuid"}, {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "date"}, {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "int", "logicalType": "mine"},
)  # fmt: skip
INTEGERS = (0, 1, -1, 63, 64, -64, -65, 127, 8191, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
TEXTS = (b"", b"a", b"user-17", "naïve 日本語 😀".encode(), b"a much longer text, more than sixteen bytes", b"\0")
NO_TEXTS = (b"\xff", b"12345678\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xc0\xaf")


class SchemaPairs:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._names = 0
        self._named: list[Schema] = []

    def pair(self) -> tuple[Schema, Schema]:
        """A writer's and a reader's schema of a record."""
        reader = self._record(0, self._random.choice(("Row", "a.b.Row")))
        writer = self._evolved(reader, {})
        return with_names(writer), with_names(reader)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _name(self) -> str:
        self._names += 1
        return f"n{self._names}"

    def _record(self, depth: int, name: str) -> Schema:
        fields = [self._field(depth) for _ in range(self._random.randint(1, 6 if depth == 0 else 3))]
        return {"type": "record", "name": name, "fields": fields}

    def _field(self, depth: int) -> dict[str, Any]:
        kind = self._type(depth + 1)
        field = {"name": self._name(), "type": kind}
        if self._chance(0.5):
            field["default"] = self._default(kind)
        if self._chance(0.2):
            field["aliases"] = [self._name()]
        return field

    def _type(self, depth: int) -> Schema:
        """One that has a column."""
        kind = self._plain_type(depth)
        match self._random.randrange(4):
            case 0:
                return ["null", kind]
            case 1:
                return [kind, "null"] if self._chance(0.8) else [kind]
        return kind

    def _plain_type(self, depth: int) -> Schema:
        if depth < 3 and self._chance(0.4):
            match self._random.randrange(3):
                case 0:
                    return {"type": "array", "items": self._type(depth + 1)}
                case 1:
                    return {"type": "map", "values": self._type(depth + 1)}
            return self._remembered(self._record(depth + 1, self._name()))
        if self._named and self._chance(0.2):
            return self._random.choice(self._named)
        match self._random.randrange(8):
            case 0:
                symbols = [f"S{index}" for index in range(self._random.randint(1, 5))]
                extra = {"default": symbols[0]} if self._chance(0.5) else {}
                return self._remembered({"type": "enum", "name": self._name(), "symbols": symbols, **extra})
            case 1:
                return self._remembered({"type": "fixed", "name": self._name(), "size": self._random.choice((1, 7))})
            case 2:
                decimal = {"logicalType": "decimal", "precision": 18, "scale": 4}
                return self._remembered({"type": "fixed", "name": self._name(), "size": 10, **decimal})
        return self._random.choice(ODD) if self._chance(0.02) else self._random.choice(SIMPLE)

    def _remembered(self, schema: Schema) -> Schema:
        self._named.append(schema)
        return schema

    def _default(self, schema: Schema) -> Any:
        if isinstance(schema, list):
            return None if "null" in schema and self._chance(0.5) else self._default(_others(schema)[0])
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "record":
                return {field["name"]: self._default(field["type"]) for field in schema["fields"]}
            case "array":
                return [self._default(schema["items"]) for _ in range(self._random.randrange(3))]
            case "map":
                return {f"k{index}": self._default(schema["values"]) for index in range(self._random.randrange(3))}
            case "enum":
                return schema["symbols"][-1]
            case "fixed":
                return "x" * schema["size"]
        return {"boolean": True, "int": -7, "long": 2**40, "float": 0.1, "double": 2.5, "bytes": "ab", "string": "é"}[
            kind
        ]

    def _evolved(self, schema: Schema, known: dict[str, Schema]) -> Schema:
        """What a writer may have where the reader has this."""
        random = self._random
        if isinstance(schema, list):
            kinds = [each if each == "null" else self._evolved(each, known) for each in schema]
            if self._chance(0.1):
                random.shuffle(kinds)
            if self._chance(0.1):
                return self._evolved(_others(schema)[0], known)
            if self._chance(0.05):
                kinds.append({"type": "map", "values": "int"})
            return kinds if not any(isinstance(each, list) for each in kinds) else schema
        if isinstance(schema, str):
            return random.choice(NARROWER[schema]) if schema in NARROWER and self._chance(0.15) else schema
        if "name" in schema:
            if schema["name"] not in known:
                known[schema["name"]] = self._evolved_named(schema, known)
            return known[schema["name"]]
        if schema["type"] == "array":
            return {**schema, "items": self._evolved(schema["items"], known)}
        if schema["type"] == "map":
            return {**schema, "values": self._evolved(schema["values"], known)}
        if schema.get("logicalType", "").startswith("timestamp") and self._chance(0.2):
            return {"type": "long", "logicalType": "timestamp-millis"}
        return random.choice(SIMPLE) if self._chance(0.01) else schema

    def _evolved_named(self, schema: Schema, known: dict[str, Schema]) -> Schema:
        random = self._random
        if schema["type"] == "enum" and self._chance(0.3):
            symbols = [*schema["symbols"], "NEW"]
            random.shuffle(symbols)
            return {**schema, "symbols": symbols}
        if schema["type"] != "record":
            return schema
        fields = []
        for field in schema["fields"]:
            if self._chance(0.15 if "default" in field else 0.01):
                continue
            name = field["aliases"][0] if "aliases" in field and self._chance(0.6) else field["name"]
            fields.append({"name": name, "type": self._evolved(field["type"], known)})
        if self._chance(0.3):
            random.shuffle(fields)
        if self._chance(0.3) or not fields:
            fields.insert(random.randint(0, len(fields)), {"name": self._name(), "type": self._extra(known)})
            fields.append({"name": self._name(), "type": "int"})
        return {**schema, "fields": fields}

    def _extra(self, known: dict[str, Schema]) -> Schema:
        """Of a field that only the writer has: any type."""
        named, self._named = self._named, [each for each in self._named if each["type"] != "record"]  # no recursion
        kind = self._evolved(self._type(2), known)
        self._named = named
        if self._chance(0.3):
            return ["null", "long", "string", {"type": "array", "items": "double"}, {"type": "map", "values": "bytes"}]
        if self._chance(0.2):
            return {"type": "array", "items": ["null", "int", "string"]}
        return kind


def with_names(schema: Schema, defined: set[str] | None = None) -> Schema:
    """The same schema, in which a type is named where it has been defined before."""
    defined = set() if defined is None else defined
    if isinstance(schema, list):
        return [with_names(each, defined) for each in schema]
    if isinstance(schema, str):
        return schema
    if "name" in schema:
        if schema["name"] in defined:
            return schema["name"]
        defined.add(schema["name"])
    changed = {key: with_names(schema[key], defined) for key in ("items", "values") if key in schema}
    if "fields" in schema:
        changed["fields"] = [{**field, "type": with_names(field["type"], defined)} for field in schema["fields"]]
    return {**schema, **changed}


class Data:
    """Data of a schema that `fastavro.parse_schema` has made."""

    def __init__(self, random: Random, named: Mapping[str, Schema]) -> None:
        self._random, self._named = random, named

    def value(self, schema: Schema) -> bytes:
        """Mostly good; one in ten is broken."""
        data = self.datum(schema)
        if self._random.random() < 0.9:
            return data
        at = self._random.randint(0, len(data))
        match self._random.randrange(5):
            case 0:
                return data[:at]
            case 1:
                return data + self._random.randbytes(self._random.randint(1, 3))
            case 2:
                return data[:at] + self._random.randbytes(1) + data[at + 1 :]
            case 3:
                return data[:at] + self._random.randbytes(self._random.randrange(4)) + data[at:]
        return self._random.randbytes(self._random.randrange(30))

    def datum(self, schema: Schema) -> bytes:
        random = self._random
        if isinstance(schema, list):
            index = random.randrange(len(schema))
            return _long(index) + self.datum(schema[index])
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "record":
                return b"".join(self.datum(field["type"]) for field in schema["fields"])
            case "array":
                return self._blocks(lambda index: self.datum(schema["items"]))
            case "map":
                return self._blocks(lambda index: self._bytes(b"k%d" % index) + self.datum(schema["values"]))
            case "enum":
                return _long(random.randrange(len(schema["symbols"])))
            case "fixed" if schema.get("logicalType") == "decimal":
                return random.randint(-(10**10), 10**10).to_bytes(schema["size"], "big", signed=True)
            case "fixed":
                return random.randbytes(schema["size"])
        return self._simple(kind, schema.get("logicalType") if isinstance(schema, dict) else None)

    def _simple(self, kind: str, logical: str | None) -> bytes:
        random = self._random
        match kind:
            case "null":
                return b""
            case "boolean":
                return bytes([random.choice((0, 1, 1, 1, 2))])
            case "int" | "long" if logical is not None and random.random() < 0.9:
                return _long(random.randint(-(10**5), 10**5) * (10**6 if "timestamp" in logical else 1))
            case "int":
                return _long(random.choice((random.randint(-100, 100), random.choice(INTEGERS[:11]))))
            case "long":
                return _long(random.choice((random.randint(-(2**40), 2**40), random.choice(INTEGERS))))
            case "float":
                return struct.pack("<f", random.choice((0.1, 1.5, -0.0, float("inf"), float("nan"), 3e38)))
            case "double":
                return struct.pack("<d", random.choice((0.1, random.random(), -0.0, float("inf"), float("nan"), 1e300)))
            case "bytes" if logical == "decimal":
                return self._bytes(self._unscaled())
        return self._bytes(random.choice(NO_TEXTS) if random.random() < 0.02 else random.choice(TEXTS))

    def _unscaled(self) -> bytes:
        random = self._random
        number = random.choice(
            (0, -1, 127, 128, -128, -129, 10**9 - 1, 10**9, 2**63 - 1, -(2**63), random.randint(-999, 999))
        )
        size = (number + (number < 0)).bit_length() // 8 + 1
        return (
            number.to_bytes(size + random.choice((0, 0, 0, 1, 9)), "big", signed=True)
            if random.random() < 0.95
            else b""
        )

    def _bytes(self, data: bytes) -> bytes:
        return _long(len(data), self._random.random() < 0.02) + data

    def _blocks(self, item: Callable[[int], bytes]) -> bytes:
        random = self._random
        counts = random.choice(((), (1,), (2,), (3, 1), (1, 1, 1), (20,)))
        data, made = b"", 0
        for count in counts:
            items = b"".join(item(made + index) for index in range(count))
            made += count
            data += _long(count) + items if random.random() < 0.7 else _long(-count) + _long(len(items)) + items
        return data + _long(0)


def _others(schema: list[Schema]) -> list[Schema]:
    return [each for each in schema if each != "null"]


def _long(value: int, is_padded: bool = False) -> bytes:
    rest, encoded = value << 1 ^ value >> 63, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest | 0x80, 0x80, 0]) if is_padded else bytes([*encoded, rest])
