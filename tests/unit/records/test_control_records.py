from __future__ import annotations

import pytest

from barnabas.records.batch import CorruptBatch, check_batch
from barnabas.records.builder import BatchBuilder
from barnabas.records.control import ControlType, EndMarker, build_end_marker, parse_end_marker

pytestmark = pytest.mark.usefixtures("either_engine")


def control_batch(key: bytes | None, value: bytes | None, copies: int = 1) -> memoryview:
    builder = BatchBuilder(control=True, transactional=True, producer_id=1, producer_epoch=0)
    for _ in range(copies):
        builder.append(key, value)
    return memoryview(builder.build())


@pytest.mark.parametrize("kind", ControlType)
def test_a_marker_is_a_transactional_control_batch_and_is_read_back(kind: ControlType) -> None:
    marker = EndMarker(kind, coordinator_epoch=12)
    batch = memoryview(
        build_end_marker(marker, producer_id=7, producer_epoch=2, timestamp_ms=99, base_offset=5, leader_epoch=4)
    )
    header = check_batch(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.partition_leader_epoch, header.record_count) == (5, 4, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    assert parse_end_marker(batch) == marker


def test_a_control_record_of_another_type_is_passed_over() -> None:
    assert parse_end_marker(control_batch(b"\x00\x00\x00\x02", b"leader change")) is None


def test_a_marker_of_a_later_version_is_read_by_its_first_fields() -> None:
    batch = control_batch(b"\x00\x01\x00\x01more", b"\x00\x01\x00\x00\x00\x09more")
    assert parse_end_marker(batch) == EndMarker(ControlType.COMMIT, 9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00"),
        (b"\xff\xff\x00\x00", b"\x00\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x00"),
    ],
)
def test_a_malformed_marker_is_a_corrupt_batch(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        parse_end_marker(control_batch(key, value))


def test_a_control_batch_of_two_records_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="holds 2 records"):
        parse_end_marker(control_batch(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", copies=2))
