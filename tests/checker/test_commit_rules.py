"""What a group may be told that it has committed."""

from __future__ import annotations

from tests.checker.anomaly import Name
from tests.checker.expectations import Expectations
from tests.checker.history import (
    NO_OFFSET,
    CommitsAsked,
    CommitsTold,
    Outcome,
    PowerCut,
    Revoked,
    TopicPartition,
    UncleanElection,
)
from tests.checker.samples import (
    PLAIN,
    A,
    assigned,
    commit_begun,
    commit_done,
    commit_failed,
    committed,
    committing,
    ended,
    found,
    names,
    polled,
    sent_in,
    told,
)

LOST = [Name.LOST_COMMIT]
ASKED, _ = told(0)


def answered(offset: int) -> CommitsTold:
    return told(offset)[1]


def test_a_group_is_told_its_last_commit() -> None:
    assert not found(*told(NO_OFFSET), *committed(3), *told(3), *committed(5), *told(5))
    assert names(*committed(3), *committed(5), *told(3)) == LOST
    assert names(*committed(3), *committed(5), *told(NO_OFFSET)) == LOST


def test_nobody_is_told_what_nobody_has_committed() -> None:
    (anomaly,) = found(*committed(3), *told(4))
    assert (anomaly.name, anomaly.what) == (Name.LOST_COMMIT, "g is at 4, it has committed 3")
    assert names(*told(0)) == LOST
    assert names(*told(3), *committed(3)) == LOST


def test_a_commit_that_is_under_way_may_count_or_not() -> None:
    assert not found(*committed(3), commit_begun(5), *told(3), *told(5))
    assert not found(*committed(3), ASKED, *committed(5), answered(3))
    assert not found(*committed(3), ASKED, *committed(5), answered(5))


def test_a_commit_that_may_have_failed_may_count_at_any_time() -> None:
    doubtful = (*committed(3), commit_begun(5), commit_failed(5, definite=False))
    assert not found(*doubtful, *told(3))
    assert not found(*doubtful, *told(5))
    assert not found(*doubtful, *committed(6), *told(6), *told(5))


def test_a_commit_that_was_sent_again_may_come_once_more() -> None:
    prompt = (*committed(5), *committed(6), *told(5))
    slow = (commit_begun(5), *told(5), commit_done(5), *committed(6), *told(6))
    once_more = (*slow, *told(5))
    assert names(*prompt, expected=Expectations(prompt_s=1)) == LOST
    assert not found(*once_more, expected=Expectations(prompt_s=1))
    assert names(*once_more, expected=Expectations(prompt_s=4)) == LOST
    assert names(*once_more, expected=Expectations(prompt_s=1, late_s=3)) == LOST


def test_a_commit_is_not_late_for_ever() -> None:
    events = (*committed(3), commit_begun(5), commit_failed(5, definite=False), *committed(6))
    assert not found(*events, *told(5), expected=Expectations(late_s=3))
    assert names(*events, *told(5), expected=Expectations(late_s=2)) == LOST
    assert not found(*events, *committed(5, by="d"), expected=Expectations(late_s=3))
    assert names(*events, *committed(5, by="d"), expected=Expectations(late_s=2)) == [Name.BACKWARD_COMMIT]


def test_a_commit_that_was_given_up_may_lag_a_little() -> None:
    events = (*committed(3), commit_begun(5), commit_failed(5, definite=False), *committed(6), *told(5))
    assert not found(*events)
    assert not found(*events, expected=Expectations(lag_s=2))
    assert names(*events, expected=Expectations(lag_s=1)) == LOST
    assert names(*events, expected=Expectations(lag_s=2, late_s=2)) == LOST


def test_a_commit_that_was_refused_does_not_count() -> None:
    refused = (*committed(3), commit_begun(5), commit_failed(5, definite=True))
    assert not found(*refused, *told(3))
    assert names(*refused, *told(5)) == LOST


