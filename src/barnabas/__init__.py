"""Barnabas: a distributed commit log that speaks Kafka's protocol and keeps Kafka's files.

The clients are here by their names, each imported when it is first asked for:

    from barnabas import Producer, Consumer, Admin
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.consume.consumed import ConsumerBatch, ConsumerRecord
    from barnabas.client.consume.consumer_errors import CorruptRecords, DeserializationError, LogTruncated, NoOffset
    from barnabas.client.consumer import Consumer
    from barnabas.client.errors import (
        Abandoned,
        BufferFull,
        CannotReach,
        CommitFailed,
        DeliveryTimeout,
        DeliveryUnknown,
        NoAnswer,
        NotDelivered,
        NotOpen,
        RecordTooLarge,
        WrongLoop,
        WrongProcess,
    )
    from barnabas.client.group.values import GroupMetadata, OffsetAndMetadata
    from barnabas.client.metadata import TopicPartition
    from barnabas.client.options import WrongOption
    from barnabas.client.outcomes import PartlyFailed
    from barnabas.client.produce.delivery import Delivery, RecordMetadata
    from barnabas.client.produce.open_transaction import OpenTransaction
    from barnabas.client.produce.producer_columns import ColumnsNotDelivered, ColumnsSent
    from barnabas.client.produce.transaction_errors import (
        NoTransaction,
        OutcomeUnknown,
        ProducerFenced,
        ProducerUnusable,
        TransactionAborted,
    )
    from barnabas.client.produce.transactions import Transaction
    from barnabas.client.producer import NewRecord, Producer
    from barnabas.core.errors import ErrorCode, KafkaError

__version__ = "0.1.0"
__all__ = [
    "Abandoned",
    "Admin",
    "BufferFull",
    "CannotReach",
    "ColumnsNotDelivered",
    "ColumnsSent",
    "CommitFailed",
    "Consumer",
    "ConsumerBatch",
    "ConsumerRecord",
    "CorruptRecords",
    "Delivery",
    "DeliveryTimeout",
    "DeliveryUnknown",
    "DeserializationError",
    "ErrorCode",
    "GroupMetadata",
    "KafkaError",
    "LogTruncated",
    "NewRecord",
    "NoAnswer",
    "NoOffset",
    "NoTransaction",
    "NotDelivered",
    "NotOpen",
    "OffsetAndMetadata",
    "OpenTransaction",
    "OutcomeUnknown",
    "PartlyFailed",
    "Producer",
    "ProducerFenced",
    "ProducerUnusable",
    "RecordMetadata",
    "RecordTooLarge",
    "TopicPartition",
    "Transaction",
    "TransactionAborted",
    "WrongLoop",
    "WrongOption",
    "WrongProcess",
    "__version__",
]

_HOMES = {
    "Abandoned": "barnabas.client.errors",
    "Admin": "barnabas.client.admin.admin",
    "BufferFull": "barnabas.client.errors",
    "CannotReach": "barnabas.client.errors",
    "ColumnsNotDelivered": "barnabas.client.produce.producer_columns",
    "ColumnsSent": "barnabas.client.produce.producer_columns",
    "CommitFailed": "barnabas.client.errors",
    "Consumer": "barnabas.client.consumer",
    "ConsumerBatch": "barnabas.client.consume.consumed",
    "ConsumerRecord": "barnabas.client.consume.consumed",
    "CorruptRecords": "barnabas.client.consume.consumer_errors",
    "Delivery": "barnabas.client.produce.delivery",
    "DeliveryTimeout": "barnabas.client.errors",
    "DeliveryUnknown": "barnabas.client.errors",
    "DeserializationError": "barnabas.client.consume.consumer_errors",
    "ErrorCode": "barnabas.core.errors",
    "GroupMetadata": "barnabas.client.group.values",
    "KafkaError": "barnabas.core.errors",
    "LogTruncated": "barnabas.client.consume.consumer_errors",
    "NewRecord": "barnabas.client.producer",
    "NoAnswer": "barnabas.client.errors",
    "NoOffset": "barnabas.client.consume.consumer_errors",
    "NoTransaction": "barnabas.client.produce.transaction_errors",
    "NotDelivered": "barnabas.client.errors",
    "NotOpen": "barnabas.client.errors",
    "OffsetAndMetadata": "barnabas.client.group.values",
    "OpenTransaction": "barnabas.client.produce.open_transaction",
    "OutcomeUnknown": "barnabas.client.produce.transaction_errors",
    "PartlyFailed": "barnabas.client.outcomes",
    "Producer": "barnabas.client.producer",
    "ProducerFenced": "barnabas.client.produce.transaction_errors",
    "ProducerUnusable": "barnabas.client.produce.transaction_errors",
    "RecordMetadata": "barnabas.client.produce.delivery",
    "RecordTooLarge": "barnabas.client.errors",
    "TopicPartition": "barnabas.client.metadata",
    "Transaction": "barnabas.client.produce.transactions",
    "TransactionAborted": "barnabas.client.produce.transaction_errors",
    "WrongLoop": "barnabas.client.errors",
    "WrongOption": "barnabas.client.options",
    "WrongProcess": "barnabas.client.errors",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
    return getattr(import_module(home), name)
