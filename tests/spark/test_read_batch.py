"""Batch reads of a topic: every column, ranges of offsets, and what Spark is told about them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from barnabas.sync import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NewTopic = Callable[..., str]
ReadTopic = Callable[..., "DataFrame"]


def test_a_topic_is_a_table_with_every_column(
    spark_topic: NewTopic, spark_producer: Producer, read_topic: ReadTopic
) -> None:
    topic = spark_topic()
    spark_producer.send(topic, b"one", key=b"k", timestamp=1_700_000_000_123, headers=[("h", b"x"), ("n", None)])
    spark_producer.send(topic, None, timestamp=1_700_000_000_456)
    rows = [tuple(row) for row in read_topic(topic, includeHeaders="true").orderBy("offset").collect()]
    times = [
        datetime.fromtimestamp(second, UTC).replace(tzinfo=None) for second in (1_700_000_000.123, 1_700_000_000.456)
    ]
    assert rows == [
        (b"k", b"one", topic, 0, 0, times[0], 0, [("h", b"x"), ("n", None)]),
        (None, None, topic, 0, 1, times[1], 0, None),
    ]


def test_a_range_of_offsets_is_read_and_nothing_else(
    spark_topic: NewTopic, spark_producer: Producer, read_topic: ReadTopic
) -> None:
    topic = spark_topic(partitions=2)
    for partition in (0, 1):
        for number in range(10):
            spark_producer.post(topic, b"%d" % number, partition=partition)
    spark_producer.flush()
    frame = read_topic(
        topic,
        startingOffsets=f'{{"{topic}": {{"0": 3, "1": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 7, "1": -1}}}}',
    )
    found = sorted((row.partition, row.offset) for row in frame.collect())
    assert found == [(0, n) for n in range(3, 7)] + [(1, n) for n in range(10)]
