from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.coordinator.records import decode_transaction_record
from barnabas.coordinator.transaction import PREVIOUS_STATES, TransactionState
from barnabas.coordinator.transaction_listing import TransactionFilter
from barnabas.coordinator.transaction_log import transaction_record
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k66_list_transactions import ListTransactionsRequest
from barnabas.wire.primitives import DecodeError
from tests.unit.coordinator.transactions import (
    ID,
    ID_EXPIRATION_MS,
    NOBODY,
    WALL_MS,
    A,
    B,
    C,
    Desk,
)

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE


@pytest.fixture
def desk() -> Desk:
    return Desk()


# time


def test_a_transaction_that_takes_too_long_is_aborted_with_a_higher_epoch(desk: Desk) -> None:
    producer = desk.producer(timeout_ms=1_000)
    desk.pass_time(500)
    desk.add(producer, A)
    desk.pass_time(900)
    desk.add(producer, B)  # does not buy time
    assert desk.shard.next_deadline_ms == desk.monotonic_ms + 100
    desk.pass_time(99)
    desk.expire()
    assert desk.state() == "Ongoing"
    desk.pass_time(1)
    desk.expire()
    assert desk.state() == "PrepareAbort"
    [marker] = desk.markers
    assert (marker.producer_epoch, marker.commit, marker.partitions) == (1, False, (A, B))
    assert desk.end(producer, commit=True)[0] is CONCURRENT
    desk.write_markers()
    assert desk.end(producer, commit=True) == (INVALID, NOBODY)
    assert desk.end(producer, commit=False) == (NONE, (1000, 1))


def test_a_timed_out_producer_of_version_1_is_fenced(desk: Desk) -> None:
    producer = desk.producer(timeout_ms=1_000)
    desk.add(producer, A, version=3)
    desk.pass_time(1_000)
    desk.expire()
    assert desk.end(producer, commit=True, version=4)[0] is FENCED
    desk.write_markers()
    assert desk.end(producer, commit=True, version=4)[0] is FENCED
    assert desk.add(producer, A, version=3) is FENCED


def test_an_ended_transaction_does_not_time_out(desk: Desk) -> None:
    producer = desk.producer(timeout_ms=1_000)
    desk.add(producer, A)
    desk.end(producer, commit=True)
    assert desk.shard.next_deadline_ms is None
    desk.pass_time(5_000)
    desk.expire()
    assert desk.state() == "PrepareCommit"


def test_a_step_of_the_wall_clock_does_not_end_a_transaction(desk: Desk) -> None:
    producer = desk.producer(timeout_ms=1_000)
    desk.add(producer, A)
    desk.wall_ms += 3_600_000
    desk.expire()
    assert desk.state() == "Ongoing"


def test_a_time_out_without_a_producer_id_at_hand_is_tried_again() -> None:
    desk = Desk(producer_ids=[1000, None, 1001])
    last = desk.producer_at_epoch(32766)
    desk.add(last, A)
    desk.pass_time(60_000)
    desk.expire()
    assert desk.state() == "Ongoing"
    desk.pass_time(1_000)
    desk.expire()
    assert desk.state() == "PrepareAbort"
    desk.write_markers()
    assert desk.transaction().producer == (1001, 0)


def test_an_id_that_nobody_uses_is_forgotten_with_a_tombstone(desk: Desk) -> None:
    desk.producer()
    desk.pass_time(ID_EXPIRATION_MS - 1)
    desk.expire()
    assert ID in desk.shard.transactions
    desk.pass_time(1)
    desk.expire()
    assert ID not in desk.shard.transactions
    assert desk.records[-1] == (desk.records[0].key, None)
    assert desk.shard.next_deadline_ms is None
    assert not desk.replayed().transactions
    assert desk.init() == (NONE, (1001, 0))


def test_use_puts_expiry_off(desk: Desk) -> None:
    producer = desk.producer()
    desk.pass_time(ID_EXPIRATION_MS - 1)
    desk.add(producer, A)
    desk.end(producer, commit=True)
    desk.pass_time(ID_EXPIRATION_MS)
    desk.expire()
    assert desk.state() == "PrepareCommit"
    desk.write_markers()
    desk.pass_time(ID_EXPIRATION_MS)
    desk.expire()
    assert ID not in desk.shard.transactions


def test_many_deadlines_at_once_come_in_batches_of_bounded_size(desk: Desk) -> None:
    for number in range(250):
        desk.producer(id=f"id-{number}")
    desk.pass_time(ID_EXPIRATION_MS)
    sizes = []
    while desk.shard.next_deadline_ms is not None:
        desk.monotonic_ms = max(desk.monotonic_ms, desk.shard.next_deadline_ms)
        before = len(desk.records)
        desk.expire()
        sizes.append(len(desk.records) - before)
    assert sizes == [100, 100, 50]
    assert not desk.shard.transactions


# loading


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_decided_is_finished_after_a_restart(desk: Desk, commit: bool) -> None:
    producer = desk.producer()
    desk.add(producer, A, B)
    desk.end(producer, commit)
    desk.write_markers(A)
    desk.restart()
    [marker] = desk.markers
    assert (marker.commit, marker.producer_epoch, marker.partitions) == (commit, 1, (A, B))
    desk.write_markers()
    assert desk.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert desk.end(producer, commit) == (NONE, (1000, 1))


