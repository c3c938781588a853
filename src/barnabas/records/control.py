"""Control batches: the markers that end a transaction in a partition.

A control batch holds one record. Its key is `version i16 | type i16`, its value for an end marker
`version i16 | coordinator_epoch i32`. A reader takes a longer one of a later version by its first fields.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from barnabas.records.batch import NO_SEQUENCE, CorruptBatch
from barnabas.records.builder import BatchBuilder
from barnabas.records.reader import records_of

_KEY = Struct(">hh")
_END_MARKER = Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1


class EndMarker(NamedTuple):
    """The end of the transaction of one producer, as its coordinator decided it."""

    type: ControlType
    coordinator_epoch: int


def build_end_marker(
    marker: EndMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that a coordinator has written to every partition of a transaction."""
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        transactional=True,
        control=True,
    )
    key = _KEY.pack(_VERSION, marker.type)
    value = _END_MARKER.pack(_VERSION, marker.coordinator_epoch)
    builder.append(key, value, timestamp_ms=timestamp_ms)
    return builder.build(base_offset, leader_epoch)


def parse_end_marker(batch: memoryview) -> EndMarker | None:
    """The marker in a control batch; None for a type that is not ours to understand, or if compaction took it out."""
    records = records_of(batch)
    if not records:
        return None
    if len(records) != 1:
        raise CorruptBatch(f"a control batch holds {len(records)} records; it must hold one")
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch(f"control record at offset {records[0].offset} has key {key!r}, too short for a type")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"control record at offset {records[0].offset} has version {version}")
    if number not in ControlType.__members__.values():
        return None
    if value is None or len(value) < _END_MARKER.size:
        raise CorruptBatch(f"end marker at offset {records[0].offset} has value {value!r}, too short for an epoch")
    version, coordinator_epoch = _END_MARKER.unpack_from(value)
    if version < 0:
        raise CorruptBatch(f"end marker at offset {records[0].offset} has version {version}")
    return EndMarker(ControlType(number), coordinator_epoch)
