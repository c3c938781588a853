"""DescribeTransactions and ListTransactions: what tools see of transactions, and how they ask for some of them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from barnabas.wire.messages.k66_list_transactions import ListTransactionsRequest
from tests.broker.transactional import (
    TRANSACTION,
    TransactionalProducer,
    describe,
    find_coordinator,
    settled,
    unique,
)
from tests.broker.wire_client import Client, now_ms

LIST_VERSIONS = range(3)
NAMES = ("empty", "open", "committed", "aborted")


@pytest.fixture
def producers(client: Client) -> dict[str, TransactionalProducer]:
    """One in each state that lasts; the names end with the kind, so that other tests' do not interfere."""
    prefix = unique("listed")
    topic = client.create_topic()
    found = {name: TransactionalProducer(client, f"{prefix}-{name}", 50_000) for name in NAMES}
    for name in NAMES[1:]:
        found[name].write(topic, b"x")
    found["committed"].end(commit=True)
    found["aborted"].end(commit=False)
    return found


def listed(client: Client, request: ListTransactionsRequest, version: int = 2) -> dict[str, tuple[int, str]]:
    answer = settled(lambda: client.call(request, version))
    assert answer.error_code == ErrorCode.NONE
    return {each.transactional_id: (each.producer_id, each.transaction_state) for each in answer.transaction_states}


# DescribeTransactions


def test_a_transaction_is_described_with_its_producer_and_partitions(client: Client) -> None:
    topics = client.create_topic(3), client.create_topic()
    producer = TransactionalProducer(client, timeout_ms=50_000)
    before = now_ms()
    for topic, partition in ((topics[0], 2), (topics[0], 0), (topics[1], 0)):
        producer.write(topic, b"x", partition=partition)
    found = describe(client, producer.name)
    assert (found.transactional_id, found.transaction_state) == (producer.name, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == (producer.id, producer.epoch)
    assert found.transaction_timeout_ms == 50_000
    assert before <= found.transaction_start_time_ms <= now_ms()
    assert {each.topic: set(each.partitions) for each in found.topics} == {topics[0]: {0, 2}, topics[1]: {0}}


def test_an_id_without_a_transaction_has_no_start(client: Client) -> None:
    found = describe(client, TransactionalProducer(client).name)
    assert (found.transaction_state, found.transaction_start_time_ms, found.topics) == ("Empty", -1, [])


def test_every_id_has_its_own_answer(client: Client) -> None:
    known, unknown = TransactionalProducer(client).name, unique("x")
    find_coordinator(client, unknown, TRANSACTION)
    states = client.call(DescribeTransactionsRequest([known, unknown, ""])).transaction_states
    assert {each.transactional_id: ErrorCode(each.error_code) for each in states} == {
        known: ErrorCode.NONE,
        unknown: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        "": ErrorCode.INVALID_REQUEST,
    }


# ListTransactions


@pytest.mark.parametrize("version", LIST_VERSIONS)
def test_all_are_listed_with_their_states(
    client: Client, producers: dict[str, TransactionalProducer], version: int
) -> None:
    found = listed(client, ListTransactionsRequest(), version)
    assert {name: found[producer.name] for name, producer in producers.items()} == {
        "empty": (producers["empty"].id, "Empty"),
        "open": (producers["open"].id, "Ongoing"),
        "committed": (producers["committed"].id, "CompleteCommit"),
        "aborted": (producers["aborted"].id, "CompleteAbort"),
    }


@pytest.mark.parametrize("version", LIST_VERSIONS)
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["Ongoing"], {"open"}),
        (["Ongoing", "Empty"], {"open", "empty"}),
        (["CompleteCommit", "CompleteAbort"], {"committed", "aborted"}),
        (["PrepareCommit", "Dead"], set()),
        (["Ongoing", "Nonsense"], {"open"}),
        (["Nonsense"], set()),
        (["ongoing"], set()),
    ],
)
def test_by_state(
    client: Client, producers: dict[str, TransactionalProducer], version: int, states: list[str], expected: set[str]
) -> None:
    request = ListTransactionsRequest(states)
    found = listed(client, request, version)
    assert {name for name, producer in producers.items() if producer.name in found} == expected
    unknown = client.call(request, version).unknown_state_filters
    assert unknown == [state for state in states if state in ("Nonsense", "ongoing")]


@pytest.mark.parametrize("version", LIST_VERSIONS)
def test_by_producer_id(client: Client, producers: dict[str, TransactionalProducer], version: int) -> None:
    wanted = [producers["open"], producers["aborted"]]
    request = ListTransactionsRequest([], [*(producer.id for producer in wanted), 1 << 50])
    assert set(listed(client, request, version)) == {producer.name for producer in wanted}
    both = ListTransactionsRequest(["Ongoing"], [producer.id for producer in wanted])
    assert set(listed(client, both, version)) == {producers["open"].name}


@pytest.mark.parametrize("version", [1, 2])
def test_by_duration(client: Client, producers: dict[str, TransactionalProducer], version: int) -> None:
    time.sleep(0.05)
    names = {producer.name for producer in producers.values()}

    def older_than(duration_ms: int) -> set[str]:
        return set(listed(client, ListTransactionsRequest(["Ongoing"], [], duration_ms), version)) & names

    assert older_than(-1) == older_than(20) == {producers["open"].name}
    assert older_than(600_000) == set()


@pytest.mark.parametrize(
    ("pattern_of", "expected"),
    [
        (lambda prefix: f"{prefix}-open", {"open"}),
        (lambda prefix: f"{prefix}-.*", set(NAMES)),
        (lambda prefix: f"{prefix}-(open|empty)", {"open", "empty"}),
        (lambda prefix: prefix, set()),  # the whole id must match
        (lambda prefix: f"{prefix}-.p.*", {"open"}),
        (lambda prefix: "", set(NAMES)),  # none
        (lambda prefix: None, set(NAMES)),
    ],
)
def test_by_pattern(
    client: Client,
    producers: dict[str, TransactionalProducer],
    pattern_of: Callable[[str], str | None],
    expected: set[str],
) -> None:
    prefix = producers["open"].name.rsplit("-", 1)[0]
    found = listed(client, ListTransactionsRequest([], [], -1, pattern_of(prefix)))
    assert {name for name, producer in producers.items() if producer.name in found} == expected


def test_a_pattern_that_is_none(client: Client) -> None:
    answer = client.call(ListTransactionsRequest([], [], -1, "(ab"))
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.transaction_states == []
