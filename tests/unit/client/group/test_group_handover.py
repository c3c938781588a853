"""Changes pass from the membership to its caller one at a time."""

from __future__ import annotations

import pytest

from barnabas.client.group.handover import Handover
from barnabas.client.group.values import Change, GroupMetadata
from barnabas.client.metadata import TopicPartition

FIRST, SECOND = Change(revoked=(TopicPartition("t", 0),)), Change(lost=(TopicPartition("t", 0),))


def handover() -> tuple[Handover, list[str]]:
    calls: list[str] = []
    return Handover(GroupMetadata("g"), 0.0, lambda: calls.append("woken")), calls


def test_a_change_that_is_not_taken_may_be_replaced_or_withdrawn() -> None:
    shared, calls = handover()
    shared.offer(FIRST)
    shared.offer(FIRST)
    assert calls == ["woken"]
    shared.offer(SECOND)
    assert shared.take() is SECOND
    shared.give_back(SECOND)
    shared.offer(FIRST)
    shared.offer(None)
    assert shared.take() is None


def test_a_change_that_is_taken_stands_until_it_is_done() -> None:
    shared, _ = handover()
    shared.offer(FIRST)
    assert shared.take() is FIRST
    shared.offer(SECOND)
    assert shared.take() is None
    assert shared.collect_done() == []
    shared.give_back(FIRST)
    assert not shared.busy
    assert shared.collect_done() == [FIRST]
    assert shared.collect_done() == []


def test_only_the_change_that_was_taken_can_be_done() -> None:
    shared, _ = handover()
    with pytest.raises(ValueError, match="not the one that was taken"):
        shared.give_back(FIRST)
