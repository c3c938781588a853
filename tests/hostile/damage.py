"""What is done to good bytes, here and there, whatever they are."""

from __future__ import annotations

import random

from tests.hostile.values import BOUNDARIES

_BYTES = (0, 1, 0x7F, 0x80, 0xFF)
VARINTS = (b"\xff\xff\xff\xff\x07", b"\x80" * 9 + b"\x01", b"\xff" * 10)  # long, endless, too large


def damage(rng: random.Random, data: bytearray, start: int) -> None:
    """Do one thing to the bytes from `start` on."""
    if start < len(data):
        rng.choice(_WAYS)(rng, data, rng.randrange(start, len(data)))


def _flip_a_bit(rng: random.Random, data: bytearray, position: int) -> None:
    data[position] ^= 1 << rng.randrange(8)


def _set_a_byte(rng: random.Random, data: bytearray, position: int) -> None:
    data[position] = rng.choice((*_BYTES, rng.randrange(256)))


def _set_a_number(rng: random.Random, data: bytearray, position: int) -> None:
    size = rng.choice((2, 4, 8))
    data[position : position + size] = (rng.choice(BOUNDARIES) & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def _insert_a_varint(rng: random.Random, data: bytearray, position: int) -> None:
    data[position:position] = rng.choice(VARINTS)


def _cut_the_rest(rng: random.Random, data: bytearray, position: int) -> None:
    del data[position:]


def _cut_a_piece(rng: random.Random, data: bytearray, position: int) -> None:
    del data[position : position + rng.randrange(1, 9)]


def _insert_noise(rng: random.Random, data: bytearray, position: int) -> None:
    data[position:position] = rng.randbytes(rng.randrange(1, 9))


def _repeat_a_piece(rng: random.Random, data: bytearray, position: int) -> None:
    data[position:position] = data[position : position + rng.randrange(1, 40)] * rng.choice((1, 2, 10))


_WAYS = (
    _flip_a_bit, _set_a_byte, _set_a_number, _insert_a_varint, _cut_the_rest, _cut_a_piece, _insert_noise,
    _repeat_a_piece,
)  # fmt: skip
