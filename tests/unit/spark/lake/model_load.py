"""A load on the model file system: what a driver does, with made-up rows instead of Spark.

A row is a line "topic partition offset"; its hour is in `HOURS` by the offset, so that hours overlap and some rows are
late. Everything the driver decides comes from the lake, as after a crash.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from barnabas.spark.lake.commit import LatePolicy, Observation, StagedFile
from barnabas.spark.lake.compact_plan import WrittenGroup, compact_entry, group_names, plan_hours
from barnabas.spark.lake.hours import HOUR_MS
from barnabas.spark.lake.lake import Lake, LakePolicy
from barnabas.spark.lake.manifest import Table
from barnabas.spark.lake.names import MARKER, PartName
from barnabas.spark.lake.publish import marker
from barnabas.spark.ranges import OffsetRange
from tests.unit.spark.lake.model_files import ModelFiles

TABLE = Table("parquet", "at", "date", "hour")
HOURS = (100, 100, 101, 101, 100, 102, 102, 101, 103, 104)
ENDS = {("clicks", 0): 10, ("clicks", 1): 8}
STEP = 3
SCHEMA = {"type": "struct", "fields": []}


def run(files: ModelFiles, late: LatePolicy = LatePolicy.ACCEPT, *, compact: bool = False) -> Lake:
    """Load the whole topic from wherever the lake is, as one driver."""
    lake = Lake(files, LakePolicy(TABLE, late), checkpoint_every=3)
    lake.open()
    for number in range(100):
        done = lake.state().next_offsets()
        ranges = [
            OffsetRange(
                topic, partition, done.get((topic, partition), 0), min(done.get((topic, partition), 0) + STEP, end)
            )
            for (topic, partition), end in ENDS.items()
        ]
        if all(wanted.size == 0 for wanted in ranges):
            break
        load(lake, files, ranges, number)
        if compact:
            compact_all(lake, files)
    return lake


def load(lake: Lake, files: ModelFiles, ranges: list[OffsetRange], number: int = 0) -> None:
    staging = lake.new_staging("load")
    rows = defaultdict(list)
    for index, wanted in enumerate(ranges):
        for offset in range(wanted.start, wanted.end):
            rows[index, HOURS[offset]].append(f"{wanted.topic} {wanted.partition} {offset}\n")
    staged = []
    for (index, hour), lines in rows.items():
        path = f"{staging}/range={index}/hour={hour}/part-00000-ab.c000.parquet"
        data = "".join(lines).encode()
        files.write(path, data)
        part = PartName(0, 0, ".parquet")
        staged.append(StagedFile(path, part, index, hour, len(lines), len(data), hour * HOUR_MS))
    seen = Observation(105 * HOUR_MS, {partition: (0, end) for partition, end in ENDS.items()})
    lake.load(staged, staging=staging, ranges=ranges, query=("q", number), schema=SCHEMA, seen=seen)


def compact_all(lake: Lake, files: ModelFiles) -> None:
    for plan in plan_hours(lake.state(), target_bytes=1000):
        staging = lake.new_staging("compact")
        written = []
        contents = [b"".join(files.read(file.path) for file in group) for group in plan.groups]
        names = group_names(plan, [".parquet" for _ in plan.groups])
        for name, content in zip(names, contents):
            files.write(f"{staging}/new/{name}", content)
            written.append(WrittenGroup(".parquet", content.count(b"\n"), len(content)))
        entry = compact_entry(lake.state(), plan, written, staging)
        files.write(f"{staging}/new/{MARKER}", marker(plan.hour, entry.version, list(entry.add)))
        lake.commit(entry)


def rows_seen(files: ModelFiles) -> Counter[str]:
    """By a reader of plain directories."""
    return Counter(line for data in files.visible().values() for line in data.decode().splitlines())


def rows_in_manifest(lake: Lake, files: ModelFiles) -> Counter[str]:
    paths = lake.state().files
    return Counter(line for path in paths for line in files.read(path).decode().splitlines())


ALL_ROWS = Counter(f"{topic} {partition} {offset}" for (topic, partition), end in ENDS.items() for offset in range(end))
