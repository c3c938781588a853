"""From staged files to the entry that commits them: names, hours, late rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from barnabas.spark.lake.hours import PartitionProgress, complete_until
from barnabas.spark.lake.manifest import DataFile, Entry, Move, Origin, State, TopicPartition
from barnabas.spark.lake.names import LATE, PartName, batch_name, file_name, ranges_name
from barnabas.spark.lake.publish import directories_of
from barnabas.spark.ranges import OffsetRange

LONGEST_STRETCH_OF_EMPTY_HOURS = 31 * 24
UNKNOWN_PARTITION: TopicPartition = ("", -1)
"""Of rows that do not tell where they come from."""


class LatePolicy(StrEnum):
    """What becomes of rows whose hour is complete already."""

    ACCEPT = "accept"
    """They go to their hour, whose marker is taken away before and put back after."""
    ASIDE = "aside"
    """They go to the same hour under `_late`, where plain readers do not see them."""
    DROP = "drop"
    """They are counted and thrown away."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that Spark, or a task of the direct path, has written."""

    path: str
    part: PartName
    range_index: int | None
    """Which of the ranges its rows come from, if they tell."""
    hour: int | None
    rows: int
    size: int
    latest_ms: int | None


@dataclass(frozen=True, slots=True)
class Observation:
    """What the topics held at a moment: first and next offset by partition. Taken after `now_ms` was."""

    now_ms: int
    offsets: Mapping[TopicPartition, tuple[int, int]]


def load_entry(
    state: State,
    staged: Sequence[StagedFile],
    *,
    staging: str,
    ranges: Sequence[OffsetRange],
    begins: Mapping[TopicPartition, int] | None = None,
    query: tuple[str, int] | None,
    late: LatePolicy,
    schema: Mapping[str, Any],
) -> Entry:
    """The entry that adds a batch; `complete_hours` may add to it."""
    directories = directories_of(state)
    starts = {(one.topic, one.partition): one.start for one in ranges}
    add, moves = [], []
    dropped: dict[TopicPartition, int] = {}
    latest_ms: dict[TopicPartition, int] = {}
    counts: dict[tuple[int | None, int | None], int] = {}
    for file in sorted(staged, key=lambda file: (file.range_index is not None, file.range_index or 0, file.part)):
        offsets = _offsets_of(file, ranges)
        for partition in {(one.topic, one.partition) for one in (offsets or ranges)}:
            if file.latest_ms is not None:
                latest_ms[partition] = max(file.latest_ms, latest_ms.get(partition, file.latest_ms))
        is_late = state.is_complete(file.hour)
        if is_late and late is LatePolicy.DROP:
            partition = (offsets[0].topic, offsets[0].partition) if offsets else UNKNOWN_PARTITION
            dropped[partition] = dropped.get(partition, 0) + file.rows
            continue
        index = counts.get((file.range_index, file.hour), 0)
        counts[file.range_index, file.hour] = index + 1
        name = file_name(_base_name(offsets or ranges, query), index, file.part.suffix)
        is_aside = is_late and late is LatePolicy.ASIDE
        path = f"{LATE}/{directories.of(file.hour)}/{name}" if is_aside else f"{directories.of(file.hour)}/{name}"
        origins = tuple(Origin(one, file.rows) for one in offsets)
        add.append(DataFile(path, file.hour, file.rows, file.size, origins, is_aside))
        moves.append(Move(file.path, path))
    reopened = {
        file.hour for file in add if not file.is_late and file.hour is not None and state.is_complete(file.hour)
    }
    return Entry(
        version=state.version + 1,
        kind="load",
        schema=None if schema == state.schema else schema,
        ranges=tuple(ranges),
        begins={where: start if begins is None else begins[where] for where, start in starts.items()},
        query=query,
        latest_ms=latest_ms,
        add=tuple(add),
        dropped=dropped,
        staging=staging,
        moves=tuple(moves),
        marks=tuple(sorted(reopened)),
    )


def complete_hours(state: State, entry: Entry, seen: Observation, lateness_ms: int) -> Entry:
    """The entry with the hours that are complete after it, if there are more of them than before."""
    after = state.after(entry)
    if not after.files:  # a lake that waits for its first rows knows nothing of their times
        return entry
    until = complete_until(_progress(after, seen), seen.now_ms, lateness_ms)
    if until is None or (after.complete_until is not None and until <= after.complete_until):
        return entry
    with_rows = {file.hour for file in after.files.values() if file.hour is not None and not file.is_late}
    newly = {hour for hour in with_rows if hour < until and not after.is_complete(hour)}
    if after.complete_until is not None and until - after.complete_until <= LONGEST_STRETCH_OF_EMPTY_HOURS:
        # An hour without rows is complete too, and somebody may wait for it.
        newly.update(range(after.complete_until, until))
    return replace(entry, complete_until=until, marks=tuple(sorted({*entry.marks, *newly})))


def _offsets_of(file: StagedFile, ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
    if file.range_index is not None:
        return (ranges[file.range_index],)
    return (ranges[0],) if len(ranges) == 1 else ()


def _base_name(ranges: Sequence[OffsetRange], query: tuple[str, int] | None) -> str:
    if ranges:
        return ranges_name(ranges)
    assert query is not None, "a batch is known by its offsets or by its number"
    return batch_name(*query)


def _progress(state: State, seen: Observation) -> Iterable[PartitionProgress]:
    at = state.next_offsets()
    for partition, (first, end) in seen.offsets.items():
        # Where tasks were faster than the one before them, what is still to come may be older than what is there.
        is_in_order = partition in at and state.done[partition][-1][1] <= at[partition]
        yield PartitionProgress(
            is_at_end=first == end or at.get(partition, first) >= end,
            latest_ms=state.latest_ms.get(partition) if is_in_order else None,
        )
