"""What is done to good bytes, here and there, and to record batches, field by field."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from crc32c import crc32c

from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from tests.hostile.values import BOUNDARIES

_BYTES = (0, 1, 0x7F, 0x80, 0xFF)
_VARINTS = (b"\xff\xff\xff\xff\x07", b"\x80" * 9 + b"\x01", b"\xff" * 10)  # long, endless, too large


def damage(rng: random.Random, data: bytearray, start: int) -> None:
    """Do one thing to the bytes from `start` on."""
    if start < len(data):
        rng.choice(_WAYS)(rng, data, rng.randrange(start, len(data)))


def _flip_a_bit(rng: random.Random, data: bytearray, position: int) -> None:
    data[position] ^= 1 << rng.randrange(8)


def _set_a_byte(rng: random.Random, data: bytearray, position: int) -> None:
    data[position] = rng.choice((*_BYTES, rng.randrange(256)))


def _set_a_number(rng: random.Random, data: bytearray, position: int) -> None:
    """A length or a count, if it happens to lie there."""
    size = rng.choice((2, 4, 8))
    data[position : position + size] = (rng.choice(BOUNDARIES) & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def _insert_a_varint(rng: random.Random, data: bytearray, position: int) -> None:
    data[position:position] = rng.choice(_VARINTS)


def _cut_the_rest(rng: random.Random, data: bytearray, position: int) -> None:
    del data[position:]


def _cut_a_piece(rng: random.Random, data: bytearray, position: int) -> None:
    del data[position : position + rng.randrange(1, 9)]


def _insert_noise(rng: random.Random, data: bytearray, position: int) -> None:
    data[position:position] = rng.randbytes(rng.randrange(1, 9))


def _repeat_a_piece(rng: random.Random, data: bytearray, position: int) -> None:
    data[position:position] = data[position : position + rng.randrange(1, 40)] * rng.choice((1, 2, 10))


def _append_a_tag(rng: random.Random, data: bytearray, position: int) -> None:
    """In place of the zero tagged fields that a flexible message ends with: one that nobody knows, or that lies."""
    value = rng.randbytes(rng.randrange(0, 100))
    told = rng.choice((len(value), len(value), len(value) + 1, 127))
    data[-1:] = bytes((rng.choice((1, 1, 1, 2, 127)), rng.randrange(128), told)) + value


_WAYS = (
    _flip_a_bit, _set_a_byte, _set_a_number, _insert_a_varint, _cut_the_rest, _cut_a_piece, _insert_noise,
    _repeat_a_piece, _append_a_tag,
)  # fmt: skip


# record batches

_LENGTH, _CRC, _COVERED = slice(8, 12), slice(17, 21), 21
_BATCH_FIELDS = (
    (0, 8), (8, 4), (12, 4), (16, 1), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4),
)  # fmt: skip
"""Position and size of each field of the header, the CRC aside."""


def good_batches(rng: random.Random) -> Iterator[bytes]:
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
                yield bytes(builder.build())


def maybe_damaged(rng: random.Random, good: bytes) -> bytes:
    """A batch: one in three as it was, one with a wrong field, one with wrong bytes; mostly with a good CRC."""
    batch = bytearray(good)
    change = rng.randrange(3)
    if change == 1:
        position, size = rng.choice(_BATCH_FIELDS)
        value = rng.choice((*BOUNDARIES, rng.getrandbits(8 * size))) & ((1 << 8 * size) - 1)
        batch[position : position + size] = value.to_bytes(size, "big")
    elif change == 2:
        damage(rng, batch, _LENGTH.stop)
    if change and rng.random() < 0.8 and len(batch) > _COVERED:
        if rng.random() < 0.8:
            batch[_LENGTH] = struct.pack(">i", len(batch) - _LENGTH.stop)
        batch[_CRC] = struct.pack(">I", crc32c(bytes(batch[_COVERED:])))
    return bytes(batch)
