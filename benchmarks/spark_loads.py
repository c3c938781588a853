"""What Spark is given to do with a topic, through our source or through its own connector, and how long that takes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from barnabas.client.list_offsets import LATEST
from barnabas.client.metadata import TopicPartition
from barnabas.sync import Admin

VALUE_BYTES = 100
MICRO_BATCH = 10_000


class Source(NamedTuple):
    """A format of Spark's, and what is asked of it beyond the topic; `selected` are the columns that are kept."""

    format: str
    options: Mapping[str, str] = {}
    selected: tuple[str, ...] = ()


class Loads:
    """A session and a broker; whatever is written goes away again."""

    def __init__(self, spark: SparkSession, address: str, scratch: Path) -> None:
        self._spark = spark
        self._address = address
        self._scratch = scratch
        self._numbers = count()

    def to_parquet(self, source: Source, topic: str, records: int) -> float:
        """Seconds to bring the records into files."""
        path = self._scratch / f"table-{next(self._numbers)}"
        frame = self._read(source, topic)
        started = time.perf_counter()
        frame.write.parquet(str(path))
        elapsed = time.perf_counter() - started
        _check(self._spark.read.parquet(str(path)).count(), records, f"rows in the files of {source.format}")
        shutil.rmtree(path)
        return elapsed

    def count(self, source: Source, topic: str, records: int) -> float:
        frame = self._read(source, topic)
        started = time.perf_counter()
        found = frame.count()
        elapsed = time.perf_counter() - started
        _check(found, records, f"rows counted by {source.format}")
        return elapsed

    def to_topic(self, source: Source, partitions: int, records: int) -> float:
        """Seconds to write a frame that lies in memory, so that making it is no part of it."""
        topic = f"written-{next(self._numbers)}"
        with Admin(self._address) as admin:
            admin.topics.create(topic, partitions=partitions)
            value = f"lpad(cast(id AS STRING), {VALUE_BYTES}, 'x') AS value"
            frame = self._spark.range(records).selectExpr(value).cache()
            _check(frame.count(), records, "rows to write")
            writer = frame.write.format(source.format).mode("append").option("topic", topic)
            writer = writer.option("kafka.bootstrap.servers", self._address).options(**source.options)
            started = time.perf_counter()
            writer.save()
            elapsed = time.perf_counter() - started
            frame.unpersist()
            ends = admin.partitions.list_offsets({TopicPartition(topic, n): LATEST for n in range(partitions)})
            _check(sum(end.offset for end in ends.values()), records, f"records written by {source.format}")
            admin.topics.delete(topic)
        return elapsed

    def micro_batches(self, source: Source, batches: int) -> float:
        """The median of the seconds from the first record's send until all of a batch are in a file."""
        number = next(self._numbers)
        topic, path = f"stream-{number}", self._scratch / f"stream-{number}"
        with Admin(self._address) as admin:
            admin.topics.create(topic)
        stream = self._spark.readStream.format(source.format).option("kafka.bootstrap.servers", self._address)
        frame = stream.option("subscribe", topic).option("startingOffsets", "earliest").options(**source.options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(path / "checkpoint"))
        query = writer.option("path", str(path / "table")).start()
        producer = Producer({"bootstrap.servers": self._address, "linger.ms": 1, "batch.num.messages": MICRO_BATCH})
        try:
            taken = []
            for _ in range(batches + 2):
                started = time.perf_counter()
                for _ in range(MICRO_BATCH):
                    producer.produce(topic, b"x" * VALUE_BYTES)
                producer.flush()
                query.processAllAvailable()
                taken.append(time.perf_counter() - started)
        finally:
            query.stop()
        written = self._spark.read.parquet(str(path / "table")).count()
        _check(written, len(taken) * MICRO_BATCH, f"rows streamed by {source.format}")
        shutil.rmtree(path)
        return median(taken[2:])

    def _read(self, source: Source, topic: str) -> DataFrame:
        reader = self._spark.read.format(source.format).option("kafka.bootstrap.servers", self._address)
        frame = reader.option("subscribe", topic).options(**source.options).load()
        return frame.select(*source.selected) if source.selected else frame


def _check(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise RuntimeError(f"{what}: {found} instead of {expected}")
