"""A lake as its manifest has it: exactly the committed rows, whatever is being moved at the moment.

A reader of the plain directories sees whole files, but those of one batch appear one after the other, and during a
compaction an hour is away for a moment. Here the files come from one version of the manifest. If one of them is
replaced before Spark has opened it, the query fails with a FileNotFoundException, and may be run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.filesystem import FileSystem, open_filesystem
from barnabas.spark.lake.formats import FileFormat, read_options
from barnabas.spark.lake.manifest import Entry, State
from barnabas.spark.lake.manifest_log import ManifestLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_lake(
    spark: SparkSession, path: str, options: Mapping[str, str] | None = None, *, late: bool = False
) -> DataFrame:
    """The rows of a lake; with `late` also those that the policy has put aside."""
    fs = open_filesystem(spark, path)
    state, entry = ManifestLog(fs).read()
    if state.table is None or entry is None:
        raise LakeError(f"{fs.root} has no manifest: it is not a lake, or nothing was loaded yet")
    moved = places_now(fs, entry)
    files = [moved.get(path, path) for path, file in sorted(state.files.items()) if late or not file.is_late]
    return read_files(spark, fs, state, files, options or {})


def read_files(
    spark: SparkSession, fs: FileSystem, state: State, files: list[str], options: Mapping[str, str]
) -> DataFrame:
    """The rows of some files, with the columns of the lake."""
    from pyspark.sql.types import StructType

    assert state.table is not None
    schema = StructType.fromJson(dict(state.schema)) if state.schema else StructType([])
    if not files:
        return spark.createDataFrame([], schema)
    kind = FileFormat(state.table.format)
    reader = spark.read.format(kind).options(**read_options(kind, options)).schema(schema)
    return reader.load([fs.full(path) for path in files])


def places_now(fs: FileSystem, entry: Entry) -> dict[str, str]:
    """Where files of the last entry are that have not come to their places yet."""
    if entry.staging is None or not fs.exists(entry.staging):
        return {}
    moved = {move.target: move.source for move in entry.moves if fs.exists(move.source)}
    if entry.swap is not None and fs.exists(entry.swap.new):
        moved |= {file.path: file.path.replace(entry.swap.place, entry.swap.new, 1) for file in entry.add}
    return moved