def test_the_commit_of_a_transaction_counts_when_that_is_committed() -> None:
    begun = (*committed(3), commit_begun(4, transaction="t"), commit_begun(5, transaction="t"))
    assert not found(*begun, ended("t"), *told(5))
    assert names(*begun, ended("t"), *told(3)) == LOST
    assert names(*begun, ended("t"), *told(4)) == LOST
    assert not found(*begun, ended("t", Outcome.ABORTED), *told(3))
    assert names(*begun, ended("t", Outcome.ABORTED), *told(5)) == LOST
    assert not found(*begun, ended("t", Outcome.UNKNOWN), *told(3), *told(5))


def test_a_transaction_of_which_something_was_seen_has_committed_its_offsets() -> None:
    seen = (sent_in("t", PLAIN, A), commit_begun(5, transaction="t"), committing("t"), polled(PLAIN, (0, A)))
    assert not found(*seen, *told(5))
    assert names(*seen, *told(NO_OFFSET)) == LOST


def test_partitions_and_groups_have_offsets_of_their_own() -> None:
    elsewhere = TopicPartition("plain", 1)
    assert not found(*committed(3), ASKED, CommitsTold("o", "g", ((elsewhere, NO_OFFSET),)))
    assert not found(*committed(3), CommitsAsked("o", "h", (PLAIN,)), CommitsTold("o", "h", ((PLAIN, NO_OFFSET),)))


def test_the_commit_of_a_member_that_others_have_replaced_is_not_taken() -> None:
    by_another = committed(7, by="d")
    assert names(*committed(5), *by_another, *committed(6)) == [Name.BACKWARD_COMMIT]
    assert not found(*committed(5), *by_another, commit_begun(6), commit_failed(6, definite=True))
    assert not found(*committed(5), commit_begun(6), *by_another, commit_done(6))  # they were under way together


def test_where_members_count_no_number_is_taken_twice() -> None:
    counting = Expectations(counting_groups={"g"})
    twice = (*committed(5), *committed(6), *committed(6, by="d"))
    assert not found(*twice)  # to commit the same again is no mistake elsewhere
    (anomaly,) = found(*twice, expected=counting)
    assert (anomaly.name, anomaly.what) == (Name.BACKWARD_COMMIT, "g took 6 twice")
    assert [moment.at for moment in anomaly.evidence] == [2, 3, 4, 5]
    assert not found(*committed(5), *committed(6), *committed(7, by="d"), expected=counting)
    assert not found(commit_begun(6), *committed(6, by="d"), commit_done(6), expected=counting)  # together under way
    late = (commit_begun(5), commit_failed(5, definite=False))
    assert not found(*late, *twice, expected=counting)  # and read in between
    late_itself = (commit_begun(6), commit_failed(6, definite=False))
    assert names(*late_itself, *twice, expected=counting) == [Name.BACKWARD_COMMIT]


def test_the_commit_of_a_partition_that_its_member_had_lost_says_nothing() -> None:
    course = (assigned(PLAIN, group="g"), *committed(5), Revoked("c", (PLAIN,)), *committed(7, by="d"))
    assert not found(*course, *committed(6), *told(6))
    assert not found(*course, *committed(6), *told(7))
    assert names(*course, assigned(PLAIN, group="g"), *committed(6)) == [Name.BACKWARD_COMMIT]


def test_members_may_go_back_to_a_commit_that_was_late() -> None:
    late = (commit_begun(5), commit_failed(5, definite=False))
    assert not found(*late, *committed(7, by="d"), *told(5), *committed(6, by="e"))
    assert names(*late, *committed(7, by="d"), *committed(4, by="e")) == [Name.BACKWARD_COMMIT]


def test_a_power_cut_or_an_unclean_election_may_take_commits_back() -> None:
    offsets = TopicPartition("__consumer_offsets", 0)
    for fault in (PowerCut(1), UncleanElection(offsets, 1)):
        assert not found(*committed(5), fault, *told(NO_OFFSET), *committed(2), *told(2))
        assert not found(commit_begun(5), fault, commit_done(5), *told(NO_OFFSET))
    other = UncleanElection(TopicPartition("other", 0), 1)
    assert names(*committed(5), other, *told(NO_OFFSET)) == LOST


def test_after_an_unclean_election_members_may_have_to_begin_again() -> None:
    assert not found(*committed(5), UncleanElection(PLAIN, 1), *committed(2))
