"""A batch as files under `_staging`, written by tasks of the direct path and checked by the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.spark.lake.arrow_staging import checked_files, hour_files_target, stage_with_arrow, task_errors
from barnabas.spark.lake.commit import StagedFile
from barnabas.spark.lake.staging import Staging
from barnabas.spark.lake.task_files import TaskFiles
from barnabas.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from barnabas.spark.direct.rows import DirectRows


def stage_direct(
    spark: SparkSession,
    files: TaskFiles,
    rows: DirectRows,
    directory: str,
    ranges: Sequence[OffsetRange],
    wanted: Sequence[OffsetRange],
    how: Staging,
    schema: StructType,
) -> tuple[list[StagedFile], int]:
    """Load the offsets `wanted`, which lie within the ranges, into files with the columns of the schema.

    Returns the number of records that were left to Spark, too.
    """
    from barnabas.spark.direct.job import loaded

    target = hour_files_target(files, directory, schema, how)
    with task_errors(), loaded(spark, rows, wanted, ranges, target) as found:
        staged = checked_files(found.written, files)
        if not found.unsure:
            return staged, 0
        frame = rows.decode(found.records).to(schema)
        decoded = stage_with_arrow(files, frame, f"{directory}/decoded-by-spark", ranges, how)
        # Of one range, Spark does not number the files; here they need numbers beside those of the tasks.
        numbered = [replace(file, range_index=0) if len(ranges) == 1 else file for file in decoded]
        return [*staged, *numbered], found.unsure
