"""A transactional id as its record in `__transaction_state`, and back.

The whole state of an id is in every record, so the last one counts and the topic can be compacted.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.coordinator.records import decode_transaction_record, encode_record
from barnabas.coordinator.transaction import EMPTY, ENDING, IDLE, ONGOING, TopicPartition, Transaction
from barnabas.coordinator.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from barnabas.wire.primitives import DecodeError

_WRITTEN_STATES = {int(state): state for state in IDLE | ENDING | {ONGOING}}


def transaction_record(transaction: Transaction) -> CoordinatorRecord:
    by_topic = groupby(sorted(transaction.partitions), key=attrgetter("topic"))
    partitions = [
        PartitionsSchema(topic=topic, partition_ids=[each.partition for each in group]) for topic, group in by_topic
    ]
    return encode_record(
        TransactionLogKey(transactional_id=transaction.transactional_id),
        TransactionLogValue(
            producer_id=transaction.producer_id,
            previous_producer_id=transaction.previous_producer_id,
            next_producer_id=transaction.next_producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_status=transaction.state,
            transaction_partitions=None if transaction.state is EMPTY else partitions,
            transaction_last_update_timestamp_ms=transaction.last_update_timestamp_ms,
            transaction_start_timestamp_ms=transaction.start_timestamp_ms,
            client_transaction_version=transaction.client_transaction_version,
        ),
    )


def decode_transaction(record: CoordinatorRecord) -> tuple[str, Transaction | None]:
    """The transactional id and what is known of it, None for a tombstone; DecodeError for a damaged record."""
    decoded_key, decoded = decode_transaction_record(*record)
    transactional_id: str = decoded_key.transactional_id
    if decoded is None:
        return transactional_id, None
    state = _WRITTEN_STATES.get(decoded.transaction_status)
    if state is None:
        raise DecodeError(
            f"transactional id {transactional_id!r} has status {decoded.transaction_status}, which is never written"
        )
    return transactional_id, Transaction(
        transactional_id=transactional_id,
        producer_id=decoded.producer_id,
        producer_epoch=decoded.producer_epoch,
        timeout_ms=decoded.transaction_timeout_ms,
        last_update_timestamp_ms=decoded.transaction_last_update_timestamp_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in decoded.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_timestamp_ms=decoded.transaction_start_timestamp_ms,
        client_transaction_version=decoded.client_transaction_version,
        previous_producer_id=decoded.previous_producer_id,
        next_producer_id=decoded.next_producer_id,
    )
