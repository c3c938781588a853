"""Reading batches in a file one after the other, each checked to its CRC, for those who doubt what the disk holds."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.core.seams import File
from barnabas.records.batch import CRC_START, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader
from barnabas.records.crc import crc32c

_CHUNK_BYTES = 1024 * 1024


def valid_batches(
    file: File, size: int, position: int = 0, chunk_bytes: int = _CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of the batches from a position on, to the first that is not whole or not what its CRC says.

    `size` is where the last batch ends. Blocks while it reads, `chunk_bytes` at a time.
    """
    chunk_start, chunk = position, memoryview(b"")
    while size - position >= HEADER_SIZE:
        start = position - chunk_start
        if start + HEADER_SIZE > len(chunk):
            chunk_start, start, chunk = position, 0, memoryview(file.read(position, chunk_bytes))
            if len(chunk) < HEADER_SIZE:
                return  # the file is shorter than it should be
        header = BatchHeader._make(HEADER.unpack_from(chunk, start))
        if (
            header.magic != MAGIC
            or header.batch_length < HEADER_SIZE - LOG_OVERHEAD
            or header.size > size - position
            or header.last_offset_delta < 0
        ):
            return
        if start + header.size <= len(chunk):
            crc = crc32c(chunk[start + CRC_START : start + header.size])
        else:
            crc = _crc_of(file, position + CRC_START, position + header.size)
        if crc != header.crc:
            return
        yield position, header
        position += header.size


def _crc_of(file: File, start: int, end: int) -> int:
    crc = 0
    for position in range(start, end, _CHUNK_BYTES):
        crc = crc32c(file.read(position, min(_CHUNK_BYTES, end - position)), crc)
    return crc
