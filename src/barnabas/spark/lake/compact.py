"""Small files of complete hours into larger ones.

Spark writes the new files under `_staging`; they are counted before one entry of the manifest replaces the old ones;
then the directory of the hour is swapped for the new one. Each hour is an entry of its own, so a crash costs one hour's
work at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barnabas.spark.lake.compact_plan import HourPlan, WrittenGroup, compact_entry, group_names, plan_hours
from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.filesystem import FileSystem, explained
from barnabas.spark.lake.formats import read_options, write_options
from barnabas.spark.lake.hours import hour_text
from barnabas.spark.lake.lake import Lake
from barnabas.spark.lake.manifest import DataFile, State
from barnabas.spark.lake.names import MARKER, PartName
from barnabas.spark.lake.publish import directories_of, marker
from barnabas.spark.lake.reading import read_files
from barnabas.spark.lake.staging import ORDER, Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(
    spark: SparkSession, fs: FileSystem, lake: Lake, how: Staging, target_bytes: int
) -> list[Mapping[str, Any]]:
    """Compact every hour that would have fewer files; what was done, one row for each hour."""
    done: list[Mapping[str, Any]] = []
    for plan in plan_hours(lake.state(), target_bytes):
        _check_directory(fs, lake.state(), plan)
        staging = lake.new_staging("compact")
        state = lake.state()
        written = [
            _write_group(spark, fs, state, group, f"{staging}/{number}", how)
            for number, group in enumerate(plan.groups)
        ]
        groups = [group for _, group in written]
        entry = compact_entry(state, plan, groups, staging)
        for (path, _), name in zip(written, group_names(plan, [group.suffix for group in groups])):
            fs.rename(path, f"{staging}/new/{name}")
        fs.write(f"{staging}/new/{MARKER}", marker(plan.hour, entry.version, list(entry.add)))
        lake.commit(entry)
        done.append(
            {
                "hour": hour_text(plan.hour),
                "files_before": len(plan.files),
                "files_after": len(plan.groups),
                "rows": sum(file.rows for file in plan.files),
                "bytes_before": sum(file.size for file in plan.files),
                "bytes_after": sum(group.size for group in groups),
            }
        )
    return done


def _check_directory(fs: FileSystem, state: State, plan: HourPlan) -> None:
    """The whole directory is going to be replaced, so nothing else may be in it."""
    place = directories_of(state).of(plan.hour)
    there = {f"{place}/{listed.name}" for listed in fs.list(place) if not listed.name.startswith(("_", "."))}
    known = {file.path for file in plan.files}
    for path in sorted(there - known):
        raise LakeError(f"{fs.full(path)} is not in the manifest; move it away before this hour is compacted")
    for path in sorted(known - there):
        raise LakeError(f"{fs.full(path)} is in the manifest and is not there; put it back, then compact")


def _write_group(
    spark: SparkSession, fs: FileSystem, state: State, group: tuple[DataFile, ...], directory: str, how: Staging
) -> tuple[str, WrittenGroup]:
    """The rows of some files as one file: its path, and what is in it."""
    frame = read_files(spark, fs, state, [file.path for file in group], how.options).coalesce(1)
    order = [name for name in ORDER if name in frame.columns]
    rows = frame.sortWithinPartitions(*order) if order else frame
    with explained(f"write {fs.full(directory)}"):
        rows.write.format(how.format).options(**write_options(how.format, how.options)).save(fs.full(directory))
        reader = spark.read.format(how.format).options(**read_options(how.format, how.options))
        count = reader.schema(frame.schema).load(fs.full(directory)).count()
    expected = sum(file.rows for file in group)
    if count != expected:
        raise LakeError(f"{fs.full(directory)} has {count} rows instead of {expected}; nothing was replaced")
    file = next(listed for listed in fs.list(directory) if listed.name.startswith("part-"))
    return f"{directory}/{file.name}", WrittenGroup(PartName.parse(file.name).suffix, count, file.size)
