"""An offline load: what a topic holds, cut into tasks of one partition and some offsets each.

A task is committed by itself, so one that failed is done again alone, and a load that was killed goes on with what is
missing. Ranges are cut at multiples of `max_records`, wherever a load begins: the same offsets always make the same
files. Tasks run side by side, in any order; the lake knows which offsets it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.sink import LakeSink
from barnabas.spark.lake.topics import read_ranges
from barnabas.spark.pipeline.sinks import Batch, Offsets
from barnabas.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_RECORDS = 1_000_000
TOPIC_COLUMNS = ("key", "value", "headers")
FrameOf = Callable[[OffsetRange], "DataFrame"]
"""The rows of a task, ready for the lake."""


def load_topics(
    spark: SparkSession,
    sink: LakeSink,
    frame_of: FrameOf | None = None,
    *,
    max_records: int = MAX_RECORDS,
    parallel: int | None = None,
    on_done: Callable[[OffsetRange, int], None] = lambda task, rows: None,
) -> int:
    """Load everything that the sink's topics hold now and its lake does not; returns the rows.

    Without `frame_of` keys, values and headers are loaded as they are, with the columns of their origin. All tasks are
    tried before the first error is raised.
    """
    sink.prepare(spark)
    frame_of = frame_of or (lambda task: read_ranges(spark, sink.source_options, [task], TOPIC_COLUMNS))
    seen = sink.observe()
    wanted = [OffsetRange(*partition, first, end) for partition, (first, end) in sorted(seen.offsets.items())]
    tasks = plan_tasks(sink.lake.state().missing(wanted), max_records)
    begins = {(one.topic, one.partition): one.start for one in wanted}
    rows, failures = 0, {}
    with ThreadPoolExecutor(parallel or spark.sparkContext.defaultParallelism, "lake-load") as threads:
        running = {threads.submit(_run, sink, frame_of, task, begins): task for task in tasks}
        for future in as_completed(running):
            problem = future.exception()
            if problem is None:
                rows += future.result()
                on_done(running[future], future.result())
            else:
                failures[running[future]] = problem
    for task, problem in sorted(failures.items()):
        raise LakeError(
            f"{len(failures)} of {len(tasks)} tasks failed, and a new run does only those; {task}: {problem}"
        ) from problem
    return rows


def plan_tasks(missing: Iterable[OffsetRange], max_records: int) -> list[OffsetRange]:
    """Ranges cut at multiples of `max_records`."""
    return [piece for given in missing for piece in _cut(given, max_records)]


def _cut(given: OffsetRange, max_records: int) -> Iterator[OffsetRange]:
    start = given.start
    while start < given.end:
        end = min(given.end, (start // max_records + 1) * max_records)
        yield replace(given, start=start, end=end)
        start = end


def _run(sink: LakeSink, frame_of: FrameOf, task: OffsetRange, begins: Offsets) -> int:
    partition = (task.topic, task.partition)
    batch = Batch(0, "", {partition: task.start}, {partition: task.end})
    return sink.write(frame_of(task), batch, {partition: begins[partition]})
