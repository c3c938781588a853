"""Idempotence and transactions, as one partition keeps them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.control import ControlType, EndMarker
from barnabas.storage.log import Log
from barnabas.storage.producer_state import CorruptSnapshot, ProducerStates
from tests.unit.storage.storage_helpers import CLEAN, NOW_MS, append, new_log, reopen, values

LAST = 2**31 - 1


def _refused(log: Log, code: ErrorCode, producer: tuple[int, int, int], *records: bytes, **options: bool) -> None:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        append(log, *records, producer=producer, **options)
    assert refused.value.code is code
    assert log.log_end_offset == end


def test_any_of_the_last_five_batches_is_a_duplicate_answered_with_its_first_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(7):
        append(log, b"a", b"b", producer=(1, 0, 2 * number))
    for number in range(2, 7):
        info = append(log, b"a", b"b", producer=(1, 0, 2 * number))
        assert (info.first_offset, info.last_offset, info.duplicate) == (2 * number, 2 * number + 1, True)
    _refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, (1, 0, 2), b"a", b"b")  # too long ago to be known
    assert log.log_end_offset == 14


def test_a_gap_is_refused_and_the_next_sequence_is_not(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, b"a", b"b", producer=(1, 0, 0))
    _refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, (1, 0, 3))
    _refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, (1, 0, 1))  # a part of a batch is no duplicate of it
    append(log, producer=(1, 0, 2))


def test_an_old_epoch_is_fenced_and_a_new_one_begins_at_zero(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, producer=(1, 1, 0))
    _refused(log, ErrorCode.INVALID_PRODUCER_EPOCH, (1, 0, 1))
    _refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, (1, 2, 1))
    append(log, producer=(1, 2, 0))
    _refused(log, ErrorCode.INVALID_PRODUCER_EPOCH, (1, 1, 0))


def test_sequences_wrap_within_and_between_batches(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, b"a", b"b", b"c", producer=(1, 0, LAST - 1))  # a producer without state begins where it likes
    append(log, producer=(1, 0, 1))
    append(log, producer=(2, 0, LAST))
    append(log, producer=(2, 0, 0))
    assert append(log, b"a", b"b", b"c", producer=(1, 0, LAST - 1)).duplicate
    log.close()
    again, _ = reopen(tmp_path, CLEAN)
    assert append(again, producer=(1, 0, 1)).duplicate
    append(again, producer=(1, 0, 2))


@pytest.mark.parametrize("snapshots", ["kept", "lost", "damaged"])
@pytest.mark.parametrize("clean", [True, False])
def test_state_survives_a_restart_with_or_without_its_snapshots(tmp_path: Path, snapshots: str, clean: bool) -> None:
    rng = random.Random(4)
    log = new_log(tmp_path, segment_bytes=800)
    sequences = dict.fromkeys(range(5), 0)
    for _ in range(60):
        producer = rng.randrange(5)
        append(log, producer=(producer, 0, sequences[producer]))
        sequences[producer] += 1
    expected = log.producers.encode()
    if clean:
        log.close()
    for path in tmp_path.glob("*.snapshot"):
        if snapshots == "lost":
            path.unlink()
        elif snapshots == "damaged":
            path.write_bytes(path.read_bytes()[:-1])
    again, _ = reopen(tmp_path, CLEAN if clean else None, segment_bytes=800)
    entries = {entry.producer_id: entry for entry in again.producers.entries.values()}
    assert {producer: entry.last_sequence + 1 for producer, entry in entries.items()} == sequences
    if snapshots == "kept" and clean:
        assert again.producers.encode() == expected
    for producer, sequence in sequences.items():
        assert append(again, producer=(producer, 0, sequence - 1)).duplicate
        _refused(again, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, (producer, 0, sequence + 1))
        append(again, producer=(producer, 0, sequence))


def test_a_silent_producer_expires_unless_it_is_in_a_transaction(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, producer=(1, 0, 0))
    append(log, producer=(2, 0, 0), timestamp_ms=NOW_MS + 500)
    append(log, producer=(3, 0, 0), transactional=True)
    log.producers.remove_expired(NOW_MS + 1000, 1000)
    assert sorted(log.producers.entries) == [2, 3]
    append(log, producer=(1, 0, 41))  # nothing is known of it any more


def test_nothing_is_stable_behind_an_open_transaction(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=400)
    append(log, b"plain")
    append(log, b"a", producer=(1, 0, 0), transactional=True)  # 1
    append(log, b"b", producer=(2, 0, 0), transactional=True)  # 2
    append(log, b"a", producer=(1, 0, 1), transactional=True)  # 3
    assert (log.last_stable_offset, log.high_watermark) == (1, 4)
    _refused(log, ErrorCode.INVALID_TXN_STATE, (1, 0, 2))
    log.append_end_marker(EndMarker(ControlType.ABORT, 5), 1, 0, 0, NOW_MS)  # 4
    assert log.last_stable_offset == 1  # the marker is not committed yet
    log.set_high_watermark(5)
    assert log.last_stable_offset == 2
    log.append_end_marker(EndMarker(ControlType.COMMIT, 5), 2, 0, 0, NOW_MS)  # 5
    log.set_high_watermark(6)
    assert log.last_stable_offset == 6
    with pytest.raises(KafkaError) as refused:
        log.append_end_marker(EndMarker(ControlType.COMMIT, 4), 2, 0, 0, NOW_MS)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    append(log, b"c", producer=(1, 1, 0), transactional=True)  # 6
    log.append_end_marker(EndMarker(ControlType.ABORT, 5), 1, 1, 0, NOW_MS)  # 7
    log.set_high_watermark(8)
    assert len(log.segments) > 1
    aborted = [(1, 1, 4, 2), (1, 6, 7, 8)]
    assert log.aborted_transactions(0, 8) == aborted
    assert log.aborted_transactions(5, 8) == aborted[1:]
    assert log.aborted_transactions(0, 2) == aborted[:1]
    assert [value for value in values(log) if value in (b"a", b"b", b"c", b"plain")] == [
        b"plain",
        b"a",
        b"b",
        b"a",
        b"c",
    ]
    log.close()
    for state in (CLEAN, None):
        log, _ = reopen(tmp_path, state, segment_bytes=400)
        log.set_high_watermark(8)
        assert log.aborted_transactions(0, 8) == aborted
        assert log.last_stable_offset == 8


def test_an_open_transaction_is_known_after_a_restart(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, b"plain")
    append(log, b"a", producer=(1, 0, 0), transactional=True)
    log.close()
    for state in (CLEAN, None):
        log, _ = reopen(tmp_path, state)
        log.set_high_watermark(2)
        assert log.last_stable_offset == 1


def test_a_damaged_snapshot_is_never_taken_for_state() -> None:
    states = ProducerStates()
    states.add_batch(1, 0, 0, 0, 0, NOW_MS, False)
    data = states.encode()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(CorruptSnapshot):
            ProducerStates().restore(bytes(damaged))
        with pytest.raises(CorruptSnapshot):
            ProducerStates().restore(data[:position])


def test_each_of_the_last_five_batches_is_a_duplicate_still_after_a_snapshot() -> None:
    states = ProducerStates()
    for number in range(7):
        states.add_batch(42, 0, 3 * number, 3 * number, 3 * number + 2, 1000 + number, False)
    again = ProducerStates()
    again.restore(states.encode())
    for number in range(2, 7):
        duplicate = again.check_batch(42, 0, 3 * number, 3 * number + 2, False)
        assert duplicate is not None
        assert duplicate.first_offset == 3 * number
    assert again.check_batch(42, 0, 21, 21, False) is None


def test_a_marker_of_version_2_that_comes_again_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    commit = EndMarker(ControlType.COMMIT, 5)
    append(log, b"a", producer=(1, 0, 0), transactional=True)
    log.append_end_marker(commit, 1, 1, 0, NOW_MS, transaction_version=2)
    log.append_end_marker(commit, 1, 1, 0, NOW_MS, transaction_version=2)  # nothing is open: harmless
    append(log, b"b", producer=(1, 1, 0), transactional=True)
    with pytest.raises(KafkaError) as refused:
        log.append_end_marker(commit, 1, 1, 0, NOW_MS, transaction_version=2)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    log.append_end_marker(commit, 1, 2, 0, NOW_MS, transaction_version=2)
