"""The whole of partitions that nobody writes to any more, read by librdkafka, which checks every checksum."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Position

from tests.checker.history import Record, TopicPartition

READ_WITHIN_S = 120.0


def read_to_end(
    bootstrap: str,
    partitions: list[TopicPartition],
    level: str = "read_uncommitted",
    ends: Mapping[TopicPartition, int] | None = None,
) -> tuple[dict[TopicPartition, list[Record]], dict[TopicPartition, int]]:
    """The records, and the offsets behind the last ones. With `ends` it must get that far, which takes until no
    transaction is open. An offset that the log does not have is an error."""
    wanted = ends or {}
    logs: dict[TopicPartition, list[Record]] = {partition: [] for partition in partitions}
    reached: dict[TopicPartition, int] = {}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": level,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([Position(*partition, 0) for partition in partitions])
        deadline = time.monotonic() + READ_WITHIN_S
        while any(reached.get(each, -1) < wanted.get(each, 0) for each in partitions):
            for message in consumer.consume(5000, 0.2):
                partition = TopicPartition(message.topic(), message.partition())
                error = message.error()
                if error is None:
                    logs[partition].append((message.offset(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached[partition] = message.offset()
                else:
                    raise AssertionError(f"{partition} cannot be read to its end: {error}")
            if time.monotonic() > deadline:
                behind = f"reached are {reached} of {dict(wanted)}"
                raise AssertionError(f"{level}: not at the end after {READ_WITHIN_S:.0f} s: {behind}")
        return logs, reached
    finally:
        consumer.close()
