"""An offline load without a pipeline: everything that topics hold now and a lake does not, task by task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.spark.lake.sink import LakeSink
from barnabas.spark.lake.tasks import OnDone
from barnabas.spark.lake.topics import read_ranges
from barnabas.spark.pipeline.sinks import Batch
from barnabas.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_RECORDS = 1_000_000
TOPIC_COLUMNS = ("key", "value", "headers")


def load_topics(
    spark: SparkSession,
    sink: LakeSink,
    frame_of: Callable[[tuple[OffsetRange, ...]], DataFrame] | None = None,
    *,
    max_records: int = MAX_RECORDS,
    on_done: OnDone = lambda task, rows: None,
) -> int:
    """Load what is missing and return the rows; see `tasks` for what a task is.

    `frame_of` makes the rows of a task. Without it keys, values and headers are loaded as they are, with the columns
    of their origin.
    """
    sink.prepare(spark)
    offsets = sink.observe().offsets
    whole = Batch(
        0,
        "",
        {where: first for where, (first, _) in offsets.items()},
        {where: end for where, (_, end) in offsets.items()},
    )
    rows_of = frame_of or (lambda task: read_ranges(spark, sink.source_options, task, TOPIC_COLUMNS))
    return sink.write_tasks(lambda batch: rows_of(batch.ranges), whole, max_records, on_done=on_done)
