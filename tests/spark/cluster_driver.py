"""A driver on a standalone cluster, whose executors have nothing but the archive of an environment.

It reads a topic, copies it to another one in a stream if there is one, and prints as JSON who did the work.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pyspark.sql import SparkSession


class Work(NamedTuple):
    master: str
    archive: str
    broker: str
    topic: str
    copy: str
    checkpoint: str
    workers: str
    """How many there are, each with one core."""
    settings: str
    """More of Spark's, as JSON."""


def who(rows: Iterable[object]) -> Iterator[tuple[str, str, int]]:
    """Where a task runs, from which environment, and how many rows it has read."""
    yield os.getcwd(), os.path.realpath(sys.prefix), sum(1 for _ in rows)


def main(work: Work) -> None:
    settings = {
        **json.loads(work.settings),
        "spark.archives": f"{work.archive}#environment",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": work.workers,
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "90s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(work.master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        found = spark.read.format("barnabas").option("kafka.bootstrap.servers", work.broker)
        tasks = found.option("subscribe", work.topic).load().rdd.mapPartitions(who).collect()
        if work.copy:
            copy_in_a_stream(spark, work)
        print(json.dumps(tasks))
    finally:
        spark.stop()


def copy_in_a_stream(spark: SparkSession, work: Work) -> None:
    stream = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", work.broker)
    rows = stream.option("subscribe", work.topic).option("startingOffsets", "earliest").load()
    copy = rows.select("key", "value", "partition").writeStream.format("barnabas").trigger(availableNow=True)
    copy = copy.option("kafka.bootstrap.servers", work.broker).option("topic", work.copy)
    copy = copy.option("transactionalIdPrefix", work.copy).option("checkpointLocation", work.checkpoint)
    copy.start().awaitTermination()


if __name__ == "__main__":
    main(Work(*sys.argv[1:]))
