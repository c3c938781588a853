"""Histories of a cluster that keeps every promise have no anomaly; change a little of one, and it has."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.checker.anomaly import Name
from tests.checker.expectations import Expectations
from tests.checker.history import NO_OFFSET, CommitsTold, Event, FinalLog, Outcome, Polled, Sent, TransactionEnded
from tests.checker.model import INPUTS, READER, Model
from tests.checker.samples import found

EXPECTED = Expectations(idempotent_producers={"p0", "p1"})
SEEDS = range(10)

Change = Callable[[list[Event], random.Random], None]


def reads(events: list[Event]) -> list[tuple[int, Polled]]:
    """What one reader, to whom nothing happens, has polled of the inputs."""
    polls = [(index, event) for index, event in enumerate(events) if isinstance(event, Polled)]
    return [(index, event) for index, event in polls if event.consumer == READER and event.partition in INPUTS]


def lose_a_record(events: list[Event], rng: random.Random) -> None:
    """One that a reader has seen is nowhere at the end."""
    _, polled = rng.choice(reads(events))
    lost = rng.choice(polled.records)
    for index, event in enumerate(events):
        if isinstance(event, FinalLog) and event.partition == polled.partition:
            events[index] = replace(event, records=tuple(record for record in event.records if record != lost))


def repeat_a_poll(events: list[Event], rng: random.Random) -> None:
    index, polled = rng.choice(reads(events))
    events.insert(index + 1, polled)


def skip_a_poll(events: list[Event], rng: random.Random) -> None:
    index, _ = rng.choice(reads(events))
    del events[index]


def show_another_record(events: list[Event], rng: random.Random) -> None:
    """A reader sees one that was sent before where all others see another."""
    index, polled = reads(events)[-1]
    *rest, (offset, value) = polled.records
    sent = (e.values for e in events[:index] if isinstance(e, Sent) and e.partition == polled.partition)
    other = rng.choice([each for values in sent for each in values if each != value])
    events[index] = replace(polled, records=(*rest, (offset, other)))


def abort_what_was_seen(events: list[Event], rng: random.Random) -> None:
    seen = {value for event in events if isinstance(event, Polled) for _, value in event.records}
    names = {e.transaction for e in events if isinstance(e, Sent) and e.transaction and seen.intersection(e.values)}
    ends = [i for i, e in enumerate(events) if isinstance(e, TransactionEnded) and e.transaction in names]
    index = rng.choice(ends)
    event = events[index]
    assert isinstance(event, TransactionEnded)
    events[index] = replace(event, outcome=Outcome.ABORTED)


def forget_commits(events: list[Event], _: random.Random) -> None:
    """The last of all who ask is told of nothing."""
    index = max(i for i, event in enumerate(events) if isinstance(event, CommitsTold))
    event = events[index]
    assert isinstance(event, CommitsTold)
    events[index] = replace(event, offsets=tuple((partition, NO_OFFSET) for partition, _ in event.offsets))


CHANGES: list[tuple[Change, Name]] = [
    (lose_a_record, Name.LOST_WRITE),
    (repeat_a_poll, Name.EXTERNAL_NONMONOTONIC_POLL),
    (skip_a_poll, Name.UNSEEN),
    (show_another_record, Name.INCONSISTENT_OFFSETS),
    (abort_what_was_seen, Name.ABORTED_READ),
    (forget_commits, Name.LOST_COMMIT),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_that_keeps_every_promise_has_no_anomaly(seed: int) -> None:
    events = Model(seed).events
    assert not found(*events, expected=EXPECTED)
    polled = {event.partition for event in events if isinstance(event, Polled)}
    assert polled.issuperset(INPUTS)


@pytest.mark.parametrize(("change", "name"), CHANGES)
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_a_small_change_is_found(seed: int, change: Change, name: Name) -> None:
    events = Model(seed).events
    change(events, random.Random(seed))
    assert name in {anomaly.name for anomaly in found(*events, expected=EXPECTED)}
