"""Runs the tasks that stage the rows of a write: on Spark's path from a DataFrame, on the direct path from offsets."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.spark.database.connections import TableName
from barnabas.spark.database.staging import ORIGIN, Filled
from barnabas.spark.database.staging_task import FILLED_FIELDS, Staging, StagingTarget, StagingTask
from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.sinks import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.spark.direct.rows import DirectRows


def stage(frame: DataFrame, staging: Staging) -> list[Filled]:
    """Stage the rows of a frame; the attempts that Spark counts."""
    from pyspark.sql.pandas.types import from_arrow_schema

    names = ["`{}`".format(name.replace("`", "``")) for name in _needed(staging, frame.columns)]
    with warnings.catch_warnings():
        # mapInArrow looks whether pandas is there, and warns of what it does not use.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        staged = frame.select(*names).mapInArrow(StagingTask(staging), from_arrow_schema(FILLED_FIELDS))
    return [Filled(row.task, row.attempt, row.rows) for row in staged.collect()]


def stage_direct(spark: SparkSession, rows: DirectRows, batch: Batch, staging: Staging) -> tuple[list[Filled], int]:
    """Stage the rows of a batch in the tasks that read it; those that they are unsure of are decoded by Spark.

    Returns the number of records that were left to Spark, too.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from barnabas.spark.direct.job import loaded

    needed = StructType([rows.schema[name] for name in _needed(staging, rows.schema.fieldNames())])
    target = StagingTarget(staging, to_arrow_schema(needed, timezone="UTC"))
    with loaded(spark, rows, batch.ranges, batch.ranges, target) as found:
        filled = [Filled(row.task, row.attempt, row.rows) for row in found.written]
        if found.unsure:
            filled += stage(rows.decode(found.records), staging)
        return filled, found.unsure


def _needed(staging: Staging, columns: list[str]) -> list[str]:
    """The columns that go into the table, and those that say where a row comes from."""
    staged = [column.name for column in staging.columns]
    return [*staged, *(name for name in ORIGIN if name in columns and name not in staged)]


@contextmanager
def explained(table: TableName) -> Iterator[None]:
    """Raise what a task complains about as it is, without Spark's stack."""
    from pyspark.errors import PythonException

    try:
        yield
    except PythonException as error:
        told = re.search(rf"{SinkError.__module__}\.{SinkError.__name__}: (.+)", str(error))
        if told is None:
            raise
        raise SinkError(f"table '{table}': {told[1]}") from error
