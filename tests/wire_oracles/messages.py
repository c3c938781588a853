"""Values for any message of any version, made from its table: one that is full, and a Hypothesis strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

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

Choice = Callable[[Field], "st.SearchStrategy[Any] | None"]


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


def message_strategy(message: type[Any], version: int, choice: Choice = any_field) -> st.SearchStrategy[Any]:
    """Any message of this version; `choice` may narrow single fields to what a peer can represent."""
    present = [field for field in table_of(message) if field.versions.has(version)]
    return st.builds(message, **{field.name: _field_strategy(field, version, choice) for field in present})


def _field_strategy(field: Field, version: int, choice: Choice) -> st.SearchStrategy[Any]:
    chosen = choice(field)
    if chosen is not None:
        return chosen
    if field.is_array:
        assert field.of is not None
        values = st.lists(_value_strategy(field.of, version, choice), max_size=2)
    else:
        values = _value_strategy(field.of if isinstance(field.of, type) else field.kind, version, choice)
    return st.none() | values if field.nullable.has(version) else values


def _value_strategy(of: Kind | type, version: int, choice: Choice) -> st.SearchStrategy[Any]:
    if isinstance(of, type):
        return message_strategy(of, version, choice)
    if of is string:
        return st.text(max_size=6) | st.just("ü" * 80)
    if of is uuid:
        return st.binary(min_size=16, max_size=16)
    if of is boolean:
        return st.booleans()
    if of is float64:
        return st.floats(allow_nan=False, allow_infinity=False)
    if of.name in RANGES:
        return st.integers(*RANGES[of.name])
    return st.binary(max_size=6) | st.just(bytes(300))


def for_all(message: type[Any], version: int, check: Callable[[Any], None], choice: Choice = any_field) -> None:
    """Check a few messages of this version, the same ones in every run."""

    @settings(max_examples=8, derandomize=True, deadline=None, database=None)
    @given(message_strategy(message, version, choice))
    def run(sent: Any) -> None:
        check(sent)

    run()
