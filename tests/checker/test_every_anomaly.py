"""For every anomaly a history that shows it, with the piece that proves it, and another one that is all right."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.checker.anomaly import Name
from tests.checker.history import (
    NO_OFFSET,
    UNTOLD,
    Drained,
    Event,
    Failed,
    Fault,
    FinalReplica,
    Outcome,
    ProducerIdGiven,
    Recovered,
    SequenceForgotten,
    TopicPartition,
    Trimmed,
    Trimming,
    UncleanElection,
)
from tests.checker.samples import (
    EXPECTED,
    OTHER,
    PLAIN,
    A,
    B,
    C,
    D,
    E,
    acknowledged,
    assigned,
    commit_begun,
    commit_failed,
    committed,
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
    told,
)

ISOLATED = replace(EXPECTED, isolated_writes=True)
NOISE = (
    sent(TopicPartition("noise", 0), b"n:0", by="n"),
    Fault("crash", "broker 1"),
    acknowledged(TopicPartition("noise", 0), 0, b"n:0"),
)
"""Nothing of this proves anything."""


@dataclass(frozen=True)
class Case:
    bad: tuple[Event, ...]
    proof: tuple[int, ...]
    """The events of the bad history that show what is wrong."""
    good: tuple[Event, ...]


CASES: dict[Name, Case] = {
    Name.LOST_WRITE: Case(
        (*NOISE, sent(PLAIN, A, B), acknowledged(PLAIN, 0, A, B), final(PLAIN, A)),
        (3, 4, 5),
        (sent(PLAIN, A, B), acknowledged(PLAIN, 0, A), final(PLAIN, A)),
    ),
    Name.DUPLICATE: Case(
        (*NOISE, sent(PLAIN, A, B), acknowledged(PLAIN, 0, A), Fault("retry"), final(PLAIN, A, B, B)),
        (3, 6),
        (sent(PLAIN, A, B), acknowledged(PLAIN, 0, A), final(PLAIN, A, B)),
    ),
    Name.UNSEEN: Case(
        (
            sent(PLAIN, A, B),
            acknowledged(PLAIN, 0, A, B),
            fetched(PLAIN, (0, A)),
            Drained(("c", "d"), (PLAIN, OTHER)),
        ),
        (0, 1, 3),
        (
            sent(PLAIN, A, B),
            acknowledged(PLAIN, 0, A, B),
            fetched(PLAIN, (0, A)),
            polled(PLAIN, (1, B), by="d"),
            Drained(("c", "d"), (PLAIN, OTHER)),
        ),
    ),
    Name.INCONSISTENT_OFFSETS: Case(
        (*NOISE, sent(PLAIN, A, B), acknowledged(PLAIN, 0, A), fetched(PLAIN, (0, B))),
        (3, 4, 5),
        (sent(PLAIN, A, B), acknowledged(PLAIN, 0, A), fetched(PLAIN, (0, A), (1, B))),
    ),
    Name.ABORTED_READ: Case(
        (sent_in("t", PLAIN, A), *NOISE, ended("t", Outcome.ABORTED), polled(PLAIN, (0, A))),
        (0, 4, 5),
        (sent_in("t", PLAIN, A), ended("t", Outcome.ABORTED), fetched(PLAIN, (0, A))),
    ),
    Name.PRECOMMITTED_READ: Case(
        (sent_in("t", PLAIN, A), *NOISE, polled(PLAIN, (0, A)), committing("t"), ended("t")),
        (0, 4),
        (sent_in("t", PLAIN, A), committing("t"), polled(PLAIN, (0, A)), ended("t")),
    ),
    Name.INTERNAL_POLL_SKIP: Case(
        (sent(PLAIN, A, B, C), acknowledged(PLAIN, 0, A, B, C), polled(PLAIN, (0, A), (2, C))),
        (2,),
        (sent(PLAIN, A, B, C), acknowledged(PLAIN, 0, A, B, C), polled(PLAIN, (0, A), (1, B), (2, C))),
    ),
    Name.EXTERNAL_POLL_SKIP: Case(
        (
            sent(PLAIN, A, B, C),
            assigned(PLAIN, 0),
            polled(PLAIN, (0, A)),
            acknowledged(PLAIN, 0, A, B, C),
            polled(PLAIN, (2, C)),
        ),
        (2, 4),
        (
            sent(PLAIN, A, B, C),
            assigned(PLAIN, 0),
            polled(PLAIN, (0, A)),
            assigned(PLAIN, 2),
            polled(PLAIN, (2, C)),
        ),
    ),
    Name.INTERNAL_NONMONOTONIC_POLL: Case(
        (sent(PLAIN, A, B), polled(PLAIN, (0, A), (1, B), (0, A))),
        (1,),
        (sent(PLAIN, A, B), polled(PLAIN, (0, A), (1, B))),
    ),
    Name.EXTERNAL_NONMONOTONIC_POLL: Case(
        (sent(PLAIN, A, B), assigned(PLAIN, 0), polled(PLAIN, (0, A), (1, B)), polled(PLAIN, (1, B))),
        (2, 3),
        (sent(PLAIN, A, B), assigned(PLAIN, 0), polled(PLAIN, (0, A)), polled(PLAIN, (0, A), by="d")),
    ),
    Name.INTERNAL_NONMONOTONIC_SEND: Case(
        (
            sent_in("t", PLAIN, A),
            sent_in("t", PLAIN, B),
            acknowledged(PLAIN, 4, A),
            acknowledged(PLAIN, 3, B),
        ),
        (0, 1, 2, 3),
        (
            sent_in("t", PLAIN, A),
            sent_in("t", PLAIN, B),
            acknowledged(PLAIN, 4, B),
            acknowledged(PLAIN, 3, A),
        ),
    ),
    Name.EXTERNAL_NONMONOTONIC_SEND: Case(
        (sent(PLAIN, A), sent(PLAIN, B), final(PLAIN, B, A)),
        (0, 1, 2),
        (sent(PLAIN, A), sent(PLAIN, B, by="q"), final(PLAIN, B, A)),
    ),
    Name.WRITE_CYCLE: Case(
        (
            *(sent_in("s", PLAIN, A), sent_in("s", OTHER, B)),
            *(sent_in("t", PLAIN, C, by="q"), sent_in("t", OTHER, D, by="q")),
            *(acknowledged(PLAIN, 0, A, C), acknowledged(OTHER, 0, D, B)),
            *(ended("s"), ended("t")),
        ),
        (0, 1, 2, 3, 4, 5, 6, 7),
        (
            *(sent_in("s", PLAIN, A), sent_in("s", OTHER, B)),
            *(sent_in("t", PLAIN, C, by="q"), sent_in("t", OTHER, D, by="q")),
            *(acknowledged(PLAIN, 0, A, C), acknowledged(OTHER, 0, B, D)),
            *(ended("s"), ended("t")),
        ),
    ),
    Name.INFORMATION_CYCLE: Case(
        (
            *(sent_in("s", PLAIN, A), sent_in("t", OTHER, B)),
            *(polled(PLAIN, (0, A), transaction="t"), polled(OTHER, (0, B), transaction="s")),
        ),
        (0, 1, 2, 3),
        (
            *(sent_in("s", PLAIN, A), committing("s"), polled(PLAIN, (0, A), transaction="t")),
            *(sent_in("t", OTHER, B), committing("t"), polled(OTHER, (0, B), transaction="u")),
        ),
    ),
    Name.PHANTOM: Case(
        (sent(OTHER, A), fetched(PLAIN, (0, A))),
        (1,),
        (sent(PLAIN, A), fetched(PLAIN, (0, A))),
    ),
    Name.GAP: Case(
        (sent(PLAIN, A, B), final_records(PLAIN, (0, A), (2, B))),
        (1,),
        (
            *(sent_in("s", PLAIN, A), sent_in("t", PLAIN, B), committing("s"), committing("t")),
            final_records(PLAIN, (0, A), (2, B)),
        ),
    ),
    Name.DOUBLE_PROCESSING: Case(
        (
            *(made_of(E, "s", PLAIN, A), ended("s"), made_of(E, "t", PLAIN, B), ended("t")),
            *(acknowledged(PLAIN, 0, A), acknowledged(PLAIN, 2, B)),
        ),
        (0, 1, 2, 3, 4, 5),
        (
            *(made_of(E, "s", PLAIN, A), ended("s", Outcome.ABORTED), made_of(E, "t", PLAIN, B), ended("t")),
            *(acknowledged(PLAIN, 0, A), acknowledged(PLAIN, 2, B)),
        ),
    ),
    Name.UNPROCESSED: Case(
        (
            *(sent(PLAIN, A), acknowledged(PLAIN, 0, A), sent(PLAIN, B), acknowledged(PLAIN, 1, B)),
            *(made_of(B, "t", OTHER, C), commit_begun(2, transaction="t"), committing("t"), ended("t")),
        ),
        (0, 1, 4, 5, 7),
        (
            *(sent(PLAIN, A), acknowledged(PLAIN, 0, A), sent(PLAIN, B), acknowledged(PLAIN, 1, B)),
            *(made_of(A, "s", OTHER, D), committing("s"), ended("s", Outcome.UNKNOWN)),
            *(made_of(B, "t", OTHER, C), commit_begun(2, transaction="t"), committing("t"), ended("t")),
        ),
    ),
    Name.LOST_COMMIT: Case(
        (*NOISE, *committed(5), *told(NO_OFFSET)),
        (3, 4, 5, 6),
        (*committed(5), *told(5)),
    ),
    Name.BACKWARD_COMMIT: Case(
        (*committed(5), *committed(7, by="d"), *committed(6)),
        (2, 3, 4, 5),
        (*committed(5), *committed(7, by="d"), commit_failed(6, definite=True)),
    ),
    Name.TWO_OUTCOMES: Case(
        (sent_in("t", PLAIN, A), ended("t"), ended("t", Outcome.ABORTED)),
        (1, 2),
        (sent_in("t", PLAIN, A), ended("t", Outcome.UNKNOWN), ended("t", Outcome.ABORTED)),
    ),
    Name.UNASKED_TRIM: Case(
        (sent(PLAIN, A, B), Trimming(OTHER, 1), final(PLAIN, B, start=1)),
        (2,),
        (sent(PLAIN, A, B), Trimming(PLAIN, 1), final(PLAIN, B, start=1)),
    ),
    Name.UNDONE_TRIM: Case(
        (sent(PLAIN, A, B), Trimming(PLAIN, 1), Trimmed(PLAIN, 1), final(PLAIN, A, B)),
        (2, 3),
        (sent(PLAIN, A, B), Trimming(PLAIN, 1), final(PLAIN, A, B)),
    ),
    Name.DIVERGED_REPLICAS: Case(
        (
            FinalReplica(PLAIN, 1, ((0, b"a"),)),
            FinalReplica(PLAIN, 2, ((0, b"a"),)),
            FinalReplica(PLAIN, 3, ((0, b"x"),)),
        ),
        (0, 2),
        (FinalReplica(PLAIN, 1, ((0, b"a"),)), FinalReplica(OTHER, 2, ((0, b"x"),))),
    ),
    Name.BROKEN_RECOVERY: Case(
        (Recovered(PLAIN, 300, 200, False),),
        (0,),
        (Recovered(PLAIN, 300, 200, True),),
    ),
    Name.UNCLEAN_ELECTION: Case(
        (UncleanElection(TopicPartition("safe", 0), 1),),
        (0,),
        (UncleanElection(PLAIN, 1),),
    ),
    Name.SHARED_PRODUCER_ID: Case(
        (ProducerIdGiven("p", 7, 0), ProducerIdGiven("p", 7, 1), ProducerIdGiven("q", 7, 0)),
        (0, 2),
        (ProducerIdGiven("p", 7, 0), ProducerIdGiven("p", 7, 1), ProducerIdGiven("q", 8, 0)),
    ),
    Name.FORGOTTEN_SEQUENCE: Case(
        (UncleanElection(PLAIN, 1), SequenceForgotten("p", 1, PLAIN, 1)),
        (1,),
        (UncleanElection(PLAIN, 1), SequenceForgotten("p", 1, PLAIN, 0)),
    ),
}


@pytest.mark.parametrize("name", Name)
def test_each_anomaly_is_found_with_the_events_that_prove_it(name: Name) -> None:
    case = CASES[name]
    proofs = [
        tuple(moment.at for moment in anomaly.evidence)
        for anomaly in found(*case.bad, expected=ISOLATED)
        if anomaly.name is name
    ]
    assert proofs == [case.proof]


@pytest.mark.parametrize("name", Name)
def test_a_history_in_which_all_is_well_has_no_anomaly(name: Name) -> None:
    assert not found(*CASES[name].good, expected=ISOLATED)


@pytest.mark.parametrize("name", Name)
def test_the_proof_alone_shows_the_anomaly_and_nothing_less_does(name: Name) -> None:
    (anomaly,) = (each for each in found(*CASES[name].bad, expected=ISOLATED) if each.name is name)
    proof = [moment.event for moment in anomaly.evidence]
    assert name in names(*proof, expected=ISOLATED)
    for index in range(len(proof)):
        assert name not in names(*proof[:index], *proof[index + 1 :], expected=ISOLATED)


def test_a_definite_failure_is_read_by_nobody() -> None:
    refused = Failed("p", PLAIN, (A,), definite=True)
    (anomaly,) = found(sent(PLAIN, A), refused, fetched(PLAIN, (0, A)))
    assert anomaly.name is Name.ABORTED_READ
    assert not found(sent(PLAIN, A), replace(refused, definite=False), fetched(PLAIN, (0, A)))


def test_an_anomaly_is_told_with_its_piece_of_history() -> None:
    (anomaly,) = found(sent(PLAIN, A, B, C), acknowledged(PLAIN, UNTOLD, A, B), final(PLAIN, A))
    assert str(anomaly).splitlines() == [
        "lost write: plain-0: lost: p:1, acknowledged without an offset",
        "      0.000000 #0 Sent(producer='p', partition=TopicPartition(topic='plain', partition=0), "
        "values=(b'p:1',), transaction='', sources=())",
        "      1.000000 #1 Acknowledged(producer='p', life=0, partition=TopicPartition(topic='plain', partition=0), "
        "base_offset=-1, values=(b'p:1',))",
        "      2.000000 #2 FinalLog(partition=TopicPartition(topic='plain', partition=0), log_start_offset=0, "
        "records=(), read_committed=False)",
    ]
