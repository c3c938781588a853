"""A record survives its way through a line of JSON, whatever bytes it holds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.record_json import InputRecord, parse_record, record_fields
from barnabas.client.consume.consumed import ConsumerRecord

content = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)


@given(
    key=content,
    value=content,
    headers=st.lists(st.tuples(st.text(max_size=8), content), max_size=3).map(tuple),
    timestamp_ms=st.integers(-1, 2**53),
)
def test_nothing_is_lost(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...], timestamp_ms: int
) -> None:
    fields = record_fields(ConsumerRecord("t", 2, 7, timestamp_ms, key, value, headers))
    assert parse_record(json.dumps(fields).encode()) == InputRecord(key, value, headers, timestamp_ms, 2)


def test_text_stays_readable_and_other_bytes_are_base64() -> None:
    fields = record_fields(ConsumerRecord("t", 3, 7, 5, "ü".encode(), b"\xff\x00"))
    assert fields == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp_ms": 5,
        "key": "ü",
        "value_base64": "/wA=",
        "headers": [],
    }


def test_a_value_that_is_json_itself_is_sent_as_its_text() -> None:
    assert parse_record(b'{"value": {"id": 1}}').value == b'{"id": 1}'


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"[]", "a record is a JSON object, not list"),
        (b'{"vlaue": "x"}', "did you mean 'value'"),
        (b'{"headers": {"a": 1}}', "headers are a list"),
        (b'{"headers": [{"name": 1}]}', "the name of a header is text, not 1"),
        (b'{"headers": [{"name": "a", "key": "b"}]}', "a header has no field 'key'"),
        (b'{"timestamp_ms": "now"}', "timestamp_ms is a whole number"),
        (b'{"timestamp_ms": 9223372036854775808}', "timestamp_ms is a whole number of 64 bits"),
        (b'{"partition": true}', "partition is a whole number"),
        (b'{"value_base64": "?"}', "base64"),
        (b'{"value_base64": 7}', "value_base64 is text, not 7"),
    ],
)
def test_a_wrong_line_is_a_value_error_that_says_what_is_wrong(line: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_record(line)
