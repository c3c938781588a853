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
    from barnabas.client.errors import BufferFull
    from barnabas.client.group.values import OffsetAndMetadata
    from barnabas.client.metadata import TopicPartition
    from barnabas.client.producer import NewRecord, Producer
    from barnabas.core.errors import KafkaError

__version__ = "0.1.0"
__all__ = [
    "Admin",
    "BufferFull",
    "Consumer",
    "ConsumerBatch",
    "ConsumerRecord",
    "Delivery",
    "DeserializationError",
    "KafkaError",
    "NewRecord",
    "OffsetAndMetadata",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
]

_HOMES = {
    "Admin": "barnabas.client.admin.admin",
    "BufferFull": "barnabas.client.errors",
    "Consumer": "barnabas.client.consumer",
    "ConsumerBatch": "barnabas.client.consumed",
    "ConsumerRecord": "barnabas.client.consumed",
    "Delivery": "barnabas.client.delivery",
    "DeserializationError": "barnabas.client.consumer_errors",
    "KafkaError": "barnabas.core.errors",
    "NewRecord": "barnabas.client.producer",
    "OffsetAndMetadata": "barnabas.client.group.values",
    "Producer": "barnabas.client.producer",
    "RecordMetadata": "barnabas.client.delivery",
    "TopicPartition": "barnabas.client.metadata",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
    return getattr(import_module(home), name)
