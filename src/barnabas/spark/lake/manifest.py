"""The manifest: what is in a lake, as the fold of its numbered entries.

An entry is one atomic change: it adds and removes files, and holds the offsets that are in the lake from then on.
Names of files are relative to the lake. `State.after` is all the logic there is; a checkpoint is a state written down,
so that nobody has to fold from the beginning. How entries and states are written is in `manifest_json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from barnabas.spark.lake.errors import ManifestDamaged
from barnabas.spark.lake.intervals import Intervals, merged, missing
from barnabas.spark.ranges import OffsetRange

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Table:
    """What can never change in a lake, because the files that are there would not fit."""

    format: str
    time_column: str
    date_name: str
    hour_name: str


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """Rows of a file that come from these offsets."""

    offsets: OffsetRange
    rows: int


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    hour: int | None
    rows: int
    size: int
    origins: tuple[Origin, ...] = ()
    """Empty where the rows do not tell their partition."""
    is_late: bool = False
    """It lies apart from its hour, which was complete when its rows came."""


@dataclass(frozen=True, slots=True)
class Move:
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Swap:
    """A directory that takes the place of another, which is kept until it has."""

    new: str
    place: str
    old: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One atomic change. What is to be done on the file system after its commit is in it, so that any run can do it."""

    version: int
    kind: str
    """create, open, load, hours or compact: for people, the fields say it all."""
    writer: str | None = None
    """The run that has opened the lake: from here on it alone commits."""
    table: Table | None = None
    schema: Mapping[str, Any] | None = None
    """Spark's JSON of the columns, if they have changed."""
    ranges: tuple[OffsetRange, ...] = ()
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the load of a partition begins that had none before."""
    query: tuple[str, int] | None = None
    latest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    dropped: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Late rows that the policy has thrown away."""
    complete_until: int | None = None
    staging: str | None = None
    """Exists until everything below is done."""
    moves: tuple[Move, ...] = ()
    swap: Swap | None = None
    marks: tuple[int, ...] = ()
    """Hours that get a new marker: they are complete now, or were and have changed."""


@dataclass(frozen=True, slots=True)
class State:
    """A lake after some version."""

    version: int = 0
    writer: str | None = None
    table: Table | None = None
    schema: Mapping[str, Any] | None = None
    done: Mapping[TopicPartition, Intervals] = field(default_factory=dict)
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    queries: Mapping[str, int] = field(default_factory=dict)
    latest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    files: Mapping[str, DataFile] = field(default_factory=dict)
    dropped: Mapping[TopicPartition, int] = field(default_factory=dict)
    complete_until: int | None = None

    def after(self, entry: Entry) -> State:
        if entry.version != self.version + 1:
            raise ManifestDamaged(f"entry {entry.version} of the manifest cannot follow entry {self.version}")
        files = dict(self.files)
        for path in entry.remove:
            if files.pop(path, None) is None:
                raise ManifestDamaged(f"entry {entry.version} of the manifest removes {path}, which is not in it")
        for file in entry.add:
            if files.setdefault(file.path, file) is not file:
                raise ManifestDamaged(f"entry {entry.version} of the manifest adds {file.path} a second time")
        return replace(
            self,
            version=entry.version,
            writer=entry.writer or self.writer,
            table=entry.table or self.table,
            schema=entry.schema or self.schema,
            done=_with_ranges(self.done, entry.ranges),
            begins={**entry.begins, **self.begins},
            queries={**self.queries, entry.query[0]: entry.query[1]} if entry.query else self.queries,
            latest_ms=_combined(self.latest_ms, entry.latest_ms, max),
            files=files,
            dropped=_combined(self.dropped, entry.dropped, int.__add__),
            complete_until=self.complete_until if entry.complete_until is None else entry.complete_until,
        )

    def next_offsets(self) -> dict[TopicPartition, int]:
        """Where to go on in each partition: the lake has everything from its beginning up to there.

        What it has apart from that, of tasks that were faster than others or of a backfill, does not count.
        """
        return {partition: self._next_offset(partition, begin) for partition, begin in self.begins.items()}

    def _next_offset(self, partition: TopicPartition, begin: int) -> int:
        around = (end for start, end in self.done.get(partition, ()) if start <= begin <= end)
        return next(around, begin)

    def has_query_batch(self, query_id: str, number: int) -> bool:
        return self.queries.get(query_id, -1) >= number

    def missing(self, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """The parts of these ranges that are not in the lake."""
        return tuple(
            replace(wanted, start=start, end=end)
            for wanted in ranges
            for start, end in missing((wanted.start, wanted.end), self.done.get((wanted.topic, wanted.partition), ()))
        )

    def is_complete(self, hour: int | None) -> bool:
        return hour is not None and self.complete_until is not None and hour < self.complete_until

    def files_by_hour(self) -> dict[int | None, list[DataFile]]:
        """What lies in the directories of hours, in the order of names."""
        found: dict[int | None, list[DataFile]] = {}
        for _, file in sorted(self.files.items()):
            if not file.is_late:
                found.setdefault(file.hour, []).append(file)
        return found


def _with_ranges(
    done: Mapping[TopicPartition, Intervals], ranges: Iterable[OffsetRange]
) -> Mapping[TopicPartition, Intervals]:
    result = dict(done)
    for added in ranges:
        partition = (added.topic, added.partition)
        result[partition] = merged((*result.get(partition, ()), (added.start, added.end)))
    return result


def _combined(
    one: Mapping[TopicPartition, int], other: Mapping[TopicPartition, int], how: Any
) -> Mapping[TopicPartition, int]:
    result = dict(one)
    for key, value in other.items():
        result[key] = how(result[key], value) if key in result else value
    return result
