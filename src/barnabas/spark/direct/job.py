"""Runs a load of the direct path from the driver: one job without a shuffle, each task reading one piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.direct.rows import DirectRows, Reading
from barnabas.spark.direct.task import DONE, UNSURE, WRITTEN, Load, Piece, Target, in_tasks, result_schema
from barnabas.spark.ranges import OffsetRange, split_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


WORTH_A_TASK = 100_000
"""Offsets. Ranges are cut for idle cores only if each task gets this many: a lake has files of each task."""


@dataclass(frozen=True)
class Loaded:
    written: Sequence[Row]
    """With the target's fields."""
    unsure: int
    records: DataFrame
    """The raw records of which the tasks were unsure."""


@contextmanager
def loaded(
    spark: SparkSession,
    rows: DirectRows,
    wanted: Sequence[OffsetRange],
    ranges: Sequence[OffsetRange],
    target: Target | None,
) -> Iterator[Loaded]:
    """Load the offsets `wanted`, each of which lies in one of the ranges.

    What tasks return is kept by Spark until the end of the context, so that records which Spark has to decode are not
    fetched again, or for those who look for bad ones among them.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    tasks = min(spark.sparkContext.defaultParallelism, sum(one.size for one in wanted) // WORTH_A_TASK)
    is_ordered = target is not None and target.is_ordered
    pieces = split_ranges(wanted, min_partitions=None if is_ordered else tasks, max_records=rows.max_records_per_task)
    columns = rows.reading.columns
    with ExitStack() as stack:
        frame = _results(spark, rows.reading, pieces, ranges, target).persist(StorageLevel.DISK_ONLY)
        stack.callback(frame.unpersist)
        found = frame.where(f.col("kind") != UNSURE).drop(*columns).collect()
        load = Loaded(
            written=[row for row in found if row.kind == WRITTEN],
            unsure=sum(row.unsure for row in found if row.kind == DONE),
            records=frame.where(f.col("kind") == UNSURE).select(*columns),
        )
        yield load
        if rows.unsure is not None and load.unsure:
            rows.unsure.keep(rows.source, wanted, load.records, stack.pop_all().close)
        elif rows.unsure is not None:
            rows.unsure.keep(rows.source, wanted, None)


def unsure_records(
    spark: SparkSession, reading: Reading, wanted: Sequence[OffsetRange], max_records_per_task: int
) -> DataFrame:
    """The raw records of which tasks are unsure, without loading the others anywhere.

    A range is cut only where it is large, so that records of a partition mostly keep their order.
    """
    from pyspark.sql import functions as f

    results = _results(spark, reading, split_ranges(wanted, max_records=max_records_per_task), wanted, None)
    return results.where(f.col("kind") == UNSURE).select(*reading.columns)


def _results(
    spark: SparkSession,
    reading: Reading,
    pieces: Sequence[OffsetRange],
    ranges: Sequence[OffsetRange],
    target: Target | None,
) -> DataFrame:
    """What the tasks return; nothing is done before an action asks for it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    numbered = [Piece(number, one, _index(one, ranges)) for number, one in enumerate(pieces)]
    schema = from_arrow_schema(result_schema(reading.columns, target))
    tasks = spark.range(0, len(pieces), 1, max(1, len(pieces)))
    return tasks.mapInArrow(in_tasks(Load(reading, numbered, target)), schema)


def _index(piece: OffsetRange, ranges: Sequence[OffsetRange]) -> int:
    return next(
        index
        for index, one in enumerate(ranges)
        if (one.topic, one.partition) == (piece.topic, piece.partition) and one.start <= piece.start < one.end
    )
