"""Values for any message of any version, made from its table: one that is full, and some that are drawn by chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from barnabas.wire.registry import API_KEYS
from barnabas.wire.schema import Field, Kind, boolean, float64, schema_of, string, table_of, uuid

MESSAGES: list[type[Any]] = [message for api in API_KEYS.values() for message in (api.request, api.response)]

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}

EXAMPLES = 8
LETTERS = "aZ\0 üß€漢🙂"

Choice = Callable[[Field], Sequence[Any] | None]


def versions(message: type[Any]) -> range:
    lowest, highest = schema_of(message).versions
    return range(lowest, highest + 1)


def is_flexible(message: type[Any], version: int) -> bool:
    return schema_of(message).flexible.has(version)


def full(message: type[Any], version: int) -> Any:
    """A message in which no field is at its default, no list is empty, and one string has a long length prefix."""

    def value(of: Kind | type, name: str) -> Any:
        if isinstance(of, type):
            return full(of, version)
        if of is string:
            return name if len(name) > 12 else name * 20
        if of is uuid:
            return name.encode().ljust(16, b".")[:16]
        if of is boolean:
            return True
        if of is float64:
            return 0.5
        return 100 + len(name) if of.name in RANGES else memoryview(name.encode() * 3)

    def field_value(field: Field) -> Any:
        if field.is_array:
            assert field.of is not None
            return [value(field.of, field.name), value(field.of, f"{field.name}_2")]
        if field.kind is boolean:
            return not field.default
        return value(field.of if isinstance(field.of, type) else field.kind, field.name)

    return message(**{field.name: field_value(field) for field in table_of(message) if field.versions.has(version)})


def any_field(_: Field) -> None:
    """The choice that leaves every field free."""


def for_all(message: type[Any], version: int, check: Callable[[Any], None], choice: Choice = any_field) -> None:
    """Check a few messages of this version, the same ones in every run.

    `choice` may narrow single fields to what a peer can represent.
    """
    drawn = Drawn(Random(f"{message.__name__} {version}"), version, choice)
    for _ in range(EXAMPLES):
        check(drawn.message(message))


class Drawn:
    """Messages drawn by chance: short lists, nothing where that may be, numbers often at the ends of their range."""

    def __init__(self, chance: Random, version: int, choice: Choice) -> None:
        self._chance, self._version, self._choice = chance, version, choice

    def message(self, message: type[Any]) -> Any:
        present = [field for field in table_of(message) if field.versions.has(self._version)]
        return message(**{field.name: self._field(field) for field in present})

    def _field(self, field: Field) -> Any:
        if field.nullable.has(self._version) and self._chance.random() < 0.3:
            return None
        chosen = self._choice(field)
        if chosen is not None:
            return self._chance.choice(chosen)
        if field.is_array:
            assert field.of is not None
            return [self._value(field.of) for _ in range(self._chance.randrange(3))]
        return self._value(field.of if isinstance(field.of, type) else field.kind)

    def _value(self, of: Kind | type) -> Any:
        chance = self._chance
        if isinstance(of, type):
            return self.message(of)
        if of is string:
            return chance.choice(("", "ü" * 80, "".join(chance.choices(LETTERS, k=6))))
        if of is uuid:
            return chance.choice((bytes(16), chance.randbytes(16)))
        if of is boolean:
            return chance.random() < 0.5
        if of is float64:
            return chance.choice((0.0, -0.0, 5e-324, 1.7e308, chance.gauss(0, 1e6)))
        if of.name in RANGES:
            low, high = RANGES[of.name]
            return chance.choice((low, high, 0, 1, chance.randint(low, high)))
        return chance.choice((b"", bytes(300), chance.randbytes(6)))
