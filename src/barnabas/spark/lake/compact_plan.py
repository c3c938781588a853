"""Which hours are worth compacting, and the entry that replaces the files of one. Pure.

A directory can only be replaced as a whole without showing rows twice or not at all, so all files of an hour are
written again, in groups of about the size that is wanted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.spark.lake.manifest import DataFile, Entry, Origin, State, Swap
from barnabas.spark.lake.names import file_name, files_name, ranges_name
from barnabas.spark.lake.publish import directories_of
from barnabas.spark.ranges import OffsetRange


@dataclass(frozen=True, slots=True)
class HourPlan:
    """The files of an hour; each group becomes one file."""

    hour: int
    groups: tuple[tuple[DataFile, ...], ...]

    @property
    def files(self) -> list[DataFile]:
        return [file for group in self.groups for file in group]


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """What a group has become."""

    suffix: str
    rows: int
    size: int


def plan_hours(state: State, target_bytes: int) -> list[HourPlan]:
    """Complete hours that would have fewer files; those that still get rows are left until they do not."""
    files = {hour: found for hour, found in state.files_by_hour().items() if hour is not None}
    plans = [
        HourPlan(hour, _groups(found, target_bytes)) for hour, found in sorted(files.items()) if state.is_complete(hour)
    ]
    return [plan for plan in plans if len(plan.groups) < len(plan.files)]


def group_names(plan: HourPlan, suffixes: Sequence[str]) -> list[str]:
    """What the files of the groups are called, after the offsets that they hold together."""
    taken: Counter[str] = Counter()
    names = []
    for group, suffix in zip(plan.groups, suffixes):
        origins = _origins(group)
        base = (
            ranges_name([origin.offsets for origin in origins])
            if origins
            else files_name([file.path for file in group])
        )
        names.append(file_name(base, taken[base], suffix))
        taken[base] += 1
    return names


def compact_entry(state: State, plan: HourPlan, written: Sequence[WrittenGroup], staging: str) -> Entry:
    """The entry that swaps `staging`/new for the directory of the hour."""
    place = directories_of(state).of(plan.hour)
    names = group_names(plan, [group.suffix for group in written])
    return Entry(
        version=state.version + 1,
        kind="compact",
        add=tuple(
            DataFile(f"{place}/{name}", plan.hour, done.rows, done.size, _origins(group))
            for name, done, group in zip(names, written, plan.groups)
        ),
        remove=tuple(file.path for file in plan.files),
        staging=staging,
        swap=Swap(f"{staging}/new", place, f"{staging}/old"),
    )


def _groups(files: Sequence[DataFile], target_bytes: int) -> tuple[tuple[DataFile, ...], ...]:
    """Neighbours by name together, as long as they stay within the size that is wanted."""
    groups: list[list[DataFile]] = []
    room = 0
    for file in files:
        if not groups or file.size > room:
            groups.append([])
            room = target_bytes
        groups[-1].append(file)
        room -= file.size
    return tuple(map(tuple, groups))


def _origins(files: Sequence[DataFile]) -> tuple[Origin, ...]:
    """One for each partition, over all its offsets; none if the rows of any file do not tell theirs."""
    if not all(file.origins for file in files):
        return ()
    found: dict[tuple[str, int], Origin] = {}
    for origin in (origin for file in files for origin in file.origins):
        offsets = origin.offsets
        before = found.get((offsets.topic, offsets.partition), Origin(offsets, 0))
        start, end = min(before.offsets.start, offsets.start), max(before.offsets.end, offsets.end)
        hull = OffsetRange(offsets.topic, offsets.partition, start, end)
        found[offsets.topic, offsets.partition] = Origin(hull, before.rows + origin.rows)
    return tuple(sorted(found.values()))
