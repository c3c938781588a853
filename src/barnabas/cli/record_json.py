"""A record as a line of JSON, so that `barnabas consume -o json | barnabas produce --input json` loses nothing.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp_ms": 1763200800000, "key": "k", "value": "v",
     "headers": [{"name": "trace", "value": "a1"}]}

Bytes that are UTF-8 stand as text; others under `key_base64`, `value_base64`. A missing or null field is a null.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.client.metadata import TopicPartition
from barnabas.records.record import Header, Record


class InputRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None


def record_fields(partition: TopicPartition, record: Record) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [{"name": name, **_field("value", value)} for name, value in record.headers],
    }


def parse_record(line: bytes) -> InputRecord:
    """The record that a line describes; ValueError says what is wrong with it."""
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError(f"a record is a JSON object, not {type(fields).__name__}")
    timestamp_ms = fields.get("timestamp_ms")
    if not isinstance(timestamp_ms, int | None):
        raise ValueError(f"timestamp_ms is a number of milliseconds, not {timestamp_ms!r}")
    headers = fields.get("headers") or []
    if not isinstance(headers, list) or not all(isinstance(header, dict) and "name" in header for header in headers):
        raise ValueError('headers are a list of {"name": ..., "value": ...}')
    return InputRecord(
        _content(fields, "key"),
        _content(fields, "value"),
        tuple((str(header["name"]), _content(header, "value")) for header in headers),
        timestamp_ms,
    )


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
        return b64decode(encoded, validate=True)
    content = fields.get(name)
    if content is None or isinstance(content, str):
        return None if content is None else content.encode()
    return json.dumps(content, ensure_ascii=False).encode()
