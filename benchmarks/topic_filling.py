"""Fills topics with the same records on several brokers."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from confluent_kafka import Producer

from benchmarks import loads
from benchmarks.values import Values

CHUNK = 60_000
_SETTINGS = {"queue.buffering.max.messages": 1_000_000, "batch.size": 1_000_000, "linger.ms": 20}


def fill(addresses: Sequence[str], topic: str, values: Values, records: int, partitions: int) -> None:
    """Create the topic on each broker; record n is in partition n % partitions."""
    random = Random(1)
    producers = [Producer({"bootstrap.servers": address, **_SETTINGS}) for address in addresses]
    for address in addresses:
        loads.create_topic(address, topic, partitions)
    for start in range(0, records, CHUNK):
        end = min(records, start + CHUNK)
        for partition in range(partitions):
            numbers = range(start + (partition - start) % partitions, end, partitions)
            messages = [{"value": values.make(number, records, random)} for number in numbers]
            for producer in producers:
                while len(producer) > CHUNK:
                    producer.poll(0.01)
                if producer.produce_batch(topic, messages, partition) != len(messages):
                    raise RuntimeError(f"librdkafka refused records: {messages[0]}")
    if any(producer.flush(300) for producer in producers):
        raise RuntimeError(f"topic {topic} was not filled")
