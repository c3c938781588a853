"""Subscriptions: patterns as RE2 has them, and the hash that tells whether a group reads something else."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.subscriptions import NO_HASH, compile_pattern, matching_topics, metadata_hash
from barnabas.core.errors import ErrorCode, KafkaError
from tests.unit.coordinator.consumer_groups import topics_of


def test_a_pattern_matches_the_whole_name() -> None:
    names = ["orders", "orders-eu", "my-orders", "order", "commande-été"]
    assert matching_topics("orders.*", names) == {"orders", "orders-eu"}
    assert matching_topics("orders", names) == {"orders"}
    assert matching_topics("order|orders", names) == {"order", "orders"}
    assert matching_topics("[a-z-]+é[a-z]é", names) == {"commande-été"}


@pytest.mark.parametrize("regex", ["[", "(", "*a", r"(?=look)ahead", r"(a)\1", "a{2000}", "(a{1000}){1000}"])
def test_what_is_no_regular_expression_is_said_to_be_none(regex: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        compile_pattern(regex)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert regex in refusal.value.message
    assert matching_topics(regex, ["a", "["]) == frozenset()


@pytest.mark.proof
def test_no_pattern_takes_long() -> None:
    started = time.perf_counter()
    matching_topics("(a|a)*(a|aa)+(.*)*x?y", ["a" * 249] * 200)
    assert time.perf_counter() - started < 2


@given(st.text(max_size=40))
def test_any_text_can_be_asked_for(regex: str) -> None:
    assert matching_topics(regex, ["topic"]) <= {"topic"}


def test_the_hash_tells_of_every_change_of_what_is_read_and_of_nothing_else() -> None:
    topics = topics_of({"a": 3, "b": 1, "other": 5})
    hashed = metadata_hash(["a", "b", "not-there"], topics)
    assert metadata_hash(["b", "a"], topics_of({"b": 1, "a": 3})) == hashed
    assert metadata_hash([], topics) == metadata_hash(["not-there"], topics) == NO_HASH
    remade = dict(topics) | {"a": topics["a"]._replace(id=bytes(16))}
    different = [
        metadata_hash(["a"], topics),
        metadata_hash(["a", "b"], topics_of({"a": 4, "b": 1})),
        metadata_hash(["a", "b"], topics_of({"a": 1, "b": 3})),
        metadata_hash(["a", "b"], remade),
        metadata_hash(["a", "b", "other"], topics),
    ]
    assert len({hashed, NO_HASH, *different}) == 2 + len(different)
    assert all(-(2**63) <= value < 2**63 for value in different)
