"""A batch as files under `_staging`, written by Spark and counted after that.

Rows are kept apart by the range of offsets they come from and by hour, in directories `lake_range=0/lake_hour=456789`,
and sorted by where they come from: the same offsets always give the same files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.spark.lake.commit import StagedFile
from barnabas.spark.lake.errors import LakeError, WrongSchema
from barnabas.spark.lake.filesystem import FileSystem, explained
from barnabas.spark.lake.formats import FileFormat, read_options, write_options
from barnabas.spark.lake.hours import FIRST_HOUR, LAST_HOUR, NO_VALUE
from barnabas.spark.lake.names import PartName
from barnabas.spark.pipeline.sinks import OFFSET, PARTITION, TOPIC
from barnabas.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

RANGE, HOUR = "lake_range", "lake_hour"
ORDER = (TOPIC, PARTITION, OFFSET)
NO_RANGE = -1


@dataclass(frozen=True, slots=True)
class Staging:
    """How batches are written."""

    format: FileFormat
    time_column: str
    options: Mapping[str, str] = field(default_factory=dict)
    max_records_per_file: int = 0


def stage(
    spark: SparkSession,
    fs: FileSystem,
    frame: DataFrame,
    directory: str,
    ranges: Sequence[OffsetRange],
    how: Staging,
) -> list[StagedFile]:
    """Write the rows of these ranges under `directory`."""
    from pyspark.sql import functions

    placed, order = with_ranges(frame, ranges)
    placed = placed.withColumn(HOUR, hour_of(functions.col(how.time_column)))
    places = [*(name for name in order if name == RANGE), HOUR]
    ordered = placed.sortWithinPartitions(*places, *(name for name in order if name != RANGE))
    with explained(f"write {fs.full(directory)}"):
        (
            ordered.write.format(how.format)
            .options(**write_options(how.format, how.options))
            .option("maxRecordsPerFile", how.max_records_per_file)
            .partitionBy(*places)
            .save(fs.full(directory))
        )
        return _counted(spark, fs, placed, directory, places, how)


def with_ranges(frame: DataFrame, ranges: Sequence[OffsetRange]) -> tuple[DataFrame, list[str]]:
    """The rows, with the index of the range that each comes from if there are several; and by what they are ordered."""
    order = [name for name in ORDER if name in frame.columns]
    if len(ranges) > 1 and len(order) == len(ORDER):
        return frame.withColumn(RANGE, _range_of(ranges)), [RANGE, *order]
    return frame, order


def check_columns(rows: StructType, time_column: str, date_name: str, hour_name: str) -> None:
    """Raise what would go wrong later, or in the hands of a reader."""
    types = {each.name: each.dataType.simpleString() for each in rows}
    if time_column not in types:
        raise WrongSchema(f"the rows have no column {time_column!r} to tell their hour; they have {', '.join(types)}")
    if types[time_column] != "timestamp":
        raise WrongSchema(f"column {time_column!r} is {types[time_column]}; the hour of a row is told by a timestamp")
    for name in (date_name, hour_name, RANGE, HOUR):
        if name.lower() in map(str.lower, types):
            raise WrongSchema(
                f"the rows have a column {name!r}, which is also the name of a directory in the lake; "
                "rename it, or set `date_name` and `hour_name`"
            )


def hour_of(time: Column) -> Column:
    """The number of the hour, or null; the session's time zone has no say in it."""
    from pyspark.sql import functions

    hour = functions.floor(functions.unix_seconds(time) / 3600)
    return functions.when(hour.between(FIRST_HOUR, LAST_HOUR), hour)


def _range_of(ranges: Sequence[OffsetRange]) -> Column:
    """The index of the range that a row comes from; one partition has one range."""
    from pyspark.sql import functions

    places = {f"{one.topic}/{one.partition}": index for index, one in enumerate(ranges)}
    pairs = [functions.lit(value) for pair in places.items() for value in pair]
    key = functions.concat_ws("/", functions.col(TOPIC), functions.col(PARTITION))
    return functions.coalesce(functions.create_map(*pairs)[key], functions.lit(NO_RANGE))


def _counted(
    spark: SparkSession,
    fs: FileSystem,
    placed: DataFrame,
    directory: str,
    places: Sequence[str],
    how: Staging,
) -> list[StagedFile]:
    """The files with their rows, read back: so a file that cannot be read is never committed."""
    from pyspark.sql import functions

    written = (
        spark.read.format(how.format)
        .options(**read_options(how.format, how.options))
        .schema(placed.schema)
        .load(fs.full(directory))
    )
    time = functions.col(how.time_column)
    rows = (
        written.groupBy(*places, "_metadata.file_name", "_metadata.file_size")
        .agg(functions.count("*").alias("rows"), functions.max(functions.unix_millis(time)).alias("latest_ms"))
        .collect()
    )
    return [_staged(row.asDict(), directory) for row in rows]


def _staged(row: Mapping[str, Any], directory: str) -> StagedFile:
    hour, number = row[HOUR], row.get(RANGE)
    within = "" if number is None else f"{RANGE}={number}/"
    path = f"{directory}/{within}{HOUR}={NO_VALUE if hour is None else hour}/{row['file_name']}"
    try:
        part = PartName.parse(row["file_name"])
    except ValueError as problem:
        raise LakeError(f"{path}: {problem}") from None
    index = None if number in (None, NO_RANGE) else number
    return StagedFile(path, part, index, hour, row["rows"], row["file_size"], row["latest_ms"])
