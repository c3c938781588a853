"""How far a run is, as values; who shows them is another matter (`reporters.py`)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from barnabas.spark.pipeline.sinks import Offsets, Written, WrittenFile
from barnabas.spark.ranges import OffsetRange

MAX_FILES = 100
"""Of a batch that are reported by name: it can have as many as there are hours and partitions."""


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    topic: str
    partition: int
    start: int
    """Where this run began."""
    done: int
    """The next offset that the slowest sink needs."""
    latest: int

    @property
    def to_go(self) -> int:
        return max(0, self.latest - self.done)


@dataclass(frozen=True, slots=True)
class FilesWritten:
    """The files that a batch has added to a sink."""

    count: int
    size_bytes: int
    rows_by_hour: Mapping[str, int]
    first: tuple[WrittenFile, ...]
    """Up to MAX_FILES of them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """After a batch, or before the first. Numbers of records are numbers of offsets, gaps included."""

    at: float
    """When the batch ended, in seconds since 1970."""
    pipeline: str
    query: str
    """What the batch belongs to: `offsets`, or the sink of a query with state."""
    batch: int
    records: int
    """Of this batch."""
    rows: Mapping[str, int]
    """Written in this batch, by sink."""
    batch_seconds: float
    """From its beginning to its end; tasks that run side by side have the time that each of them took."""
    records_per_second: float
    """Over this run."""
    eta_seconds: float | None
    """Until everything that is there now is done, at that speed."""
    lag: int
    partitions: tuple[PartitionProgress, ...]
    dead_letters: int = 0
    watermark: str | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    ranges: tuple[OffsetRange, ...] = ()
    """The offsets of this batch."""
    sink_seconds: Mapping[str, float] = field(default_factory=dict)
    """The parts of `batch_seconds` that sinks took one after the other; empty if there is but one."""
    files: Mapping[str, FilesWritten] = field(default_factory=dict)
    """Added in this batch, by sink; sinks that do not write files are not in it."""
    unsure: int = 0
    """Records that tasks of the direct path left to Spark, being unsure how to decode them."""

    @property
    def began(self) -> float:
        return self.at - self.batch_seconds

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def progress_from_json(line: str) -> Progress:
    """Also of a line that an earlier version wrote, which lacks the fields that have a default."""
    values: dict[str, Any] = json.loads(line)
    partitions = tuple(PartitionProgress(**each) for each in values.pop("partitions"))
    ranges = tuple(OffsetRange(**each) for each in values.pop("ranges", ()))
    files = {sink: _files_from_json(each) for sink, each in values.pop("files", {}).items()}
    return Progress(partitions=partitions, ranges=ranges, files=files, **values)


def _files_from_json(values: dict[str, Any]) -> FilesWritten:
    first = tuple(WrittenFile(**each) for each in values.pop("first"))
    return FilesWritten(first=first, **values)


def files_written(written: Mapping[str, Written]) -> dict[str, FilesWritten]:
    """What the sinks of a batch have added, in a form that stays small."""
    return {sink: _summed(each) for sink, each in written.items() if each.files}


def _summed(written: Written) -> FilesWritten:
    rows: Counter[str] = Counter()
    for file in written.files:
        rows[file.hour] += file.rows
    size = sum(file.size_bytes for file in written.files)
    return FilesWritten(len(written.files), size, dict(rows), written.files[:MAX_FILES])


@dataclass
class Meter:
    """Makes the progress of one query from what its batches report."""

    pipeline: str
    query: str
    started: float
    """On the clock that `now` is of."""
    first: Offsets
    """Where the run began; a partition that came later begins where it is seen."""
    total: int = 0

    def progress(
        self,
        *,
        now: float,
        wall: float,
        batch: int,
        records: int,
        batch_seconds: float,
        done: Offsets,
        latest: Offsets,
        written: Mapping[str, Written],
        ranges: Iterable[OffsetRange] = (),
        **more: Any,
    ) -> Progress:
        self.total += records
        speed = self.total / max(now - self.started, 1e-9)
        partitions = tuple(
            PartitionProgress(*partition, self.first.get(partition, offset), offset, latest.get(partition, offset))
            for partition, offset in sorted(done.items())
        )
        lag = sum(each.to_go for each in partitions)
        return Progress(
            at=wall,
            pipeline=self.pipeline,
            query=self.query,
            batch=batch,
            records=records,
            rows={sink: each.rows for sink, each in written.items()},
            batch_seconds=round(batch_seconds, 3),
            records_per_second=round(speed, 1),
            eta_seconds=round(lag / speed, 1) if self.total else None,
            lag=lag,
            partitions=partitions,
            ranges=tuple(each for each in ranges if each.size),
            files=files_written(written),
            unsure=sum(each.unsure for each in written.values()),
            **more,
        )
