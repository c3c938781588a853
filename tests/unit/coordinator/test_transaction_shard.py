from __future__ import annotations

import pytest

from barnabas.coordinator.transaction import TopicPartition, TransactionState
from barnabas.core.errors import ErrorCode
from tests.unit.coordinator.transactions import (
    ID,
    MAX_TIMEOUT_MS,
    NOBODY,
    WALL_MS,
    A,
    B,
    C,
    Desk,
    Producer,
)

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
NOT_MAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.fixture
def desk() -> Desk:
    return Desk()


# InitProducerId


def test_a_new_transactional_id_gets_a_fresh_producer_id_with_epoch_0(desk: Desk) -> None:
    assert desk.init() == (NONE, (1000, 0))
    assert desk.init(id="other") == (NONE, (1001, 0))
    assert desk.state() == "Empty"


def test_a_known_transactional_id_keeps_its_producer_id_and_gets_the_next_epoch(desk: Desk) -> None:
    desk.producer()
    assert desk.init() == (NONE, (1000, 1))
    assert desk.init() == (NONE, (1000, 2))


def test_a_new_producer_fences_the_old_one(desk: Desk) -> None:
    zombie, successor = desk.producer(), desk.producer()
    assert desk.add(zombie, A) is FENCED
    assert desk.add(zombie, A, verify=True) is FENCED
    assert desk.add_offsets(zombie, A) is FENCED
    assert desk.end(zombie, commit=True) == (FENCED, NOBODY)
    assert desk.end(zombie, commit=True, version=4) == (FENCED, NOBODY)
    assert desk.add(successor, A) is NONE


@pytest.mark.parametrize(("version", "code"), [(0, ErrorCode.INVALID_PRODUCER_EPOCH), (4, FENCED)])
def test_init_of_a_fenced_producer_is_told_in_words_that_the_client_knows(
    desk: Desk, version: int, code: ErrorCode
) -> None:
    zombie, _ = desk.producer(), desk.producer()
    assert desk.init(zombie, version=version) == (code, NOBODY)


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, FENCED)])
def test_other_requests_of_a_fenced_producer_too(desk: Desk, version: int, code: ErrorCode) -> None:
    zombie, _ = desk.producer(), desk.producer()
    assert desk.add(zombie, A, version=version) is code
    assert desk.add_offsets(zombie, A, version=version) is code
    assert desk.end(zombie, commit=False, version=version) == (code, NOBODY)


def test_a_new_producer_waits_until_the_open_transaction_of_the_old_one_is_aborted(desk: Desk) -> None:
    old = desk.producer()
    desk.add(old, A, C)
    assert desk.init() == (CONCURRENT, NOBODY)
    assert desk.state() == "PrepareAbort"
    [marker] = desk.markers
    assert (marker.producer_id, marker.producer_epoch, marker.commit) == (1000, 1, False)
    assert marker.partitions == (A, C)
    assert desk.init() == (CONCURRENT, NOBODY)
    assert len(desk.markers) == 1
    desk.write_markers()
    assert desk.state() == "CompleteAbort"
    assert desk.init() == (NONE, (1000, 2))
    assert desk.end(old, commit=True)[0] is FENCED


@pytest.mark.parametrize("timeout_ms", [0, -1, MAX_TIMEOUT_MS + 1])
def test_a_transaction_timeout_out_of_bounds_is_refused(desk: Desk, timeout_ms: int) -> None:
    assert desk.init(timeout_ms=timeout_ms) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, NOBODY)
    assert not desk.records
    assert desk.init(timeout_ms=MAX_TIMEOUT_MS)[0] is NONE


def test_an_empty_transactional_id_is_refused_everywhere(desk: Desk) -> None:
    assert desk.init(id="") == (ErrorCode.INVALID_REQUEST, NOBODY)
    assert desk.add(Producer(1, 0), A, id="") is ErrorCode.INVALID_REQUEST
    assert desk.add(Producer(1, 0), A, id="", verify=True) is ErrorCode.INVALID_REQUEST
    assert desk.add_offsets(Producer(1, 0), A, id="") is ErrorCode.INVALID_REQUEST
    assert desk.end(Producer(1, 0), commit=True, id="") == (ErrorCode.INVALID_REQUEST, NOBODY)
    assert desk.describe("").error_code == ErrorCode.INVALID_REQUEST


