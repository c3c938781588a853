"""What tests of writing share: rows, tasks that are called as Spark calls them, and the judge of what was written."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pyarrow
from pyspark import TaskContext
from pyspark.sql import types

from barnabas.spark.source import BarnabasSource
from barnabas.spark.stream_writer import BATCH_ID, QUERY_ID
from barnabas.spark.task_writer import Written
from barnabas.spark.write_options import WriteOptions, parse_stream_write_options

SCHEMA = types.StructType().add("value", "string")
QUERY = "5a1c9a52-query"


def consumed(address: str, topic: str, count: int) -> list[confluent_kafka.Message]:
    """What librdkafka finds in a topic, reading what is committed: once there are so many, and a moment later."""
    settings = {"bootstrap.servers": address, "group.id": "judge", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in partitions])
        found: list[confluent_kafka.Message] = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.2):
                assert message.error() is None, message.error()
                found.append(message)
            if len(found) >= count:
                deadline = min(deadline, time.monotonic() + 0.2)
        return found
    finally:
        consumer.close()


def committed(address: str, topic: str, count: int) -> list[bytes]:
    """The values of it, sorted."""
    return sorted(message.value() or b"" for message in consumed(address, topic, count))


def rows(*values: str) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a task, one batch each, with empty ones in between as Spark may have them."""
    for value in values:
        yield pyarrow.RecordBatch.from_pydict({"value": pyarrow.array([], pyarrow.string())})
        yield pyarrow.RecordBatch.from_pydict({"value": [value]})


@contextmanager
def task(partition: int = 0, attempt: int = 0, batch: int = 0, query: str = QUERY) -> Iterator[None]:
    """Be a task of Spark's."""
    context = object.__new__(TaskContext)
    properties: Any = {QUERY_ID: query, BATCH_ID: str(batch)}
    context.__init__(partitionId=partition, attemptNumber=attempt, localProperties=properties)  # type: ignore[misc]
    before = TaskContext.get()
    TaskContext._setTaskContext(context)
    try:
        yield
    finally:
        TaskContext._setTaskContext(before)  # type: ignore[arg-type]


class Driver:
    """Calls the sink of a stream, or of a batch write, as Spark's driver does."""

    def __init__(self, address: str, topic: str, **options: str) -> None:
        given = {"kafka.bootstrap.servers": address, "topic": topic, "transactionalIdPrefix": f"of-{topic}", **options}
        self._source = BarnabasSource({name if "." in name else name.lower(): value for name, value in given.items()})

    def write_options(self) -> WriteOptions:
        return parse_stream_write_options(self._source.options)

    def stream_writer(self) -> Any:
        return pickle.loads(pickle.dumps(self._source.streamWriter(SCHEMA, overwrite=False)))

    def batch_writer(self) -> Any:
        return pickle.loads(pickle.dumps(self._source.writer(SCHEMA, overwrite=False)))

    def tasks(self, batch: int, *parts: Iterable[str], query: str = QUERY) -> list[Written]:
        """Write a batch, a task for each part."""
        writer = self.stream_writer()
        written = []
        for partition, values in enumerate(parts):
            with task(partition, batch=batch, query=query):
                written.append(writer.write(rows(*values)))
        return written

    def commit(self, batch: int, messages: list[Written]) -> None:
        self.stream_writer().commit(messages, batch)

    def run(self, batch: int, *parts: Iterable[str], query: str = QUERY) -> list[Written]:
        """A whole batch."""
        messages = self.tasks(batch, *parts, query=query)
        self.commit(batch, messages)
        return messages
