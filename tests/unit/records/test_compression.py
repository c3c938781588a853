"""Codecs: round trips, bounded memory, corrupt input."""

from __future__ import annotations

import contextlib
import os
import random
import struct
import subprocess
import sys

import cramjam
import pytest

from barnabas.records.batch import CorruptBatch
from barnabas.records.compression import BY_NAME, LEVELS, Compression, DecompressedTooLarge, compress, decompress

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"".join(b'{"user": %d, "page": "/item/%d"}' % (i * 7919 % 10007, i) for i in range(5000))


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, os.urandom(100_000), bytes(1_000_000)], ids=len)
def test_what_was_compressed_comes_back_within_a_limit_of_its_size(codec: Compression, data: bytes) -> None:
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, len(data))) == data
    assert bytes(decompress(codec, memoryview(bytes(packed)))) == data
    if data:
        with pytest.raises(DecompressedTooLarge, match=f"limit of {len(data) - 1} bytes"):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", LEVELS)
def test_levels_trade_size_for_time(codec: Compression) -> None:
    sizes = [len(compress(codec, TEXT, level)) for level in (LEVELS[codec].highest, None, LEVELS[codec].lowest)]
    assert sizes[0] <= sizes[1]
    for level in (LEVELS[codec].lowest, LEVELS[codec].default, LEVELS[codec].highest):
        assert bytes(decompress(codec, compress(codec, TEXT, level))) == TEXT


def test_every_codec_has_kafkas_name_and_number() -> None:
    assert {name: int(codec) for name, codec in BY_NAME.items()} == {
        "none": 0,
        "gzip": 1,
        "snappy": 2,
        "lz4": 3,
        "zstd": 4,
    }


def test_snappy_is_written_in_xerial_frames_and_read_raw_too() -> None:
    framed = bytes(compress(Compression.SNAPPY, TEXT))
    assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (size,) = struct.unpack_from(">i", framed, 16)
    assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + size])) == TEXT[: 32 * 1024]
    assert bytes(decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_input_is_a_corrupt_batch(codec: Compression) -> None:
    packed = bytes(compress(codec, TEXT))
    xerial_header = 16  # alone, it is a good frame around nothing
    for size in [*range(1, 40), len(packed) // 2, len(packed) - 1]:
        if codec is not Compression.SNAPPY or size != xerial_header:
            with pytest.raises(CorruptBatch):
                decompress(codec, packed[:size])
    with pytest.raises(CorruptBatch):
        decompress(codec, packed + b"left over")
    with pytest.raises(CorruptBatch):
        decompress(codec, b"this is not compressed at all")


@pytest.mark.parametrize("codec", CODECS)
def test_random_damage_is_a_corrupt_batch_or_goes_unseen_but_nothing_else(codec: Compression) -> None:
    chance = random.Random(int(codec))
    packed = bytes(compress(codec, TEXT))
    for _ in range(300):
        damaged = bytearray(packed)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.choice([chance.randrange(len(packed)), chance.randrange(40)])] = chance.randrange(256)
        with contextlib.suppress(CorruptBatch):
            assert len(decompress(codec, damaged, 1_000_000)) <= 1_000_000


def bomb_of(codec: Compression) -> bytes:
    """256 MiB of zeros, as small as the codec can make them."""
    if codec is Compression.ZSTD:
        # A frame that tells no size, of blocks of four bytes that each repeat one byte 128 KiB times: 32,768 to 1.
        repeated = struct.pack("<I", 131072 << 3 | 1 << 1)[:3] + b"\x00"
        last = struct.pack("<I", 131072 << 3 | 1 << 1 | 1)[:3] + b"\x00"
        return b"\x28\xb5\x2f\xfd\x00\x58" + 2047 * repeated + last
    return bytes(compress(codec, bytes(256 << 20)))


MEASURE = """
import resource, sys
from barnabas.records.compression import Compression, DecompressedTooLarge, decompress
bomb = sys.stdin.buffer.read()
decompress(Compression({codec}), {small!r})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(Compression({codec}), bomb, 8 << 20)
except DecompressedTooLarge:
    print(len(bomb), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_of_256_mib_takes_no_more_memory_than_a_few_times_the_limit(codec: Compression) -> None:
    script = MEASURE.format(codec=int(codec), small=bytes(compress(codec, TEXT)))
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, input=bomb_of(codec), capture_output=True, timeout=60, check=True)
    size, grown = map(int, done.stdout.split())
    assert size < 13 << 20
    assert grown * (1024 if sys.platform == "linux" else 1) < 40 << 20
