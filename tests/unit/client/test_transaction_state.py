"""A transactional producer knows what it may do, and what an answer means for it."""

from __future__ import annotations

import pytest

from barnabas.client.metadata import TopicPartition
from barnabas.client.produce.identity import ProducerIdentity
from barnabas.client.produce.open_transaction import OpenTransaction
from barnabas.client.produce.transaction_errors import (
    NoTransaction,
    OutcomeUnknown,
    ProducerFenced,
    ProducerUnusable,
    TransactionAborted,
)
from barnabas.client.produce.transaction_state import Phase, TransactionState
from barnabas.core.errors import ErrorCode, KafkaError

FIRST = ProducerIdentity(7, 0)
NEXT = ProducerIdentity(7, 1)
PLACE = TopicPartition("orders", 3)


def open_transaction(version: int) -> TransactionState:
    state = TransactionState("id")
    state.identified(FIRST, version)
    state.begin()
    return state


def test_records_need_an_open_transaction() -> None:
    state = TransactionState("id")
    with pytest.raises(NoTransaction, match="has no producer id"):
        state.check_open()
    state.identified(FIRST, 2)
    with pytest.raises(NoTransaction, match="inside of `async with producer"):
        state.check_open()
    state.begin()
    state.check_open()
    with pytest.raises(NoTransaction, match="has a transaction open; one at a time"):
        state.begin()
    state.commit()
    with pytest.raises(NoTransaction, match="is committing"):
        state.check_open()


def test_version_1_tells_the_coordinator_of_a_partition_before_it_is_written() -> None:
    state = open_transaction(1)
    assert not state.may_write(PLACE)
    assert state.to_add() == [PLACE]
    state.added([PLACE])
    assert state.may_write(PLACE)
    assert state.to_add() == []
    state.commit()
    assert state.may_write(PLACE)
    state.ended(None, committed=True)
    state.begin()
    assert not state.may_write(PLACE)


def test_version_2_writes_at_once() -> None:
    state = open_transaction(2)
    assert not state.coordinator_must_know
    assert state.may_write(PLACE)
    assert state.to_add() == []
    assert state.coordinator_must_know


def test_nothing_is_written_outside_of_a_transaction() -> None:
    state = TransactionState("id")
    state.identified(FIRST, 2)
    assert not state.may_write(PLACE)
    state.begin()
    state.abort()
    assert not state.may_write(PLACE)
    assert state.to_add() == []


def test_the_epoch_that_an_end_brings_is_the_next_transactions() -> None:
    state = open_transaction(2)
    state.may_write(PLACE)
    state.abort()
    state.ended(NEXT, committed=False)
    assert (state.phase, state.identity) == (Phase.READY, NEXT)
    state.begin()
    assert not state.coordinator_must_know


@pytest.mark.parametrize(
    ("wrote", "committed", "phase"),
    [(True, True, Phase.READY), (True, False, Phase.NEW), (False, False, Phase.READY)],
)
def test_without_a_next_epoch_an_abort_needs_one(wrote: bool, committed: bool, phase: Phase) -> None:
    state = open_transaction(1)
    if wrote:
        state.will_write()
    state.commit() if committed else state.abort()
    state.ended(None, committed=committed)
    assert (state.phase, state.identity) == (phase, FIRST)


@pytest.mark.parametrize("committing", [False, True])
def test_a_transaction_that_lost_a_record_can_only_be_aborted(committing: bool) -> None:
    state = open_transaction(2)
    if committing:
        state.commit()
    state.record_lost(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large"))
    assert state.phase is Phase.FAILED
    assert not state.may_write(PLACE)
    with pytest.raises(TransactionAborted, match="cannot be committed: too large"):
        state.check_open()
    with pytest.raises(TransactionAborted):
        state.commit()
    state.abort()
    state.ended(NEXT, committed=False)
    state.begin()
    state.check_open()


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_producer_that_its_coordinator_fences_is_unusable_for_good(code: ErrorCode) -> None:
    state = open_transaction(2)
    state.refused(KafkaError(code))
    for attempt in (state.check_open, state.begin, state.commit, state.abort):
        with pytest.raises(ProducerFenced, match="another producer with this transactional_id") as caught:
            attempt()
        assert not caught.value.retriable
    assert not state.may_write(PLACE)


def test_a_leader_that_calls_the_epoch_old_leaves_the_judgement_to_the_coordinator() -> None:
    state = open_transaction(2)
    state.record_lost(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert state.phase is Phase.FAILED
    state.record_lost(KafkaError(ErrorCode.PRODUCER_FENCED))
    assert not state.is_usable


def test_what_is_forbidden_makes_the_producer_unusable_and_says_why() -> None:
    state = TransactionState("id")
    state.refused(KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no right to it"))
    with pytest.raises(ProducerUnusable, match="no right to it; close it and make a new one"):
        state.check_usable()


def test_a_refusal_that_an_abort_cures_fails_the_transaction() -> None:
    state = open_transaction(2)
    state.refused(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "lost the race"))
    assert state.phase is Phase.FAILED


def test_an_expired_id_has_nothing_to_end_and_is_asked_for_anew() -> None:
    state = open_transaction(2)
    state.may_write(PLACE)
    state.refused(KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    state.abort()
    assert not state.coordinator_must_know
    state.ended(None, committed=False)
    assert state.phase is Phase.NEW


def test_a_commit_that_nobody_answered_ends_the_producer_without_a_lie() -> None:
    state = open_transaction(2)
    state.commit()
    state.commit_unknown(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer"))
    with pytest.raises(OutcomeUnknown, match=r"whether its transaction is committed is not known \(no answer\)") as e:
        state.check_usable()
    assert not e.value.retriable


def test_a_transaction_that_is_left_open_is_told_by_its_identity_and_ends_the_producers_work() -> None:
    state = open_transaction(2)
    assert state.may_write(PLACE)
    state.commit()
    assert state.leave_open() == OpenTransaction("id", *FIRST)
    with pytest.raises(NoTransaction, match="has left its transaction open, for somebody else to end"):
        state.begin()
    assert not state.may_write(PLACE)


def test_a_transaction_without_records_is_not_left_open() -> None:
    state = open_transaction(2)
    state.commit()
    assert state.leave_open() is None
    state.begin()
