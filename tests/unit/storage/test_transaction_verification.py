"""Batches that wait until their transaction was asked about: what happens to their partition meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.control import ControlType, EndMarker
from barnabas.storage.log import Log
from barnabas.storage.producer_state import Verification
from tests.unit.storage.storage_helpers import NOW_MS, append, new_log, reopen

PRODUCER, EPOCH = 1, 0
COMMIT = EndMarker(ControlType.COMMIT, coordinator_epoch=0)


def _begin(log: Log, sequence: int = 0, epoch: int = EPOCH) -> Verification:
    return log.producers.begin_verification(PRODUCER, epoch, sequence, NOW_MS)


def _verdict(log: Log, verification: Verification, sequence: int = 0) -> ErrorCode:
    try:
        log.producers.check_verified(PRODUCER, sequence, verification)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _write(log: Log) -> None:
    append(log, producer=(PRODUCER, EPOCH, 0), transactional=True)


def _end(log: Log) -> None:
    log.append_end_marker(COMMIT, PRODUCER, EPOCH, 0, NOW_MS)


def _end_another(log: Log) -> None:
    log.append_end_marker(COMMIT, PRODUCER + 1, EPOCH, 0, NOW_MS)


def _forget(log: Log) -> None:
    log.producers.remove_expired(NOW_MS + 1000, 1000)


def _truncate(log: Log) -> None:
    append(log)
    log.truncate_to(log.log_end_offset - 1)


@pytest.mark.parametrize(
    ("expected", "meanwhile"),
    [
        pytest.param(ErrorCode.NONE, [], id="nothing"),
        pytest.param(ErrorCode.NONE, [_write], id="another batch of it"),
        pytest.param(ErrorCode.NONE, [_end_another], id="the end of another producer's"),
        pytest.param(ErrorCode.INVALID_TXN_STATE, [_end], id="its end"),
        pytest.param(ErrorCode.INVALID_TXN_STATE, [_write, _end], id="another batch and its end"),
        pytest.param(ErrorCode.INVALID_TXN_STATE, [_end, _begin], id="its end, and the next is verified"),
        pytest.param(ErrorCode.INVALID_TXN_STATE, [_end, _begin, _write], id="its end, and the next is open"),
        pytest.param(ErrorCode.INVALID_TXN_STATE, [_truncate], id="truncation"),
        pytest.param(ErrorCode.INVALID_TXN_STATE, [_forget], id="it took too long"),
    ],
)
def test_a_batch_is_verified_until_its_transaction_ends_in_the_partition(
    tmp_path: Path, expected: ErrorCode, meanwhile: list[Callable[[Log], object]]
) -> None:
    log = new_log(tmp_path)
    verification = _begin(log)
    for step in meanwhile:
        step(log)
    assert _verdict(log, verification) is expected


def test_batches_of_one_transaction_are_verified_side_by_side(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    first, second = _begin(log, 0), _begin(log, 1)
    assert _verdict(log, first, 0) is ErrorCode.NONE
    append(log, producer=(PRODUCER, EPOCH, 0), transactional=True)
    assert _verdict(log, second, 1) is ErrorCode.NONE


def test_a_producer_without_state_begins_with_its_first_batch_even_if_that_was_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    _begin(log, 5)  # and the coordinator says: come again
    assert _verdict(log, _begin(log, 6), 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _verdict(log, _begin(log, 5), 5) is ErrorCode.NONE


def test_another_epoch_has_sequences_of_its_own(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    _begin(log, 5)
    assert _verdict(log, _begin(log, 6, EPOCH + 1), 6) is ErrorCode.NONE


def test_verifications_are_not_kept_over_a_restart(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    _write(log)
    verification = _begin(log)
    log.close()
    again, _ = reopen(tmp_path)
    assert _verdict(again, verification) is ErrorCode.INVALID_TXN_STATE
