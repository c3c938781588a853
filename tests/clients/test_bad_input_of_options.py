"""A wrong option is refused when the object is made, in words that name the right one."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.client.options import WrongOption

WRONG_NAMES = [
    (Producer, "batch_siez", "batch_size"),
    (Producer, "linger.ms", "linger_ms"),
    (Producer, "maxRequestSize", "max_request_size"),
    (Producer, "compression", "compression_type"),
    (Producer, "transaction_id", "transactional_id"),
    (Consumer, "group_id", "group"),
    (Consumer, "isolation", "isolation_level"),
    (Consumer, "auto.offset.reset", "auto_offset_reset"),
    (Consumer, "topic", "topics"),
    (Consumer, "max_poll_interval", "max_poll_interval_ms"),
    (Admin, "request_timeout", "request_timeout_ms"),
]


@pytest.mark.parametrize(("client", "wrong", "right"), WRONG_NAMES, ids=lambda value: getattr(value, "__name__", value))
def test_an_unknown_option_is_an_error_that_names_the_nearest_right_one(client: Any, wrong: str, right: str) -> None:
    with pytest.raises(WrongOption, match=f"{client.__name__} has no option '{wrong}'; did you mean '{right}'"):
        client("localhost:9092", **{wrong: 1})


@pytest.mark.parametrize(
    ("client", "option", "value"),
    [
        (Producer, "acks", 2),
        (Producer, "batch_size", -1),
        (Producer, "linger_ms", -1),
        (Producer, "compression_type", "rar"),
        (Producer, "value_serializer", "xml"),
        (Producer, "max_in_flight_requests_per_connection", 0),
        (Consumer, "isolation_level", "read_everything"),
        (Consumer, "auto_offset_reset", "middle"),
        (Consumer, "fetch_max_wait_ms", -1),
        (Consumer, "value_deserializer", "xml"),
        (Consumer, "max_poll_records", 0),
        (Admin, "request_timeout_ms", 0),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_value_that_an_option_cannot_take_is_an_error_that_names_both(client: Any, option: str, value: Any) -> None:
    with pytest.raises(WrongOption, match=f"{option}.*{value}"):
        client("localhost:9092", **{option: value})


@pytest.mark.parametrize("client", [Producer, Consumer, Admin], ids=lambda value: value.__name__)
@pytest.mark.parametrize("address", ["", "localhost:port", "localhost:99999", "http://localhost:9092"])
def test_what_is_no_address_is_refused_when_the_object_is_made(client: Any, address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        client(address)
