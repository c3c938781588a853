"""What a consumer may leave out, see again, or never see, and when."""

from __future__ import annotations

from dataclasses import replace

from tests.checker.anomaly import Name
from tests.checker.history import (
    Drained,
    Event,
    Outcome,
    Revoked,
    TopicPartition,
    Trimming,
    UncleanElection,
)
from tests.checker.samples import (
    EXPIRING,
    PLAIN,
    A,
    B,
    C,
    D,
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
    names,
    polled,
    sent,
    sent_in,
)

SKIP = [Name.EXTERNAL_POLL_SKIP]
WRITTEN = (sent(PLAIN, A, B, C), acknowledged(PLAIN, 0, A, B, C))


def test_a_fetch_begins_where_it_was_asked_to() -> None:
    assert names(*WRITTEN, fetched(PLAIN, (1, B), start=0)) == [Name.INTERNAL_POLL_SKIP]
    assert names(*WRITTEN, fetched(PLAIN, (1, B), start=2)) == [Name.INTERNAL_NONMONOTONIC_POLL]
    assert not found(*WRITTEN, fetched(PLAIN, (2, C)), fetched(PLAIN, (0, A)))


def test_a_consumer_begins_where_it_was_assigned() -> None:
    assert names(*WRITTEN, assigned(PLAIN, 1), polled(PLAIN, (2, C))) == SKIP
    assert names(*WRITTEN, assigned(PLAIN, 1), polled(PLAIN, (0, A))) == [Name.EXTERNAL_NONMONOTONIC_POLL]
    assert not found(*WRITTEN, assigned(PLAIN, 1), polled(PLAIN, (1, B)), polled(PLAIN, (2, C)))


def test_a_consumer_that_lost_its_partition_may_go_on_elsewhere() -> None:
    assert not found(*WRITTEN, polled(PLAIN, (0, A)), Revoked("c", (PLAIN,)), polled(PLAIN, (2, C)))


def test_after_an_unclean_election_a_consumer_may_go_on_elsewhere() -> None:
    election = UncleanElection(PLAIN, 1)
    after = replace(polled(PLAIN, (0, A)), life=1)
    assert not found(*WRITTEN, polled(PLAIN, (0, A), (1, B)), election, after)
    assert not found(*WRITTEN, election, polled(PLAIN, (0, A), (1, B)), after)


def test_what_was_deleted_may_be_left_out_between_two_polls() -> None:
    polls = (polled(PLAIN, (0, A)), polled(PLAIN, (2, C)))
    assert names(*WRITTEN, polls[0], Trimming(PLAIN, 1), polls[1]) == SKIP
    assert not found(*WRITTEN, polls[0], Trimming(PLAIN, 2), polls[1])
    assert not found(sent(EXPIRING, A, B, C), polled(EXPIRING, (0, A)), polled(EXPIRING, (2, C)))


# among transactions


def transactional(outcome: Outcome) -> tuple[Event, ...]:
    """A and D of one transaction, B of another one, whose outcome is asked for."""
    return (
        *(sent_in("s", PLAIN, A), sent_in("t", PLAIN, B, by="q"), sent_in("s", PLAIN, D)),
        *(acknowledged(PLAIN, 0, A, B), acknowledged(PLAIN, 3, D)),
        *(committing("s"), ended("s"), committing("t"), ended("t", outcome)),
    )


def test_what_is_not_committed_is_left_out_and_so_are_markers() -> None:
    for outcome in (Outcome.ABORTED, Outcome.UNKNOWN):
        assert not found(*transactional(outcome), polled(PLAIN, (0, A), (3, D)))
        assert not found(*transactional(outcome), assigned(PLAIN, 0), polled(PLAIN, (0, A)), polled(PLAIN, (3, D)))


def test_what_is_committed_may_not_be_left_out() -> None:
    events = transactional(Outcome.COMMITTED)
    assert not found(*events, polled(PLAIN, (0, A), (1, B), (3, D)))
    (anomaly,) = found(*events, polled(PLAIN, (0, A), (3, D)))
    assert anomaly.name is Name.INTERNAL_POLL_SKIP
    assert [moment.at for moment in anomaly.evidence] == [1, 3, 8, 9]
    assert names(*events, polled(PLAIN, (0, A)), polled(PLAIN, (3, D))) == SKIP


