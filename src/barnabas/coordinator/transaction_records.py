"""The records of `__transaction_state`, in every version that Kafka ever wrote: one for each transactional id.

How a key and a value become a record is said in `records`.
"""

from __future__ import annotations

from barnabas.wire.schema import array, int8, int16, int32, int64, schema, string, struct


@schema(versions="0", flexible="none")
class TransactionLogKey:
    transactional_id: str = string("0")


@struct
class PartitionsSchema:
    topic: str = string()
    partition_ids: list[int] = array(int32)


@schema(versions="0-1", flexible="1+")
class TransactionLogValue:
    """A transactional id, whole. The tagged fields came with transaction.version 2 (KIP-890)."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0, tagged="1+")
    next_producer_id: int = int64("1+", default=-1, tag=1, tagged="1+")
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", default=-1, tag=3, tagged="1+")
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2, tagged="1+")
