"""Does a lake have what its topics have? Counts by partition and hour, and files against the manifest.

The hour here is that of the record's own time, which topic and lake both know, whatever column the directories go by.
Where the rows do not keep their origin, only the sums of partitions are compared, as the manifest has them. Offsets
that retention has taken from the topic since are left out on both sides.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.spark import register
from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.filesystem import FileSystem, open_filesystem
from barnabas.spark.lake.hours import hour_text
from barnabas.spark.lake.intervals import hulls
from barnabas.spark.lake.manifest import DataFile, State, TopicPartition
from barnabas.spark.lake.manifest_log import ManifestLog
from barnabas.spark.lake.names import LATE
from barnabas.spark.lake.reading import places_now, read_files
from barnabas.spark.lake.staging import hour_of
from barnabas.spark.lake.topics import observe, read_ranges
from barnabas.spark.pipeline.sinks import OFFSET, ORIGIN_COLUMNS, PARTITION, TIMESTAMP, TOPIC
from barnabas.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Counts = Counter[tuple[str, int, int | None]]
"""By topic, partition and hour."""
Row = Mapping[str, Any]


def audit(spark: SparkSession, path: str, options: Mapping[str, str], source_options: Mapping[str, str]) -> list[Row]:
    """One row for each partition and hour, with `ok`; and one for each file that is not as the manifest says."""
    register(spark)
    fs = open_filesystem(spark, path)
    state, entry = ManifestLog(fs).read()
    if entry is None:
        raise LakeError(f"{fs.root} has no manifest: it is not a lake, or nothing was loaded yet")
    moved = places_now(fs, entry)
    problems = dict(file_problems(fs, state, moved))
    there = [file for path, file in state.files.items() if path in moved or path not in problems]
    ranges = comparable(state, observe(source_options).offsets)
    in_topic: Counts = Counter()
    in_lake: Counts = Counter()
    if ranges:
        in_topic = _counted(_within(read_ranges(spark, source_options, hulls(ranges)), ranges))
        names = {field["name"] for field in (state.schema or {"fields": ()})["fields"]}
        if names.issuperset(ORIGIN_COLUMNS):
            files = [moved.get(file.path, file.path) for file in there]
            in_lake = _counted(_within(read_files(spark, fs, state, files, options), ranges))
        else:
            in_topic, in_lake = _sums(in_topic), sums_of_manifest(there, ranges)
    rows = compare(in_topic, in_lake, state.dropped, ranges)
    return [*rows, *(_row(note=f"{path} {problem}", ok=False) for path, problem in problems.items())]


def comparable(state: State, held: Mapping[TopicPartition, tuple[int, int]]) -> list[OffsetRange]:
    """Offsets that the lake has, as far as the topics still hold them."""
    found = []
    for (topic, partition), intervals in sorted(state.done.items()):
        first, end = held.get((topic, partition), (0, 0))
        cut = (OffsetRange(topic, partition, max(start, first), min(stop, end)) for start, stop in intervals)
        found += [one for one in cut if one.size > 0]
    return found


def compare(
    in_topic: Counts, in_lake: Counts, dropped: Mapping[TopicPartition, int], ranges: Sequence[OffsetRange]
) -> Iterator[Row]:
    """Rows that late policy has dropped are missing in hours nobody knows, so only the sum can be right then."""
    for topic, partition, hour in sorted(in_topic.keys() | in_lake.keys(), key=lambda key: (*key[:2], key[2] or 0)):
        ours, theirs = in_lake[topic, partition, hour], in_topic[topic, partition, hour]
        lost = dropped.get((topic, partition), 0)
        yield _row(topic, partition, hour_text(hour), theirs, ours, ok=theirs - lost <= ours <= theirs)
    for (topic, partition), lost in sorted(dropped.items()):
        theirs, ours = (_sums(counts)[topic, partition, None] for counts in (in_topic, in_lake))
        is_whole = any(one.start == 0 for one in ranges if (one.topic, one.partition) == (topic, partition))
        note = f"{lost} late rows were dropped"
        yield _row(topic, partition, "all", theirs, ours, ok=theirs == ours + lost or not is_whole, note=note)


def file_problems(fs: FileSystem, state: State, moved: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Files that are missing, of another size, or unknown; by path, what is wrong."""
    assert state.table is not None
    there = dict(_walk(fs, state.table.date_name))
    for path, file in sorted(state.files.items()):
        size = there.pop(path, None)
        if path in moved:
            continue
        if size is None:
            yield path, "is in the manifest and is not there"
        elif size != file.size:
            yield path, f"has {size} bytes, and {file.size} in the manifest"
    for path in sorted(there):
        yield path, "is not in the manifest; plain readers see its rows too"


def sums_of_manifest(files: Sequence[DataFile], ranges: Sequence[OffsetRange]) -> Counts:
    """By partition; files that hold more than the topic still has cannot be compared, and raise an error."""
    held = {(one.topic, one.partition): one for one in ranges}
    sums: Counts = Counter()
    for file in files:
        if not file.origins:
            raise LakeError(
                f"{file.path} does not tell its partitions: keep {TOPIC}, {PARTITION} and {OFFSET} in the rows"
            )
        for origin in file.origins:
            place = (origin.offsets.topic, origin.offsets.partition)
            if place not in held or origin.offsets.start < held[place].start:
                raise LakeError(
                    f"{file.path} has offsets of {origin.offsets} that the topic has lost: "
                    f"keep {', '.join(ORIGIN_COLUMNS)} in the rows to compare the others"
                )
            sums[(*place, None)] += origin.rows
    return sums


def _walk(fs: FileSystem, date_name: str) -> Iterator[tuple[str, int]]:
    """Path and size of every file of rows."""
    for top in ("", f"{LATE}/"):
        for date in fs.list(top.rstrip("/")):
            if date.is_directory and date.name.startswith(f"{date_name}="):
                for hour in fs.list(f"{top}{date.name}"):
                    for file in fs.list(f"{top}{date.name}/{hour.name}"):
                        if not file.name.startswith(("_", ".")):
                            yield f"{top}{date.name}/{hour.name}/{file.name}", file.size


def _within(frame: DataFrame, ranges: Sequence[OffsetRange]) -> DataFrame:
    from pyspark.sql import functions

    topic, partition, offset = (functions.col(name) for name in (TOPIC, PARTITION, OFFSET))
    conditions = [
        (topic == one.topic) & (partition == one.partition) & (offset >= one.start) & (offset < one.end)
        for one in ranges
    ]
    return frame.filter(functools.reduce(operator.or_, conditions))


def _counted(frame: DataFrame) -> Counts:
    from pyspark.sql import functions

    hour = hour_of(functions.col(TIMESTAMP)).alias("hour")
    rows = frame.groupBy(TOPIC, PARTITION, hour).count().collect()
    return Counter({(row[TOPIC], row[PARTITION], row["hour"]): row["count"] for row in rows})


def _sums(counts: Counts) -> Counts:
    sums: Counts = Counter()
    for (topic, partition, _), count in counts.items():
        sums[topic, partition, None] += count
    return sums


def _row(
    topic: str = "",
    partition: int | None = None,
    hour: str = "",
    in_topic: int | None = None,
    in_lake: int | None = None,
    *,
    ok: bool,
    note: str = "",
) -> Row:
    return {
        "topic": topic,
        "partition": partition,
        "hour": hour,
        "in_topic": in_topic,
        "in_lake": in_lake,
        "ok": ok,
        "note": note,
    }