def test_who_reads_everything_leaves_out_nothing_that_is_known_to_be_there() -> None:
    events = transactional(Outcome.ABORTED)
    assert not found(*events, fetched(PLAIN, (0, A), (1, B), (3, D)))
    assert names(*events, fetched(PLAIN, (0, A), (3, D))) == [Name.INTERNAL_POLL_SKIP]


# groups


def test_a_member_begins_where_its_group_has_committed() -> None:
    start = assigned(PLAIN, group="g", by="d")
    assert not found(*WRITTEN, *committed(2), start, polled(PLAIN, (2, C), by="d"))
    for offset, value in ((0, A), (1, B)):
        assert names(*WRITTEN, *committed(2), start, polled(PLAIN, (offset, value), by="d")) == [
            Name.EXTERNAL_NONMONOTONIC_POLL
        ]
    assert names(*WRITTEN, *committed(1), start, polled(PLAIN, (2, C), by="d")) == SKIP


def test_a_member_begins_at_the_beginning_if_nothing_is_committed() -> None:
    start = assigned(PLAIN, group="g")
    assert not found(*WRITTEN, start, polled(PLAIN, (0, A)))
    assert names(*WRITTEN, start, polled(PLAIN, (1, B))) == SKIP
    assert not found(*WRITTEN, Trimming(PLAIN, 1), start, polled(PLAIN, (1, B)))


def test_a_member_may_begin_where_a_commit_may_have_succeeded() -> None:
    start = assigned(PLAIN, group="g", by="d")
    tried = (*committed(1), commit_begun(2), commit_failed(2, definite=False), start)
    assert not found(*WRITTEN, *tried, polled(PLAIN, (1, B), by="d"))
    assert not found(*WRITTEN, *tried, polled(PLAIN, (2, C), by="d"))
    assert names(*WRITTEN, *tried, polled(PLAIN, (0, A), by="d")) == [Name.EXTERNAL_NONMONOTONIC_POLL]


def test_a_member_begins_after_what_a_transaction_has_committed() -> None:
    start = assigned(PLAIN, group="g", by="d")
    in_transaction = commit_begun(2, transaction="t")
    after_it, from_the_beginning = polled(PLAIN, (2, C), by="d"), polled(PLAIN, (0, A), by="d")
    assert not found(*WRITTEN, in_transaction, ended("t"), start, after_it)
    assert names(*WRITTEN, in_transaction, ended("t"), start, from_the_beginning)
    assert not found(*WRITTEN, in_transaction, ended("t", Outcome.ABORTED), start, from_the_beginning)
    assert names(*WRITTEN, in_transaction, ended("t", Outcome.ABORTED), start, after_it) == SKIP


# unseen


DRAINED = Drained(("c",), (PLAIN,))


def test_what_is_lost_is_not_called_unseen() -> None:
    events = (*WRITTEN, fetched(PLAIN, (0, A)), DRAINED)
    assert names(*events) == [Name.UNSEEN]
    assert names(*events, final(PLAIN, A)) == [Name.LOST_WRITE]


def test_what_is_only_found_at_the_end_is_unseen_as_well() -> None:
    events = (sent(PLAIN, A, B), fetched(PLAIN, (0, A)), DRAINED)
    assert not found(*events, final(PLAIN, A))
    (anomaly,) = found(*events, final(PLAIN, A, B))
    assert (anomaly.name, anomaly.what) == (Name.UNSEEN, "p:1 at 1 was not seen by c")


def test_nobody_need_see_what_was_aborted_or_deleted() -> None:
    aborted = (sent_in("t", PLAIN, A), acknowledged(PLAIN, 0, A), ended("t", Outcome.ABORTED))
    assert not found(*aborted, DRAINED, final_records(PLAIN))
    assert not found(*WRITTEN, Trimming(PLAIN, 3), DRAINED)
    assert names(*WRITTEN, Trimming(PLAIN, 2), DRAINED) == [Name.UNSEEN]


def test_others_and_other_partitions_do_not_count() -> None:
    assert names(*WRITTEN, fetched(PLAIN, (0, A), (1, B), (2, C)), Drained(("d",), (PLAIN,))) == [Name.UNSEEN]
    assert not found(*WRITTEN, Drained(("c",), (TopicPartition("plain", 1),)))
