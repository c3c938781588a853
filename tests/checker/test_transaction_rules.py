"""What may be seen of a transaction, and in which order transactions may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.checker.anomaly import Name
from tests.checker.expectations import Expectations
from tests.checker.history import Event, Outcome, SentAgain, TopicPartition, TransactionBegun, TransactionEnding
from tests.checker.samples import (
    OTHER,
    PLAIN,
    SYNCED,
    A,
    B,
    C,
    E,
    acknowledged,
    committing,
    ended,
    fetched,
    final,
    final_records,
    found,
    made_of,
    names,
    polled,
    sent,
    sent_in,
)

ISOLATED = Expectations(isolated_writes=True)


@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, Outcome.UNKNOWN])
def test_a_transaction_that_may_be_committed_may_be_seen(outcome: Outcome) -> None:
    events = (TransactionBegun("p", "t"), sent_in("t", PLAIN, A), committing("t"), ended("t", outcome))
    assert not found(*events, polled(PLAIN, (0, A)), final_records(PLAIN, (0, A)))


def test_nobody_sees_an_aborted_transaction_whenever_it_was_aborted() -> None:
    aborting = TransactionEnding("p", "t", Outcome.ABORTED)
    aborted = (aborting, ended("t", Outcome.ABORTED))
    assert names(sent_in("t", PLAIN, A), *aborted, final_records(PLAIN, (0, A))) == [Name.ABORTED_READ]
    assert names(sent_in("t", PLAIN, A), polled(PLAIN, (0, A)), *aborted) == [Name.ABORTED_READ]
    assert not found(sent_in("t", PLAIN, A), fetched(PLAIN, (0, A)), *aborted)  # by one who wants to see all


def test_a_transaction_that_nobody_has_ended_is_not_seen() -> None:
    aborting = TransactionEnding("p", "t", Outcome.ABORTED)
    for end in ((), (aborting,)):
        assert names(sent_in("t", PLAIN, A), *end, polled(PLAIN, (0, A))) == [Name.PRECOMMITTED_READ]


def test_a_transaction_does_not_see_itself() -> None:
    read = polled(PLAIN, (0, A), transaction="t")
    assert names(sent_in("t", PLAIN, A), read, committing("t")) == [Name.PRECOMMITTED_READ]


def test_anomalies_of_one_kind_are_told_once_for_a_partition_and_counted() -> None:
    events = (sent_in("t", PLAIN, A, B), polled(PLAIN, (0, A), (1, B)), polled(PLAIN, (0, A), by="d"))
    (anomaly,) = found(*events)
    assert (anomaly.name, anomaly.others) == (Name.PRECOMMITTED_READ, 2)
    assert str(anomaly).startswith(
        "precommitted read: plain-0: p:0 at 0, of t, which nobody had asked to commit (and 2 more)\n"
    )


def test_a_source_may_be_counted_in_each_topic_and_tried_again() -> None:
    events = (made_of(E, "s", PLAIN, A), made_of(E, "t", OTHER, B), made_of(E, "u", PLAIN, C))
    there = (acknowledged(PLAIN, 0, A), acknowledged(OTHER, 0, B), acknowledged(PLAIN, 2, C))
    assert not found(*events, *there, ended("s"), ended("t"), ended("u", Outcome.UNKNOWN))
    assert names(*events, *there, ended("s"), ended("t"), ended("u")) == [Name.DOUBLE_PROCESSING]


def test_a_source_that_was_sent_twice_may_be_counted_twice() -> None:
    source = (sent(SYNCED, E), final(SYNCED, E, E), SentAgain(SYNCED, (1,)))
    twice = (made_of(E, "s", PLAIN, A), made_of(E, "t", PLAIN, B), acknowledged(PLAIN, 0, A, B), ended("s"), ended("t"))
    thrice = (made_of(E, "u", PLAIN, C), acknowledged(PLAIN, 2, C), ended("u"))
    assert names(*source[:1], *twice) == [Name.DOUBLE_PROCESSING]
    assert not found(*source, *twice)
    assert names(*source, *twice, *thrice) == [Name.DOUBLE_PROCESSING]


# cycles


def written_and_read(*steps: tuple[str, str]) -> list[Event]:
    """For each step a record of the first transaction that the second one has read."""
    events: list[Event] = []
    for number, (writer, reader) in enumerate(steps):
        value = b"%s:%d" % (writer.encode(), number)
        partition = TopicPartition("cycle", number)
        events += [
            sent_in(writer, partition, value, by=writer),
            committing(writer),
            polled(partition, (0, value), transaction=reader),
        ]
    return events


def test_a_chain_of_reads_is_no_cycle() -> None:
    assert not found(*written_and_read(("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")))


def test_the_smallest_cycle_of_reads_is_told() -> None:
    large = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    (anomaly,) = found(*written_and_read(*large))
    assert anomaly.name is Name.INFORMATION_CYCLE
    assert anomaly.what == "a -wr-> b by a:0; b -wr-> c by b:1; c -wr-> d by c:2; d -wr-> a by d:3"
    (anomaly,) = found(*written_and_read(*large, ("c", "b")))
    assert anomaly.what == "b -wr-> c by b:1; c -wr-> b by c:4"
    assert len(anomaly.evidence) == 4


def test_every_knot_of_transactions_is_told_of() -> None:
    assert names(*written_and_read(("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c"))) == [
        Name.INFORMATION_CYCLE,
        Name.INFORMATION_CYCLE,
    ]


def test_who_reads_everything_proves_no_cycle() -> None:
    events = [
        replace(event, read_committed=False) if isinstance(event, type(polled(PLAIN, (0, A)))) else event
        for event in written_and_read(("a", "b"), ("b", "a"))
    ]
    assert not found(*events)


def mingled(*orders: tuple[bytes, ...]) -> list[Event]:
    """Partitions to which transactions have written in these orders; a value begins with its transaction's name."""
    events: list[Event] = []
    for number, values in enumerate(orders):
        partition = TopicPartition("mingled", number)
        for value in values:
            name = value.decode()[0]
            events += [sent_in(name, partition, value, by=name)]
        events += [acknowledged(partition, 0, *values)]
    return events + [ended(name) for name in "abc"]


