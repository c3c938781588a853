"""Why a message cannot be encoded: the first field whose value its table does not allow.

Generated encoders run without checks; only when one has failed does this walk the message to name the culprit.
"""

from __future__ import annotations

import struct
from typing import Any

from barnabas.wire.primitives import MAX_STRING_BYTES
from barnabas.wire.schema import Field, Kind, string, table_of, uuid


def first_fault(message: Any, cls: type, version: int) -> str | None:
    """`topics[0].partitions[2].index: 2147483648 does not fit int32`, or None if every field is in order."""
    for field in table_of(cls):
        if field.versions.has(version):
            try:
                value = getattr(message, field.name)
            except AttributeError:
                return f"{field.name}: {message!r} is no {cls.__name__}"
            fault = _field_fault(field, value, version)
            if fault is not None:
                return fault
    return None


def _field_fault(field: Field, value: Any, version: int) -> str | None:
    if value is None:
        return None if field.nullable.has(version) else f"{field.name}: null is not allowed in version {version}"
    if field.is_array:
        assert field.of is not None
        try:
            values = list(value)
        except TypeError:
            return f"{field.name}: {value!r} is no list"
        faults = (_value_fault(field.of, value, f"{field.name}[{i}]", version) for i, value in enumerate(values))
        return next((fault for fault in faults if fault is not None), None)
    return _value_fault(field.of or field.kind, value, field.name, version)


def _value_fault(kind: Kind | type, value: Any, name: str, version: int) -> str | None:
    if isinstance(kind, type):
        fault = first_fault(value, kind, version)
        return None if fault is None else f"{name}.{fault}"
    if kind is uuid:
        fine = isinstance(value, bytes | bytearray | memoryview) and len(value) == 16
        return None if fine else f"{name}: {value!r} is no uuid, which is 16 bytes"
    if kind.format is not None:
        try:
            struct.pack(">b" if kind.format == "?" else ">" + kind.format, value)
        except (struct.error, TypeError, OverflowError):
            return f"{name}: {value!r} does not fit {kind.name}"
        return None
    if kind is string:
        try:
            size = len(value.encode())
        except (AttributeError, UnicodeEncodeError):
            return f"{name}: {value!r} is no string that UTF-8 can carry"
        return None if size <= MAX_STRING_BYTES else f"{name}: {size} bytes are too many for a string"
    return None if hasattr(value, "__len__") else f"{name}: {value!r} has no length"
