"""Decisions keep what a later driver needs, and say of each work whether it is done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from barnabas.client.produce.open_transaction import OpenTransaction
from barnabas.spark.decisions import Decision, Work
from barnabas.spark.two_phases import task_id, task_id_pattern

LEFT = (OpenTransaction("p-0-0-0-1", 7, 3), OpenTransaction("p-1-0-0-1", 8, 0))
works = some.builds(Work, some.text(), some.none() | some.integers(0, 2**40), some.booleans())
transactions = some.builds(OpenTransaction, some.text(), some.integers(0, 2**62), some.integers(0, 2**15 - 1))


@given(some.builds(Decision, works, some.lists(transactions).map(tuple), some.lists(some.text()).map(tuple)))
def test_a_decision_is_read_as_it_was_written(decision: Decision) -> None:
    found = Decision.from_json(decision.to_json())
    assert found == decision
    assert found.work.is_remembered == decision.work.is_remembered


def test_a_decision_of_a_later_format_is_not_guessed_at() -> None:
    text = Decision(Work("q", 1)).to_json().replace(b'"format":1', b'"format":2')
    with pytest.raises(ValueError, match="a decision of format 2, which a later version wrote"):
        Decision.from_json(text)


def test_a_decision_is_finished_when_nothing_is_left_to_commit() -> None:
    decision = Decision(Work("q", 1), LEFT)
    assert not decision.is_finished
    assert decision.finished().is_finished
    assert decision.finished().covers(Work("q", 1))


def test_a_batch_of_a_query_is_covered_until_the_next_one() -> None:
    first = Decision(Work("q", 1))
    assert first.covers(Work("q", 1))
    assert not first.covers(Work("q", 2))
    assert not first.covers(Work("another", 1))
    assert not first.followed_by(Work("q", 2), LEFT).covers(Work("q", 1))


def test_a_named_write_is_covered_for_a_thousand_writes_more() -> None:
    decision = Decision(Work("monday", is_remembered=True))
    for number in range(1000):
        decision = decision.followed_by(Work(f"write {number}", is_remembered=True), ())
        assert decision.covers(Work("monday"))
    assert not decision.followed_by(Work("one too many", is_remembered=True), ()).covers(Work("monday"))


def test_writes_without_a_name_are_not_kept() -> None:
    decision = Decision(Work("by chance")).followed_by(Work("q", 1), LEFT)
    assert decision.earlier == ()
    assert decision.transactions == LEFT


def test_ids_of_tasks_are_told_from_those_of_other_prefixes() -> None:
    ours = task_id("a.b", 12, 0, 3, 7)
    assert ours == "a.b-12-0-3-1"
    assert task_id("a.b", 12, 0, 3, None) == task_id("a.b", 12, 0, 3, 8) == "a.b-12-0-3-0"
    assert task_id_pattern("a.b").fullmatch(ours)
    for other in ("axb-12-0-3-1", "a.b-c-12-0-3-1", "a.b-1-12-0-3-1", "a.b-decisions", "a.b"):
        assert not task_id_pattern("a.b").fullmatch(other)