def test_the_writes_of_open_transactions_may_mingle_unless_they_are_isolated() -> None:
    events = mingled((b"a1", b"b1", b"a2"))
    assert not found(*events)
    (anomaly,) = found(*events, expected=ISOLATED)
    assert (anomaly.name, anomaly.what) == (Name.WRITE_CYCLE, "a -ww-> b by a1; b -ww-> a by b1")


def test_the_smallest_cycle_of_writes_is_told_though_others_are_between() -> None:
    (anomaly,) = found(*mingled((b"a1", b"c1", b"b1"), (b"b2", b"a2")), expected=ISOLATED)
    assert anomaly.what == "a -ww-> b by a1; b -ww-> a by b2"


def test_what_is_not_committed_has_no_place_in_the_order() -> None:
    events = [event for event in mingled((b"a1", b"b1", b"a2")) if event != ended("b")]
    assert not found(*events, ended("b", Outcome.ABORTED), expected=ISOLATED)


def test_a_cycle_of_a_write_and_a_read_is_one_of_information() -> None:
    events = (
        *(sent_in("a", PLAIN, A, by="a"), sent_in("b", PLAIN, B, by="b"), acknowledged(PLAIN, 0, A, B)),
        *(sent_in("b", OTHER, C, by="b"), ended("b"), polled(OTHER, (0, C), transaction="a")),
        ended("a"),
    )
    assert not found(*events)
    (anomaly,) = found(*events, expected=ISOLATED)
    assert anomaly.name is Name.INFORMATION_CYCLE
    assert {*anomaly.what.split("; ")} == {"a -ww-> b by p:0", "b -wr-> a by p:2"}


def test_a_small_cycle_is_found_at_the_end_of_a_long_run() -> None:
    steps = [(f"t{number}", f"t{number + 1}") for number in range(2000)]
    (anomaly,) = found(*written_and_read(*steps, ("t2000", "t1998")))
    assert len(anomaly.evidence) == 6
