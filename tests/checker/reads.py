"""Rules about what consumers get to see: everything, in its order, and nothing left out.

Where no transaction writes, an offset that is left out is one too many. Elsewhere some have markers, or records that
were aborted; there a consumer may leave out only those of which nobody knows a record that it should have seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.checker.anomaly import Anomaly, Moment, Name, short
from tests.checker.commits import Commits
from tests.checker.facts import Facts, Log, Position, Read
from tests.checker.history import NO_OFFSET, UNTOLD, Drained, FinalLog, Polled, TopicPartition


def polls(facts: Facts) -> Iterator[Anomaly]:
    """The first thing that is wrong with each poll."""
    commits = Commits(facts)
    for read in facts.reads:
        if read.consumer:
            anomaly = _wrong_start(facts, read, commits) or _wrong_step(facts, read)
            if anomaly is not None:
                yield anomaly


def unseen(facts: Facts) -> Iterator[Anomaly]:
    """Those who have had the time to read everything have read everything."""
    for index, event in facts.of(Drained):
        seen: dict[TopicPartition, set[bytes]] = {partition: set() for partition in event.partitions}
        for read in facts.reads:
            if read.consumer in event.consumers and read.partition in seen:
                seen[read.partition].update(value for _, value in read.records)
        for partition, values in seen.items():
            yield from _unseen(facts, index, event, facts.last_log(partition), values)


def _unseen(facts: Facts, index: int, drained: Drained, log: Log, seen: set[bytes]) -> Iterator[Anomaly]:
    kept = _kept(facts, log)
    for offset in log.offsets:
        value, first = log.sightings[offset]
        if offset in kept and value not in seen:
            what = f"{short(value)} at {offset} was not seen by {', '.join(drained.consumers)}"
            evidence = facts.evidence((*facts.origin(value), first, index), value)
            yield Anomaly(Name.UNSEEN, str(log.partition), what, evidence)


def _kept(facts: Facts, log: Log) -> set[int]:
    """The offsets whose records were there to be seen by everybody until the end; what is lost is another matter."""
    bound = facts.trim_bounds.get(log.partition, 0)
    kept = {offset for offset in log.offsets if offset >= bound and facts.is_visible(log.sightings[offset].value)}
    for index in log.finals:
        final = facts.events[index][1]
        assert isinstance(final, FinalLog)
        kept.intersection_update(offset for offset, _ in final.records)
    return kept


def _wrong_step(facts: Facts, read: Read) -> Anomaly | None:
    """From one record of a poll to the next."""
    for (before, value), (offset, later) in pairwise(read.records):
        if offset <= before:
            what = f"{read.consumer} polled {offset} after {before}"
            evidence = facts.evidence([read.at], value, later)
            return Anomaly(Name.INTERNAL_NONMONOTONIC_POLL, str(read.partition), what, evidence)
        skipped = _skipped(facts, read, before + 1, offset)
        if skipped is not None:
            what = f"{read.consumer} polled {offset} after {before}, offset {skipped} was due"
            evidence = _shown(facts, read, skipped, [read.at], value, later)
            return Anomaly(Name.INTERNAL_POLL_SKIP, str(read.partition), what, evidence)
    return None


def _wrong_start(facts: Facts, read: Read, commits: Commits) -> Anomaly | None:
    """From where the consumer was to the first record of its poll."""
    start = read.start
    if start is None:
        return None
    if start.offset == UNTOLD:
        return _wrong_start_in_group(facts, read, start, commits)
    first, value = read.records[0]
    is_external = start.at != read.at
    origin = facts.events[start.at][1]
    before = [origin.records[-1][1]] if is_external and isinstance(origin, Polled) else []
    if first < start.offset:
        name = Name.EXTERNAL_NONMONOTONIC_POLL if is_external else Name.INTERNAL_NONMONOTONIC_POLL
        what = f"{read.consumer} polled {first}, it was at {start.offset}"
        evidence = facts.evidence((start.at, read.at), *before, value)
        return Anomaly(name, str(read.partition), what, evidence)
    due = _first_left(facts, read, start.offset) if is_external else start.offset
    skipped = _skipped(facts, read, due, first)
    if skipped is None:
        return None
    name = Name.EXTERNAL_POLL_SKIP if is_external else Name.INTERNAL_POLL_SKIP
    what = f"{read.consumer} polled {first}, offset {skipped} was due"
    evidence = _shown(facts, read, skipped, [start.at, read.at], *before, value)
    return Anomaly(name, str(read.partition), what, evidence)


def _wrong_start_in_group(facts: Facts, read: Read, start: Position, commits: Commits) -> Anomaly | None:
    """A member begins where its group may have committed, and at the beginning if it may have committed nothing."""
    if not start.group:
        return None
    first, value = read.records[0]
    possible = commits.possible(start.group, read.partition, start.at, read.at)
    places = sorted(0 if offset == NO_OFFSET else offset for offset in possible)
    if any(p <= first and _skipped(facts, read, _first_left(facts, read, p), first) is None for p in places):
        return None
    name = Name.EXTERNAL_POLL_SKIP if places[0] <= first else Name.EXTERNAL_NONMONOTONIC_POLL
    what = f"{read.consumer} began at {first}, but {start.group} is at {' or '.join(map(str, places))}"
    indexes = (*commits.evidence(start.group, read.partition, read.at), start.at, read.at)
    return Anomaly(name, str(read.partition), what, facts.evidence(indexes, value))


def _skipped(facts: Facts, read: Read, first: int, end: int) -> int | None:
    """An offset from `first` to before `end` that the consumer should have seen."""
    if first >= end:
        return None
    if read.partition not in facts.transactional_partitions:
        return first
    known = read.log.between(first, end) if read.log is not None else ()
    return next((offset for offset, (value, _) in known if not read.read_committed or facts.is_visible(value)), None)


def _first_left(facts: Facts, read: Read, position: int) -> int:
    """Where a client goes on at the latest that finds what is at its position deleted."""
    if read.partition.topic in facts.expectations.expiring_topics:
        return read.records[0][0]
    return max(position, read.trim_bound)


def _shown(facts: Facts, read: Read, skipped: int, indexes: list[int], *values: bytes) -> tuple[Moment, ...]:
    """These events, and those that tell of the skipped record, if not every offset must have one."""
    sighting = read.log.sightings.get(skipped) if read.log is not None else None
    if sighting is None or read.partition not in facts.transactional_partitions:
        return facts.evidence(indexes, *values)
    return facts.evidence([*indexes, *facts.origin(sighting.value), sighting.at], *values, sighting.value)
