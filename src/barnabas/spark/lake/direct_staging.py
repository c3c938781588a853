"""A batch as files under `_staging`, written by tasks of the direct path and checked by the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.spark.lake.commit import StagedFile
from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.filesystem import FileSystem
from barnabas.spark.lake.names import PartName
from barnabas.spark.lake.staging import Staging, stage
from barnabas.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from barnabas.spark.direct.rows import DirectRows


def stage_direct(
    spark: SparkSession,
    fs: FileSystem,
    rows: DirectRows,
    directory: str,
    ranges: Sequence[OffsetRange],
    wanted: Sequence[OffsetRange],
    how: Staging,
    schema: StructType,
) -> list[StagedFile]:
    """Load the offsets `wanted`, which lie within the ranges, into files with the columns of the schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from barnabas.spark.direct.hour_files import HourFilesTarget, codec_of
    from barnabas.spark.direct.job import loaded

    target = HourFilesTarget(
        directory=local_path(fs.full(directory)),
        schema=to_arrow_schema(schema, timezone="UTC"),
        time_column=how.time_column,
        codec=codec_of(how.options),
        max_records_per_file=how.max_records_per_file,
    )
    with loaded(spark, rows, wanted, ranges, target) as found:
        staged = [_checked(row.asDict(), local_path(fs.root)) for row in found.written]
        if not found.unsure:
            return staged
        frame = rows.decode(found.records).to(schema)
        decoded = stage(spark, fs, frame, f"{directory}/decoded-by-spark", ranges, how)
        # Of one range, Spark does not number the files; here they need numbers beside those of the tasks.
        return [*staged, *(replace(file, range_index=0) if len(ranges) == 1 else file for file in decoded)]


def local_path(full: str) -> str:
    """The path of a place on this machine's own file system."""
    scheme, colon, path = full.partition(":")
    assert (scheme, colon) == ("file", ":"), full
    return "/" + path.lstrip("/")


def _checked(row: dict[str, Any], root: str) -> StagedFile:
    """A file that is as the task has left it: one that cannot be read is never committed."""
    import os

    import pyarrow.parquet

    path = str(row["path"])
    size, rows = os.stat(path).st_size, pyarrow.parquet.read_metadata(path).num_rows
    if (size, rows) != (row["size"], row["rows"]):
        raise LakeError(f"{path} has {rows} rows in {size} bytes; its task wrote {row['rows']} in {row['size']}")
    part = PartName.parse(path.rpartition("/")[2])
    relative = path.removeprefix(root).lstrip("/")
    return StagedFile(relative, part, row["range_index"], row["hour"], rows, size, row["latest_ms"])
