"""Opens record batches: records as objects, and the few looks that a broker takes inside.

What is opened is checked first: magic, length, CRC. The records are then decompressed under a limit, because a few
kilobytes can claim to be gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.records import engine
from barnabas.records.batch import COMPRESSION_MASK, HEADER_SIZE, BatchHeader, check_batch, headers
from barnabas.records.builder import seal
from barnabas.records.compression import DEFAULT_LIMIT_BYTES, Compression, Data, codec_of, decompress
from barnabas.records.record import Record


def section_of(batch: memoryview, header: BatchHeader, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Data:
    """The records of a whole batch, decompressed but not decoded."""
    section = batch[HEADER_SIZE : header.size]
    if not header.compression:
        return section
    return decompress(codec_of(header.compression), section, limit_bytes)


def records_of(batch: memoryview, *, from_offset: int = 0, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> list[Record]:
    """The records of one batch at or above an offset; of a control batch too (see `control`)."""
    header = check_batch(batch)
    records: list[Record] = engine.codec.decode_records(section_of(batch, header, limit_bytes), header, from_offset)
    return records


def read_records(
    fetched: memoryview, *, from_offset: int = 0, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[Record]:
    """The data records in a row of batches as a fetch brings them, without control batches and a cut last batch."""
    for position, header in headers(fetched):
        if header.last_offset >= from_offset and not header.is_control:
            batch = fetched[position : position + header.size]
            yield from records_of(batch, from_offset=from_offset, limit_bytes=limit_bytes)


class InvalidRecords(NamedTuple):
    """How many records of a batch are not acceptable, and the first of them: index, and timestamp or None (no key)."""

    total: int
    first: list[tuple[int, int | None]]


def find_invalid_records(
    batch: memoryview,
    *,
    require_key: bool,
    oldest_ms: int,
    newest_ms: int,
    most: int,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> InvalidRecords:
    """Look at every record where a topic demands it: its bytes (CorruptBatch), its key, and its time if it has one."""
    header = check_batch(batch)
    section = section_of(batch, header, limit_bytes)
    return InvalidRecords(*engine.codec.invalid_records(section, header, require_key, oldest_ms, newest_ms, most))


def recompress(
    batch: memoryview, compression: Compression, level: int | None = None, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytearray:
    """The same batch under another codec, for a topic whose `compression.type` is not the producer's."""
    header = check_batch(batch)
    opened = bytearray(HEADER_SIZE)
    opened += section_of(batch, header, limit_bytes)
    plain = header._replace(attributes=header.attributes & ~COMPRESSION_MASK)
    return seal(opened, plain, compression, level)
