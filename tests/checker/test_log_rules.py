"""What may go, come twice or change in a log, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.checker.anomaly import Name
from tests.checker.expectations import Expectations
from tests.checker.history import (
    UNTOLD,
    Fault,
    FinalReplica,
    Outcome,
    PowerCut,
    ProducerIdGiven,
    Recovered,
    SentAgain,
    SequenceForgotten,
    Trimmed,
    Trimming,
    UncleanElection,
)
from tests.checker.samples import (
    EXPECTED,
    EXPIRING,
    OTHER,
    PLAIN,
    SYNCED,
    A,
    B,
    C,
    acknowledged,
    committing,
    ended,
    fetched,
    final,
    final_records,
    found,
    names,
    polled,
    sent,
    sent_in,
)

LOST = [Name.LOST_WRITE]


def test_a_history_without_fault_is_fine() -> None:
    assert not found(
        ProducerIdGiven("p", 7, 0),
        sent(PLAIN, A, B),
        sent(PLAIN, C),
        acknowledged(PLAIN, 0, A, B),
        fetched(PLAIN, (0, A), (1, B), (2, C)),
        Fault("crash"),
        Recovered(PLAIN, 300, 300, True),
        acknowledged(PLAIN, 2, C),
        final(PLAIN, A, B, C),
    )


def test_a_value_that_is_sent_twice_is_a_mistake_of_the_harness() -> None:
    with pytest.raises(ValueError, match="values must be unique"):
        found(sent(PLAIN, A), sent(OTHER, A))


# lost writes


def test_an_acknowledged_record_that_a_crash_takes_is_lost() -> None:
    (anomaly,) = found(sent(PLAIN, A, B), acknowledged(PLAIN, 0, A, B), Fault("crash"), final(PLAIN))
    assert (anomaly.what, anomaly.others) == ("lost: p:0 at 0", 1)


def test_a_record_that_vanishes_from_the_middle_is_lost() -> None:
    events = (sent_in("t", PLAIN, A, B, C), acknowledged(PLAIN, 0, A, B, C), ended("t"))
    (anomaly,) = found(*events, final_records(PLAIN, (0, A), (2, C)))
    assert (anomaly.name, anomaly.what) == (Name.LOST_WRITE, "lost: p:1 at 1")
    assert "records=((0, b'p:0'), (2, b'p:2'))" in str(anomaly)  # what is there instead


def test_a_record_that_was_read_may_not_vanish_either() -> None:
    assert names(sent(PLAIN, A), fetched(PLAIN, (0, A)), final(PLAIN)) == LOST


def test_a_record_in_whose_place_another_one_is_is_lost() -> None:
    for acknowledgements in ((acknowledged(PLAIN, 0, A),), (acknowledged(PLAIN, 0, B), acknowledged(PLAIN, 0, A))):
        (lost, other) = found(sent(PLAIN, A, B), *acknowledgements, final(PLAIN, B))
        assert {lost.name, other.name} == {Name.LOST_WRITE, Name.INCONSISTENT_OFFSETS}


def test_a_record_of_which_no_offset_was_told_must_be_somewhere() -> None:
    events = (sent(PLAIN, A, B), acknowledged(PLAIN, 0, A), acknowledged(PLAIN, UNTOLD, B))
    assert not found(*events, final(PLAIN, A, B))
    assert names(*events, final(PLAIN, A)) == LOST
    assert not found(*events, Trimming(PLAIN, 2), final(PLAIN, start=2))


def test_the_records_of_a_transaction_are_lost_only_if_it_is_committed() -> None:
    events = (sent_in("t", PLAIN, A, B), acknowledged(PLAIN, 0, A, B))
    assert names(*events, ended("t"), final(PLAIN)) == LOST
    assert not found(*events, ended("t", Outcome.ABORTED), final(PLAIN))
    assert not found(*events, ended("t", Outcome.UNKNOWN), final(PLAIN))


def test_a_transaction_that_somebody_has_seen_is_committed_as_a_whole() -> None:
    events = (sent_in("t", PLAIN, A, B), acknowledged(PLAIN, 0, A, B), committing("t"), ended("t", Outcome.UNKNOWN))
    assert names(*events, final_records(PLAIN, (0, A))) == LOST
    assert names(*events, polled(PLAIN, (0, A), (1, B)), final_records(PLAIN)) == LOST


def test_what_a_hasty_producer_is_told_promises_nothing() -> None:
    events = (sent(PLAIN, A), acknowledged(PLAIN, 0, A), final(PLAIN))
    assert found(*events)
    assert not found(*events, expected=Expectations(hasty_producers={"p"}))


# power cuts and unclean elections


def test_a_power_cut_may_take_what_was_not_synced() -> None:
    assert not found(sent(PLAIN, A), acknowledged(PLAIN, 0, A), PowerCut(1), final(PLAIN))
    assert not found(sent(PLAIN, A), PowerCut(1), acknowledged(PLAIN, 0, A, life=0), final(PLAIN))


def test_a_power_cut_may_not_take_what_was_synced() -> None:
    assert names(sent(SYNCED, A), acknowledged(SYNCED, 0, A), PowerCut(1), final(SYNCED)) == LOST


def test_what_was_acknowledged_after_the_power_cut_counts() -> None:
    assert names(sent(PLAIN, A), PowerCut(1), acknowledged(PLAIN, 0, A, life=1), final(PLAIN)) == LOST


def test_an_offset_may_have_other_content_after_a_power_cut_only_if_it_was_not_synced() -> None:
    assert not found(sent(PLAIN, A, B), fetched(PLAIN, (0, A)), PowerCut(1), fetched(PLAIN, (0, B), life=1))
    events = (sent(SYNCED, A, B), fetched(SYNCED, (0, A)), PowerCut(1), fetched(SYNCED, (0, B), life=1))
    assert names(*events) == [Name.INCONSISTENT_OFFSETS]


def test_an_unclean_election_excuses_what_the_new_leader_does_not_have() -> None:
    events = (sent(PLAIN, A, B), acknowledged(PLAIN, 0, A))
    assert not found(*events, UncleanElection(PLAIN, 1), final(PLAIN))
    assert not found(*events, UncleanElection(PLAIN, 1), acknowledged(PLAIN, 5, B, life=0), final(PLAIN))
    assert names(*events, UncleanElection(SYNCED, 1), final(PLAIN)) == LOST
    assert names(*events, UncleanElection(PLAIN, 1), acknowledged(PLAIN, 0, B, life=1), final(PLAIN)) == LOST


def test_after_an_unclean_election_a_follower_may_give_out_what_its_leader_does_not_have() -> None:
    before, at_the_end = (sent(PLAIN, A, B), UncleanElection(PLAIN, 1)), final(PLAIN, B)
    by_leader = fetched(PLAIN, (0, A), life=1)
    by_follower = replace(by_leader, from_any_replica=True)
    assert names(*before, by_leader, at_the_end) == [Name.LOST_WRITE, Name.INCONSISTENT_OFFSETS]
    assert not found(*before, by_follower, at_the_end)


def test_a_leader_that_was_elected_uncleanly_may_bring_back_what_was_deleted_before() -> None:
    events, at_the_end = (sent(PLAIN, A, B), Trimming(PLAIN, 1)), final(PLAIN, A, B)
    trimmed, election = Trimmed(PLAIN, 1), UncleanElection(PLAIN, 1)
    assert not found(*events, trimmed, election, at_the_end)
    assert not found(*events, election, trimmed, at_the_end)
    assert names(*events, trimmed, UncleanElection(OTHER, 1), at_the_end) == [Name.UNDONE_TRIM]
    assert names(*events, election, Trimming(PLAIN, 1), trimmed, at_the_end) == [Name.UNDONE_TRIM]


def test_a_broker_may_forget_sequences_only_after_a_power_cut_that_took_the_log() -> None:
    assert not found(PowerCut(1), SequenceForgotten("p", 1, PLAIN, 0))
    assert found(SequenceForgotten("p", 0, PLAIN, 0))
    assert found(PowerCut(1), SequenceForgotten("p", 1, SYNCED, 0))


def test_a_producer_that_was_forgotten_after_an_unclean_election_may_have_sent_twice() -> None:
    twice = (sent(PLAIN, A, B), SequenceForgotten("p", 1, PLAIN, 0), final(PLAIN, B, A, B))
    assert not found(UncleanElection(PLAIN, 1), *twice)
    assert found(UncleanElection(SYNCED, 1), *twice)


def test_what_a_producer_has_sent_again_itself_may_be_there_as_often() -> None:
    events = (sent(PLAIN, A, B), final(PLAIN, A, B, A, B))
    assert found(*events, SentAgain(PLAIN, (2,)))
    assert found(*events, SentAgain(OTHER, (2, 3)))
    assert not found(*events, SentAgain(PLAIN, (2, 3)))


# order


def test_only_idempotent_producers_are_held_to_once_and_in_order() -> None:
    for there in ((A, A, B), (B, A)):
        events = (sent(PLAIN, A, B), final(PLAIN, *there))
        assert len(found(*events)) == 1
        assert not found(*events, expected=Expectations())


def test_a_record_that_is_acknowledged_elsewhere_than_it_is_read_is_there_twice() -> None:
    events = (sent(PLAIN, A, B), acknowledged(PLAIN, 1, A), fetched(PLAIN, (0, A)))
    assert names(*events) == [Name.DUPLICATE]


def test_the_order_of_two_transactions_is_that_of_their_producer() -> None:
    events = (sent_in("s", PLAIN, A), sent_in("t", PLAIN, B), acknowledged(PLAIN, 2, A), acknowledged(PLAIN, 0, B))
    assert names(*events) == [Name.EXTERNAL_NONMONOTONIC_SEND]


# deletions


def test_records_go_from_the_beginning_only_when_they_are_deleted() -> None:
    events = (sent(PLAIN, A, B, C), acknowledged(PLAIN, 0, A, B, C))
    assert not found(*events, Trimming(PLAIN, 2), Trimmed(PLAIN, 2), final(PLAIN, C, start=2))
    assert not found(*events, Trimming(PLAIN, 2), final(PLAIN, C, start=2))
    trimmed_less = (Trimming(PLAIN, 1), Trimmed(PLAIN, 1), final(PLAIN, C, start=2))
    assert names(*events, *trimmed_less) == [Name.UNASKED_TRIM]


def test_the_records_of_an_expiring_topic_may_go_by_themselves() -> None:
    events = (sent(EXPIRING, A, B, C), acknowledged(EXPIRING, 0, A, B, C))
    assert not found(*events, final(EXPIRING, C, start=2))
    assert names(*events, final(EXPIRING, start=2)) == LOST


def test_deleted_records_do_not_come_back() -> None:
    events = (sent(PLAIN, A, B, C), acknowledged(PLAIN, 0, A, B, C), Trimming(PLAIN, 2), Trimmed(PLAIN, 2))
    (anomaly,) = found(*events, PowerCut(1), final(PLAIN, B, C, start=1))
    assert anomaly.what == "deleted up to 2, but begins at 1"


# replicas


def test_replicas_have_the_same_batches() -> None:
    first = FinalReplica(PLAIN, 1, ((0, b"a"), (2, b"b"), (3, b"c")))
    assert not found(first, replace(first, broker_id=2), FinalReplica(SYNCED, 2, ()))
    (anomaly,) = found(first, FinalReplica(PLAIN, 2, ((0, b"a"), (2, b"x"), (3, b"c"))))
    assert anomaly.what == "brokers 1 and 2 diverge: at 2"
    (anomaly,) = found(first, FinalReplica(PLAIN, 2, first.batches[:2]))
    assert anomaly.what == "brokers 1 and 2 diverge: 2 batches where 3 are"


def test_replicas_may_begin_at_different_segments_below_what_was_deleted() -> None:
    first = FinalReplica(PLAIN, 1, ((0, b"a"), (2, b"b"), (3, b"c")))
    assert not found(Trimming(PLAIN, 2), first, FinalReplica(PLAIN, 2, first.batches[1:]))
    assert found(first, FinalReplica(PLAIN, 2, first.batches[1:]))


def test_an_unclean_election_of_a_safe_topic_is_one_too_many() -> None:
    assert names(UncleanElection(PLAIN, 1), expected=replace(EXPECTED, safe_topics={"plain"})) == [
        Name.UNCLEAN_ELECTION
    ]