def test_an_unknown_transactional_id_has_no_producer(desk: Desk) -> None:
    assert desk.add(Producer(1, 0), A) is NOT_MAPPED
    assert desk.add(Producer(1, 0), A, verify=True) is NOT_MAPPED
    assert desk.add_offsets(Producer(1, 0), A) is NOT_MAPPED
    assert desk.end(Producer(1, 0), commit=True) == (NOT_MAPPED, NOBODY)
    assert not desk.records


def test_a_producer_that_names_its_epoch_gets_the_next_one(desk: Desk) -> None:
    assert desk.init(desk.producer()) == (NONE, (1000, 1))


def test_a_repeated_init_with_the_epoch_before_gets_the_same_answer_again(desk: Desk) -> None:
    first = desk.producer()
    second = desk.init(first)
    assert desk.init(first) == desk.init(first) == second == (NONE, (1000, 1))
    assert desk.init(Producer(1000, 1)) == (NONE, (1000, 2))
    assert desk.init(first) == (FENCED, NOBODY)


def test_a_repeated_init_is_fenced_once_another_producer_came(desk: Desk) -> None:
    first = desk.producer()
    desk.init(first)
    desk.producer()
    assert desk.init(first) == (FENCED, NOBODY)


def test_init_with_another_producer_id_is_fenced(desk: Desk) -> None:
    desk.producer()
    assert desk.init(Producer(7, 0)) == (FENCED, NOBODY)


def test_a_forgotten_transactional_id_that_is_named_with_its_epoch_begins_anew(desk: Desk) -> None:
    assert desk.init(Producer(7, 3)) == (NONE, (1000, 0))


def test_init_by_the_producer_itself_aborts_its_open_transaction(desk: Desk) -> None:
    producer = desk.producer()
    desk.add(producer, A)
    assert desk.init(producer) == (CONCURRENT, NOBODY)
    desk.write_markers()
    assert desk.init(producer) == (NONE, (1000, 1))


def test_init_by_a_zombie_leaves_the_transaction_of_its_successor_alone(desk: Desk) -> None:
    zombie, successor = desk.producer(), desk.producer()
    desk.add(successor, A)
    assert desk.init(zombie) == (FENCED, NOBODY)
    assert desk.state() == "Ongoing"


def test_when_epochs_are_used_up_init_gives_a_new_producer_id(desk: Desk) -> None:
    last = desk.producer_at_epoch(32766)
    assert desk.init() == (NONE, (1001, 0))
    assert desk.end(last, commit=True)[0] is NOT_MAPPED


def test_a_repeated_init_after_the_epochs_are_used_up_gets_the_new_producer_id_again(desk: Desk) -> None:
    last = desk.producer_at_epoch(32766)
    assert desk.init(last) == (NONE, (1001, 0))
    assert desk.init(last) == desk.init(last) == (NONE, (1001, 0))
    assert desk.init(Producer(1001, 0)) == (NONE, (1001, 1))
    assert desk.init(last) == (FENCED, NOBODY)


def test_init_with_an_old_epoch_is_fenced_also_when_epochs_are_used_up(desk: Desk) -> None:
    desk.producer_at_epoch(32766)
    assert desk.init(Producer(1000, 5)) == (FENCED, NOBODY)


def test_without_a_producer_id_at_hand_the_client_comes_again() -> None:
    desk = Desk(producer_ids=[None, 1000])
    assert desk.init() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOBODY)
    assert not desk.records
    assert desk.init() == (NONE, (1000, 0))


# AddPartitionsToTxn, AddOffsetsToTxn


def test_the_first_partition_opens_the_transaction(desk: Desk) -> None:
    producer = desk.producer()
    desk.pass_time(10)
    assert desk.add(producer, A, B) is NONE
    desk.pass_time(10)
    assert desk.add(producer, C) is NONE
    transaction = desk.transaction()
    assert transaction.state is TransactionState.ONGOING
    assert transaction.partitions == {A, B, C}
    assert transaction.start_timestamp_ms == WALL_MS + 10
    assert transaction.last_update_timestamp_ms == WALL_MS + 20


