"""Transactions as tools see them: DescribeTransactions and ListTransactions."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from barnabas.coordinator.subscriptions import compile_pattern
from barnabas.coordinator.transaction import Transaction, TransactionState
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages import k65_describe_transactions as describe
from barnabas.wire.messages import k66_list_transactions as listing

_STATES = {state.label: state for state in TransactionState}


class TransactionFilter:
    """Which transactions a ListTransactions request asks for; KafkaError if its pattern is none."""

    __slots__ = ("_min_duration_ms", "_pattern", "_producer_ids", "_states", "unknown_states")

    def __init__(self, request: listing.ListTransactionsRequest) -> None:
        self._states: frozenset[TransactionState] | None = None
        if request.state_filters:
            self._states = frozenset(_STATES[name] for name in request.state_filters if name in _STATES)
        self.unknown_states = [name for name in dict.fromkeys(request.state_filters) if name not in _STATES]
        """Named in the request, and in no version of the protocol: the response tells them."""
        self._producer_ids = frozenset(request.producer_id_filters)
        self._min_duration_ms = request.duration_filter
        self._pattern = compile_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None

    def takes(self, transaction: Transaction, now_ms: int) -> bool:
        # an id without a transaction has no start, and counts as old: so it is in Kafka
        duration_ms = now_ms - transaction.start_timestamp_ms
        return (
            (self._states is None or transaction.state in self._states)
            and (not self._producer_ids or transaction.producer_id in self._producer_ids)
            and (self._min_duration_ms < 0 or duration_ms > self._min_duration_ms)
            and (self._pattern is None or self._pattern.fullmatch(transaction.transactional_id) is not None)
        )


def listed(transaction: Transaction) -> listing.TransactionState:
    return listing.TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.label,
    )


def described(transactional_id: str, transaction: Transaction | None) -> describe.TransactionState:
    if transaction is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return describe.TransactionState(error_code=code, transactional_id=transactional_id)
    by_topic = groupby(sorted(transaction.partitions), key=attrgetter("topic"))
    return describe.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_timestamp_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            describe.TopicData(topic=topic, partitions=[each.partition for each in group]) for topic, group in by_topic
        ],
    )
