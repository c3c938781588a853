"""Barnabas: a distributed commit log that speaks Kafka's protocol and keeps Kafka's files.

The clients are here by their names, each imported when it is first asked for:

    from barnabas import Producer, Consumer, Admin
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.consumer import Consumer
    from barnabas.client.metadata import TopicPartition
    from barnabas.client.producer import Producer
    from barnabas.core.errors import KafkaError

__version__ = "0.1.0"
__all__ = ["Admin", "Consumer", "KafkaError", "Producer", "TopicPartition", "__version__"]

_HOMES = {
    "Admin": "barnabas.client.admin.admin",
    "Consumer": "barnabas.client.consumer",
    "KafkaError": "barnabas.core.errors",
    "Producer": "barnabas.client.producer",
    "TopicPartition": "barnabas.client.metadata",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
    return getattr(import_module(home), name)
