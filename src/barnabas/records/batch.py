"""The 61-byte header of a record batch (magic 2), read in one go and written in place.

    base_offset i64 | batch_length i32 | partition_leader_epoch i32 | magic i8 | crc u32 | attributes i16
    last_offset_delta i32 | base_timestamp i64 | max_timestamp i64 | producer_id i64 | producer_epoch i16
    base_sequence i32 | record_count i32 | records...

`batch_length` counts from `partition_leader_epoch` on. The CRC covers `attributes` to the end, so base offset and
leader epoch, the two fields that a broker assigns, can be written without touching it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.records.crc import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size  # 61
LOG_OVERHEAD = 12  # base_offset and batch_length: what is needed to find the next batch
MAGIC = 2
CRC_START = 21  # the first byte that the CRC covers
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

# attributes
COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")


class CorruptBatch(ValueError):
    """Bytes that are not a whole, valid record batch; the message says what is wrong and where."""


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def time_to_index(self) -> int:
        """The greatest timestamp of the records that the batch holds; NO_TIMESTAMP if compaction left it none."""
        return self.max_timestamp if self.record_count else NO_TIMESTAMP

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2**31 - 1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`; its fields are not judged."""
    if len(buffer) - position < HEADER_SIZE:
        raise CorruptBatch(f"{len(buffer) - position} bytes at position {position} are too few for a batch header")
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def crc_of(batch: memoryview) -> int:
    """The CRC-32C that the header of this whole batch ought to carry."""
    return crc32c(batch[CRC_START:])


def check_batch(buffer: memoryview, position: int = 0) -> BatchHeader:
    """The header of a batch that is whole, of magic 2, and has the right CRC; CorruptBatch otherwise."""
    header = read_header(buffer, position)
    verify(buffer, position, header)
    return header


def verify(buffer: memoryview, position: int, header: BatchHeader) -> None:
    """Refuse the batch at `position` unless it is whole, of magic 2, and has the right CRC."""
    end = position + LOG_OVERHEAD + header.batch_length
    if header.magic != MAGIC:
        raise CorruptBatch(f"batch at position {position} has magic {header.magic}; only {MAGIC} is supported")
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD or end > len(buffer):
        there = len(buffer) - position - LOG_OVERHEAD
        raise CorruptBatch(f"batch at position {position} says {header.batch_length} bytes; {there} are there")
    if crc32c(buffer[position + CRC_START : end]) != header.crc:
        raise CorruptBatch(f"batch at position {position}, base offset {header.base_offset}, has a wrong CRC")


def headers(buffer: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch in `buffer`; a partial one at the end, as a fetch cuts it, is not."""
    position, end = 0, len(buffer)
    while end - position >= HEADER_SIZE:
        header = BatchHeader._make(HEADER.unpack_from(buffer, position))
        if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
            raise CorruptBatch(f"batch at position {position} says {header.batch_length} bytes, less than a header")
        if position + header.size > end:
            return
        yield position, header
        position += header.size


def write_base_offset(buffer: bytearray | memoryview, position: int, base_offset: int) -> None:
    _OFFSET.pack_into(buffer, position, base_offset)


def write_leader_epoch(buffer: bytearray | memoryview, position: int, leader_epoch: int) -> None:
    _EPOCH.pack_into(buffer, position + 12, leader_epoch)


def write_log_append_time(batch: memoryview, timestamp_ms: int) -> None:
    """Stamp a whole batch with the broker's time, which both changes what the CRC covers and so rewrites it."""
    attributes = _ATTRIBUTES.unpack_from(batch, 21)[0] | LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(batch, 21, attributes)
    _OFFSET.pack_into(batch, 35, timestamp_ms)
    write_crc(batch)


def write_crc(batch: memoryview) -> None:
    _CRC.pack_into(batch, 17, crc_of(batch))