def test_partitions_that_are_part_already_need_no_record(desk: Desk) -> None:
    producer = desk.producer()
    desk.add(producer, A, B)
    written = len(desk.records)
    assert desk.add(producer, B) is NONE
    assert len(desk.records) == written


def test_offsets_are_one_more_partition(desk: Desk) -> None:
    producer = desk.producer()
    offsets = TopicPartition("__consumer_offsets", 3)
    assert desk.add_offsets(producer, offsets) is NONE
    assert desk.transaction().partitions == {offsets}


def test_verification_tells_which_partitions_are_part_and_adds_none(desk: Desk) -> None:
    producer = desk.producer()
    desk.add(producer, A, version=3)
    assert desk.add(producer, A, verify=True) is NONE
    assert desk.add(producer, A, B, verify=True) == {A: NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
    assert desk.transaction().partitions == {A}


def test_nothing_is_part_of_a_transaction_that_is_over(desk: Desk) -> None:
    producer = desk.producer()
    desk.add(producer, A, version=3)
    desk.end(producer, commit=True, version=4)
    assert desk.add(producer, A, verify=True) is CONCURRENT
    desk.write_markers()
    assert desk.add(producer, A, verify=True) is ErrorCode.TRANSACTION_ABORTABLE


def test_adding_waits_for_the_markers_of_the_transaction_before(desk: Desk) -> None:
    producer = desk.producer()
    desk.add(producer, A)
    _, following = desk.end(producer, commit=True)
    assert desk.add(following, B) is CONCURRENT
    assert desk.add_offsets(following, B) is CONCURRENT
    desk.write_markers()
    assert desk.add(following, B) is NONE


def test_another_producer_id_is_not_mapped(desk: Desk) -> None:
    desk.producer()
    other = Producer(7, 0)
    assert desk.add(other, A) is NOT_MAPPED
    assert desk.add(other, A, verify=True) is NOT_MAPPED
    assert desk.end(other, commit=True)[0] is NOT_MAPPED


# EndTxn


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_is_recorded_then_marked_then_complete(desk: Desk, commit: bool) -> None:
    producer = desk.producer()
    desk.add(producer, A, B)
    assert desk.end(producer, commit) == (NONE, (1000, 1))
    assert desk.state() == ("PrepareCommit" if commit else "PrepareAbort")
    [marker] = desk.markers
    assert marker == (ID, 1000, 1, 7, commit, 2, (A, B))
    desk.write_markers(A)
    assert desk.transaction().partitions == {B}
    assert desk.describe().topics[0].partitions == [1]
    desk.write_markers(B)
    assert desk.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert not desk.transaction().partitions
    assert not desk.markers


def test_an_acknowledgement_that_comes_twice_or_late_changes_nothing(desk: Desk) -> None:
    producer = desk.producer()
    desk.add(producer, A)
    _, second = desk.end(producer, commit=True)
    [marker] = desk.markers
    desk.write_markers()
    desk.add(second, A)
    desk.take(desk.shard.markers_written(marker, [A], desk.now))
    assert desk.state() == "Ongoing"
    desk.end(second, commit=False)
    desk.take(desk.shard.markers_written(marker, [A], desk.now))
    assert desk.state() == "PrepareAbort"
    assert desk.transaction().partitions == {A}


def test_version_1_keeps_the_epoch_and_tells_none(desk: Desk) -> None:
    producer = desk.producer()
    desk.add(producer, A, version=3)
    assert desk.end(producer, commit=True, version=4) == (NONE, NOBODY)
    [marker] = desk.markers
    assert (marker.producer_epoch, marker.transaction_version) == (0, 0)
    assert desk.end(producer, commit=True, version=4)[0] is CONCURRENT
    assert desk.end(producer, commit=False, version=4)[0] is CONCURRENT
    desk.write_markers()
    assert desk.end(producer, commit=True, version=4)[0] is NONE
    assert desk.end(producer, commit=False, version=4)[0] is INVALID
    assert desk.add(producer, B, version=3) is NONE


def test_version_1_has_nothing_to_end_before_a_partition_is_added(desk: Desk) -> None:
    producer = desk.producer()
    assert desk.end(producer, commit=True, version=4)[0] is INVALID
    assert desk.end(producer, commit=False, version=4)[0] is INVALID


def test_a_repeated_end_of_version_2_gets_the_same_answer_again(desk: Desk) -> None:
    first = desk.producer()
    desk.add(first, A)
    answer = desk.end(first, commit=True)
    assert desk.end(first, commit=True) == (CONCURRENT, NOBODY)
    desk.write_markers()
    written = len(desk.records)
    assert desk.end(first, commit=True) == answer == (NONE, (1000, 1))
    assert desk.end(first, commit=False) == (INVALID, NOBODY)
    assert len(desk.records) == written


def test_a_late_end_never_touches_a_later_transaction(desk: Desk) -> None:
    first = desk.producer()
    desk.add(first, A)
    _, second = desk.end(first, commit=False)
    desk.write_markers()
    desk.add(second, A)
    assert desk.end(first, commit=True) == (FENCED, NOBODY)
    assert desk.end(first, commit=False) == (FENCED, NOBODY)
    assert desk.state() == "Ongoing"


def test_committing_what_never_began_is_refused_and_aborting_it_raises_the_epoch(desk: Desk) -> None:
    producer = desk.producer()
    assert desk.end(producer, commit=True) == (INVALID, NOBODY)
    desk.pass_time(5)
    assert desk.end(producer, commit=False) == (NONE, (1000, 1))
    assert desk.state() == "CompleteAbort"
    assert not desk.markers
    assert desk.transaction().start_timestamp_ms == WALL_MS + 5
    assert desk.end(Producer(1000, 1), commit=True) == (INVALID, NOBODY)
    assert desk.end(Producer(1000, 1), commit=False) == (NONE, (1000, 2))
    assert desk.end(Producer(1000, 3), commit=False) == (FENCED, NOBODY)


def test_after_a_commit_the_next_transaction_can_be_aborted_before_it_began(desk: Desk) -> None:
    first = desk.producer()
    desk.add(first, A)
    _, second = desk.end(first, commit=True)
    desk.write_markers()
    assert desk.end(second, commit=False) == (NONE, (1000, 2))
    assert desk.end(first, commit=True)[0] is FENCED


def test_with_the_last_epoch_the_end_brings_a_new_producer_id(desk: Desk) -> None:
    last = desk.producer_at_epoch(32766)
    desk.add(last, A)
    assert desk.end(last, commit=True) == (NONE, (1001, 0))
    [marker] = desk.markers
    assert (marker.producer_id, marker.producer_epoch) == (1000, 32767)
    following = Producer(1001, 0)
    assert desk.add(following, A) is CONCURRENT
    assert desk.end(following, commit=False)[0] is CONCURRENT
    desk.write_markers()
    assert desk.end(last, commit=True) == (NONE, (1001, 0))
    assert desk.end(last, commit=False) == (INVALID, NOBODY)
    assert desk.add(following, A) is NONE
    assert desk.end(last, commit=True) == (NOT_MAPPED, NOBODY)


def test_without_a_producer_id_at_hand_the_last_epoch_cannot_end_yet() -> None:
    desk = Desk(producer_ids=[1000, None, 1001])
    last = desk.producer_at_epoch(32766)
    desk.add(last, A)
    assert desk.end(last, commit=True) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOBODY)
    assert desk.state() == "Ongoing"
    assert desk.end(last, commit=True) == (NONE, (1001, 0))


def test_a_zombie_is_not_congratulated_on_a_commit_of_its_successor(desk: Desk) -> None:
    zombie, successor = desk.producer(), desk.producer()
    desk.add(successor, A, version=3)
    desk.end(successor, commit=True, version=4)
    desk.write_markers()
    assert desk.end(zombie, commit=True) == (FENCED, NOBODY)
