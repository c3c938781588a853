"""A record as a line of JSON, so that `barnabas consume -o json | barnabas produce --json` loses nothing.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp_ms": 1763200800000, "key": "k", "value": "v",
     "headers": [{"name": "trace", "value": "a1"}]}

Bytes that are UTF-8 stand as text; others under `key_base64`, `value_base64`. A missing or null field is a null. What
is neither is a document, and becomes the record's JSON.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from barnabas.client.consume.consumed import ConsumerRecord
from barnabas.records.record import Header

_FIELDS = frozenset({"topic", "partition", "offset", "timestamp_ms", "headers"})
_CONTENTS = frozenset({"key", "key_base64", "value", "value_base64"})
_HIGHEST = 2**63 - 1
_OF_HEADER = frozenset({"name", "value", "value_base64"})


class InputRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def record_fields(record: ConsumerRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [{"name": name, **_field("value", value)} for name, value in record.headers],
    }


def parse_record(line: bytes) -> InputRecord:
    """The record that a line describes; ValueError says what is wrong with it."""
    fields = _object(json.loads(line), "a record", _FIELDS | _CONTENTS)
    headers = fields.get("headers") or []
    if not isinstance(headers, list):
        raise ValueError('headers are a list of {"name": ..., "value": ...}')
    return InputRecord(
        _content(fields, "key"),
        _content(fields, "value"),
        tuple(_header(header) for header in headers),
        _number(fields, "timestamp_ms"),
        _number(fields, "partition"),
    )


def _object(value: object, what: str, known: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is a JSON object, not {type(value).__name__}")
    for name in value.keys() - known:
        nearest = get_close_matches(name, known, 1, 0.5)
        raise ValueError(f"{what} has no field {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else ""))
    return value


def _header(header: object) -> Header:
    fields = _object(header, "a header", _OF_HEADER)
    name = fields.get("name")
    if not isinstance(name, str):
        raise ValueError(f"the name of a header is text, not {name!r}")
    return name, _content(fields, "value")


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    number = fields.get(name)
    if number is not None and not (type(number) is int and -_HIGHEST <= number <= _HIGHEST):
        raise ValueError(f"{name} is a whole number of 64 bits, not {number!r}")
    return number


def _field(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(content).decode()}


def _content(fields: Mapping[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise ValueError(f"{name}_base64 is text, not {encoded!r}")
        return b64decode(encoded, validate=True)
    content = fields.get(name)
    if content is None or isinstance(content, str):
        return None if content is None else content.encode()
    return json.dumps(content, ensure_ascii=False).encode()
