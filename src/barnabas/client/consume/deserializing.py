"""From the bytes of a record to the caller's values, and what becomes of a record that resists."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

from barnabas.client.consume.consumed import ConsumerRecord
from barnabas.client.consume.consumer_errors import DeserializationError
from barnabas.client.options import WrongOption
from barnabas.client.serializers import Serializer, serializer

log = logging.getLogger(__name__)

OnPoison = Literal["raise", "skip"] | Callable[[DeserializationError], object]


class Deserializing:
    """One consumer's deserialisers."""

    def __init__(self, key: Serializer | None, value: Serializer | None, on_poison: OnPoison) -> None:
        self._key = key
        self._value = value
        self._on_poison = on_poison

    def open(self, record: ConsumerRecord) -> ConsumerRecord | None:
        """The record with the caller's values; None for one that is to be passed over."""
        topic, partition, offset, timestamp, key, value, headers = record
        field = "key"
        try:
            if self._key is not None and key is not None:
                key = self._key.deserialize(topic, key)
            field = "value"
            if self._value is not None and value is not None:
                value = self._value.deserialize(topic, value)
        except Exception as cause:
            error = DeserializationError(field, record, cause)
            if self._on_poison == "raise":
                raise error from cause
            if callable(self._on_poison):
                self._on_poison(error)
            else:
                log.warning("%s", error)
            return None
        return ConsumerRecord(topic, partition, offset, timestamp, key, value, headers)


def deserializing(key: str | Serializer, value: str | Serializer, on_poison: Any) -> Deserializing | None:
    """None where keys and values stay bytes, so that nothing has to be done for a record."""
    if on_poison not in ("raise", "skip") and not callable(on_poison):
        raise WrongOption(f"on_poison_record={on_poison!r} is neither 'raise' nor 'skip' nor a function")
    opens_key, opens_value = serializer("key_deserializer", key), serializer("value_deserializer", value)
    if opens_key is None and opens_value is None:
        return None
    return Deserializing(opens_key, opens_value, on_poison)
