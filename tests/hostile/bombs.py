"""Record batches that are much larger once they are opened, or that say so."""

from __future__ import annotations

import gzip
import struct

from crc32c import crc32c

from barnabas.records.batch import HEADER_SIZE
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression, compress
from tests.hostile.victim import MIB

HIDDEN_MIB = {Compression.GZIP: 250, Compression.ZSTD: 250, Compression.LZ4: 200, Compression.SNAPPY: 20}
"""1000:1 where the codec can do it, else what fits into a mebibyte: 255:1 is the most of LZ4, 64:3 that of snappy."""


def bomb(codec: Compression) -> bytes:
    """A batch that a topic takes by its size, with one record that is hundreds of times longer once it is opened."""
    builder = BatchBuilder()
    builder.append(None, bytes(HIDDEN_MIB[codec] * MIB))
    plain = bytes(builder.build())
    section = plain[HEADER_SIZE:]
    if codec is Compression.GZIP:
        return _batch(plain, codec, gzip.compress(section, 9))
    return _batch(plain, codec, bytes(compress(codec, section)))


_TIB = (1 << 40).to_bytes(8, "little")
LIES = {
    # The length as a varint, then a literal of one byte.
    Compression.SNAPPY: b"\xff\xff\xff\xff\x0f\x00x",
    # Version 1, independent blocks, a content size, the header's checksum; one block stored as it is; the end.
    Compression.LZ4: b"".join((b"\x04\x22\x4d\x18", b"\x68\x70", _TIB, b"\x97", b"\x01\x00\x00\x80x", bytes(4))),
    # A single segment with a content size of eight bytes; one last block stored as it is.
    Compression.ZSTD: b"".join((b"\x28\xb5\x2f\xfd\xe0", _TIB, b"\x09\x00\x00x")),
}
"""A byte that is announced as 4 GiB or 1 TiB. gzip tells its size at the end only, where nobody can rely on it."""


def liar(codec: Compression) -> bytes:
    """A batch of a few bytes that are announced as gigabytes."""
    builder = BatchBuilder()
    builder.append(None, b"")
    return _batch(bytes(builder.build()), codec, LIES[codec])


def _batch(plain: bytes, codec: Compression, section: bytes) -> bytes:
    batch = bytearray(plain[:HEADER_SIZE] + section)
    batch[8:12] = struct.pack(">i", len(batch) - 12)
    batch[21:23] = struct.pack(">h", codec)
    batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
    return bytes(batch)
