"""Barnabas: a distributed commit log that speaks Kafka's protocol and keeps Kafka's files.

The clients are here by their names, each imported when it is first asked for:

    from barnabas import Producer, Consumer, Admin
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.consumed import ConsumerBatch, ConsumerRecord
    from barnabas.client.consumer import Consumer
    from barnabas.client.consumer_errors import DeserializationError
    from barnabas.client.delivery import Delivery, RecordMetadata
    from barnabas.client.errors import BufferFull, CommitFailed
    from barnabas.client.group.values import GroupMetadata, OffsetAndMetadata
    from barnabas.client.metadata import TopicPartition
    from barnabas.client.outcomes import PartlyFailed
    from barnabas.client.producer import NewRecord, Producer
    from barnabas.client.producer_columns import ColumnsNotDelivered, ColumnsSent
    from barnabas.client.transaction_errors import (
        NoTransaction,
        OutcomeUnknown,
        ProducerFenced,
        ProducerUnusable,
        TransactionAborted,
    )
    from barnabas.client.transactions import Transaction
    from barnabas.core.errors import KafkaError

__version__ = "0.1.0"
__all__ = [
    "Admin",
    "BufferFull",
    "ColumnsNotDelivered",
    "ColumnsSent",
    "CommitFailed",
    "Consumer",
    "ConsumerBatch",
    "ConsumerRecord",
    "Delivery",
    "DeserializationError",
    "GroupMetadata",
    "KafkaError",
    "NewRecord",
    "NoTransaction",
    "OffsetAndMetadata",
    "OutcomeUnknown",
    "PartlyFailed",
    "Producer",
    "ProducerFenced",
    "ProducerUnusable",
    "RecordMetadata",
    "TopicPartition",
    "Transaction",
    "TransactionAborted",
    "__version__",
]

_HOMES = {
    "Admin": "barnabas.client.admin.admin",
    "BufferFull": "barnabas.client.errors",
    "ColumnsNotDelivered": "barnabas.client.producer_columns",
    "ColumnsSent": "barnabas.client.producer_columns",
    "CommitFailed": "barnabas.client.errors",
    "Consumer": "barnabas.client.consumer",
    "ConsumerBatch": "barnabas.client.consumed",
    "ConsumerRecord": "barnabas.client.consumed",
    "Delivery": "barnabas.client.delivery",
    "DeserializationError": "barnabas.client.consumer_errors",
    "GroupMetadata": "barnabas.client.group.values",
    "KafkaError": "barnabas.core.errors",
    "NewRecord": "barnabas.client.producer",
    "NoTransaction": "barnabas.client.transaction_errors",
    "OffsetAndMetadata": "barnabas.client.group.values",
    "OutcomeUnknown": "barnabas.client.transaction_errors",
    "PartlyFailed": "barnabas.client.outcomes",
    "Producer": "barnabas.client.producer",
    "ProducerFenced": "barnabas.client.transaction_errors",
    "ProducerUnusable": "barnabas.client.transaction_errors",
    "RecordMetadata": "barnabas.client.delivery",
    "TopicPartition": "barnabas.client.metadata",
    "Transaction": "barnabas.client.transactions",
    "TransactionAborted": "barnabas.client.transaction_errors",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
    return getattr(import_module(home), name)
