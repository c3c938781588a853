"""A record as the caller gives it, on its way into a batch: whether it may be posted now, its bytes, its time.

All of this runs for every record, so it is compiled with the hot path, and the producer's `post` is one call of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from barnabas.client.produce.accumulator import Accumulator
from barnabas.client.produce.delivery import Delivery
from barnabas.client.produce.transactions import Transactions
from barnabas.client.serializers import Serializer
from barnabas.client.session import Session
from barnabas.records.record import Header


class Posting:
    def __init__(
        self, session: Session, key_serializer: Serializer | None, value_serializer: Serializer | None
    ) -> None:
        self._session = session
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._transactions: Transactions | None = None
        self._accumulator: Accumulator | None = None
        self._now_ms: Callable[[], int] | None = None

    def open(self, accumulator: Accumulator, transactions: Transactions | None, now_ms: Callable[[], int]) -> None:
        self._accumulator, self._transactions, self._now_ms = accumulator, transactions, now_ms

    def post(
        self, topic: str, value: Any, key: Any, headers: Sequence[Header], partition: int | None, timestamp: Any
    ) -> Delivery:
        self._session.check()
        assert self._accumulator is not None
        assert self._now_ms is not None
        if self._transactions is not None:
            self._transactions.check_may_post()
        if value is not None and self._value_serializer is not None:
            value = self._value_serializer.serialize(topic, value)
        if key is not None and self._key_serializer is not None:
            key = self._key_serializer.serialize(topic, key)
        if timestamp is None:
            timestamp = self._now_ms()
        elif isinstance(timestamp, datetime):
            timestamp = round(timestamp.timestamp() * 1000)
        return self._accumulator.append(topic, key, value, headers, partition, timestamp)