def test_a_decided_transaction_without_partitions_is_completed_by_loading(desk: Desk) -> None:
    desk.end(desk.producer(), commit=False)
    del desk.records[-1]
    desk.restart()
    assert desk.state() == "CompleteAbort"
    assert not desk.markers
    assert desk.replayed().transactions == desk.shard.transactions


def test_a_new_producer_id_survives_a_restart_before_the_markers(desk: Desk) -> None:
    last = desk.producer_at_epoch(32766)
    desk.add(last, A)
    desk.end(last, commit=True)
    desk.restart()
    desk.write_markers()
    assert desk.end(last, commit=True) == (NONE, (1001, 0))


def test_time_outs_go_on_after_a_restart_from_where_they_stood(desk: Desk) -> None:
    desk.add(desk.producer(timeout_ms=1_000), A)
    desk.producer(id="idle")
    desk.pass_time(600)
    desk.monotonic_ms = 1  # another machine
    desk.restart()
    assert desk.shard.next_deadline_ms == 401
    desk.pass_time(400)
    desk.expire()
    assert desk.state() == "PrepareAbort"
    desk.write_markers()
    assert desk.shard.next_deadline_ms == desk.monotonic_ms + ID_EXPIRATION_MS - 1_000


def test_records_are_those_that_kafka_writes(desk: Desk) -> None:
    producer = desk.producer()
    desk.add(producer, B, A, C)
    desk.end(producer, commit=True)
    desk.write_markers()
    assert [record.value[:2] for record in desk.records if record.value] == [b"\0\1"] * 4
    values: list[Any] = [decode_transaction_record(*record)[1] for record in desk.records]
    empty, ongoing, prepare, complete = values
    assert empty.transaction_partitions is None
    assert (empty.transaction_status, empty.producer_epoch, empty.transaction_start_timestamp_ms) == (0, 0, -1)
    assert [(each.topic, each.partition_ids) for each in ongoing.transaction_partitions] == [
        ("orders", [0, 1]),
        ("totals", [0]),
    ]
    assert (ongoing.transaction_status, ongoing.client_transaction_version) == (1, 2)
    assert (prepare.transaction_status, prepare.producer_epoch, prepare.previous_producer_id) == (2, 1, 1000)
    assert len(prepare.transaction_partitions) == 2
    assert (complete.transaction_status, complete.producer_epoch, complete.transaction_partitions) == (4, 1, [])


def test_a_damaged_record_is_told_and_leaves_the_rest(desk: Desk) -> None:
    desk.producer()
    record = desk.records[0]
    assert record.value is not None
    for bad in (
        CoordinatorRecord(b"\0", None),
        CoordinatorRecord(record.key, record.value[:9]),
        CoordinatorRecord(record.key, b"\0\7" + record.value[2:]),
        transaction_record(replace(desk.transaction(), state=TransactionState.DEAD)),
        transaction_record(replace(desk.transaction(), state=TransactionState.PREPARE_EPOCH_FENCE)),
    ):
        with pytest.raises(DecodeError):
            desk.shard.replay(bad, 1, -1)
    assert desk.state() == "Empty"


# tools


def test_describe_shows_the_open_transaction(desk: Desk) -> None:
    producer = desk.producer(timeout_ms=1_000)
    desk.add(producer, B, A, C)
    described = desk.describe()
    assert (described.error_code, described.transactional_id, described.transaction_state) == (0, ID, "Ongoing")
    assert (described.transaction_timeout_ms, described.transaction_start_time_ms) == (1_000, WALL_MS)
    assert (described.producer_id, described.producer_epoch) == producer
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("orders", [0, 1]), ("totals", [0])]
    assert desk.describe("unknown").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_list_filters_by_state_producer_duration_and_pattern(desk: Desk) -> None:
    old = desk.producer(id="pay-1")
    desk.add(old, A, id="pay-1")
    desk.pass_time(10)
    young = desk.producer(id="pay-2")
    desk.add(young, A, id="pay-2")
    desk.producer(id="idle")
    assert desk.list() == ["pay-1", "pay-2", "idle"]
    assert desk.list(state_filters=["Ongoing"]) == ["pay-1", "pay-2"]
    assert desk.list(state_filters=["Empty", "Nonsense"]) == ["idle"]
    assert desk.list(state_filters=["Nonsense"]) == []
    assert desk.list(producer_id_filters=[young.producer_id]) == ["pay-2"]
    assert desk.list(duration_filter=9) == ["pay-1", "idle"]
    assert desk.list(duration_filter=10) == ["idle"]
    assert desk.list(transactional_id_pattern="pay-.*") == ["pay-1", "pay-2"]
    assert desk.list(transactional_id_pattern="pay") == []
    assert desk.list(transactional_id_pattern="") == ["pay-1", "pay-2", "idle"]
    assert desk.list(state_filters=["Ongoing"], transactional_id_pattern=".*2|idle") == ["pay-2"]


def test_list_tells_unknown_states_and_knows_all_of_kafkas() -> None:
    names = [state.label for state in TransactionState]
    wanted = TransactionFilter(ListTransactionsRequest(state_filters=[*names, "Nonsense", "ongoing", "Nonsense"]))
    assert wanted.unknown_states == ["Nonsense", "ongoing"]


def test_list_refuses_a_pattern_that_is_none() -> None:
    with pytest.raises(KafkaError) as refused:
        TransactionFilter(ListTransactionsRequest(transactional_id_pattern="(unclosed"))
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_every_state_has_its_place_in_the_table() -> None:
    assert set(PREVIOUS_STATES) == set(TransactionState)
