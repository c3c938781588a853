"""ListTransactions: the transactions that this broker coordinates (KIP-664).

v1: by age (KIP-994). v2: by a pattern of the transactional id (KIP-1152).
"""

from __future__ import annotations

from barnabas.wire.schema import array, int16, int32, int64, request, response, string, struct


@request(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="0+", default=None)


@struct
class TransactionState:
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@response(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
