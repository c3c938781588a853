"""Record batches, and what is done to them: to their CRC, their fields, their compression and their records."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from barnabas.records.batch import CRC_START, HEADER_SIZE
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression, compress, decompress
from barnabas.wire.primitives import decode_varint
from tests.hostile.bombs import LIES
from tests.hostile.damage import VARINTS, damage
from tests.hostile.values import BOUNDARIES

_LENGTH, _CRC, _ATTRIBUTES = slice(8, 12), slice(17, 21), slice(21, 23)
_FIELDS = (
    (0, 8), (8, 4), (12, 4), (16, 1), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4),
)  # fmt: skip
"""Position and size of each field of the header, the CRC aside."""
_XERIAL_BLOCK = slice(16, 20)  # of snappy's framing: the size of the first block


class Batch(NamedTuple):
    whole: bytes
    codec: Compression
    plain: bytes
    """The records before they were compressed."""
    starts: list[int]
    """Where each of them begins, with its length."""


def good_batches(rng: random.Random) -> Iterator[Batch]:
    """Batches of every codec, with and without producer, key, value, headers and time."""
    for compression in Compression:
        for count in (1, 2, 50):
            for producer_id in (-1, 5):
                builder = BatchBuilder(
                    compression,
                    producer_id=producer_id,
                    producer_epoch=0 if producer_id >= 0 else -1,
                    base_sequence=rng.choice((0, 1, 2**31 - 1)) if producer_id >= 0 else -1,
                    transactional=rng.random() < 0.1 and producer_id >= 0,
                )
                for _ in range(count):
                    builder.append(
                        rng.choice((None, b"", b"key")),
                        rng.choice((None, b"", b"value" * 20)),
                        rng.choice(((), (("h", b"x"),), (("h", None), ("", b"")))),
                        rng.choice((-1, 0, 1_700_000_000_000)),
                    )
                whole = bytes(builder.build())
                plain = bytes(decompress(compression, whole[HEADER_SIZE:]))
                yield Batch(whole, compression, plain, list(_starts(plain)))


def _starts(records: bytes) -> Iterator[int]:
    position = 0
    while position < len(records):
        yield position
        size, position = decode_varint(memoryview(records), position)
        position += size


def maybe_mutated(rng: random.Random, good: Batch) -> tuple[bytes, str]:
    """A batch as it was, one in three, or with something wrong; the kind of it."""
    if rng.random() < 1 / 3:
        return good.whole, ""
    kind = rng.choice(tuple(KINDS) if good.codec else PLAIN_KINDS)
    return KINDS[kind](rng, good), kind


def _wrong_crc(rng: random.Random, good: Batch) -> bytes:
    batch = bytearray(good.whole)
    batch[rng.randrange(_CRC.start, _CRC.stop)] ^= rng.randrange(1, 256)
    return bytes(batch)


def _wrong_field(rng: random.Random, good: Batch) -> bytes:
    batch = bytearray(good.whole)
    position, size = rng.choice(_FIELDS)
    value = rng.choice((*BOUNDARIES, rng.getrandbits(8 * size))) & ((1 << 8 * size) - 1)
    batch[position : position + size] = value.to_bytes(size, "big")
    return _with_crc(batch)


def _wrong_bytes(rng: random.Random, good: Batch) -> bytes:
    """Somewhere; length and CRC are put right, mostly."""
    batch = bytearray(good.whole)
    damage(rng, batch, _LENGTH.stop)
    if rng.random() < 0.2 or len(batch) < CRC_START:
        return bytes(batch)
    return _with_crc(batch) if rng.random() < 0.2 else _sealed(batch)


def _wrong_codec(rng: random.Random, good: Batch) -> bytes:
    """Another codec than the bytes were compressed by, or one that there is not."""
    batch = bytearray(good.whole)
    (attributes,) = struct.unpack(">h", batch[_ATTRIBUTES])
    other = rng.choice([number for number in range(8) if number != good.codec])
    batch[_ATTRIBUTES] = struct.pack(">h", attributes & ~7 | other)
    return _with_crc(batch)


def _cut(rng: random.Random, good: Batch) -> bytes:
    return _sealed(bytearray(good.whole[: rng.randrange(HEADER_SIZE, len(good.whole))]))


def _size_lie(rng: random.Random, good: Batch) -> bytes:
    """The compressed bytes say that they are more, or fewer, than they are."""
    section = bytearray(good.whole[HEADER_SIZE:])
    number = rng.choice((0, 1, 2**16, 2**31 - 1, 2**32 - 1))
    if good.codec is Compression.GZIP:
        section[-4:] = number.to_bytes(4, "little")
    elif good.codec is Compression.SNAPPY and rng.random() < 0.5:
        section[_XERIAL_BLOCK] = number.to_bytes(4, "big")
    else:
        section[:] = LIES[good.codec]
    return _sealed(bytearray(good.whole[:HEADER_SIZE]) + section)


def _wrong_varint(rng: random.Random, good: Batch) -> bytes:
    """In place of a record's length, or of what comes soon after it, below compression and CRC."""
    records = bytearray(good.plain)
    start = rng.choice(good.starts)
    _, fields = decode_varint(memoryview(good.plain), start)
    position = rng.choice((start, fields + 1, fields + 2, fields + 3))  # length, time, offset, key's length: all small
    records[position : position + 1] = rng.choice((*VARINTS, b"\x00", b"\x01", b"\x02", b"\x7e", b"\x80\x00"))
    return _repacked(good, records)


def _wrong_records(rng: random.Random, good: Batch) -> bytes:
    records = bytearray(good.plain)
    damage(rng, records, 0)
    return _repacked(good, records)


def _repacked(good: Batch, records: bytearray) -> bytes:
    return _sealed(bytearray(good.whole[:HEADER_SIZE]) + compress(good.codec, bytes(records)))


def _sealed(batch: bytearray) -> bytes:
    """With the length and the CRC that it should have."""
    batch[_LENGTH] = struct.pack(">i", len(batch) - _LENGTH.stop)
    return _with_crc(batch)


def _with_crc(batch: bytearray) -> bytes:
    batch[_CRC] = struct.pack(">I", crc32c(bytes(batch[CRC_START:])))
    return bytes(batch)


_Way = Callable[[random.Random, Batch], bytes]

_COMPRESSED_KINDS: dict[str, _Way] = {"cut compressed bytes": _cut, "lie about size": _size_lie}
KINDS: dict[str, _Way] = {
    "wrong CRC": _wrong_crc,
    "batch field": _wrong_field,
    "batch bytes": _wrong_bytes,
    "wrong codec": _wrong_codec,
    "record varint": _wrong_varint,
    "record bytes": _wrong_records,
    **_COMPRESSED_KINDS,
}
PLAIN_KINDS = tuple(kind for kind in KINDS if kind not in _COMPRESSED_KINDS)
"""Those of a batch that is not compressed."""
