"""The four codecs of a record batch, with memory that the caller bounds.

A compressed megabyte may claim to be a terabyte, so `decompress` never holds more than `limit_bytes` of output. gzip
goes through zlib, which stops by itself and compresses faster than cramjam does; the others go through cramjam into a
buffer of a size that the data declare or that is guessed, and that grows up to the limit.

Snappy comes in two forms: blocks of 32 KiB in xerial's framing, as Java writes and demands it, and one raw block, as
librdkafka writes it. We write the first and read both.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

import cramjam

from barnabas.records.batch import CorruptBatch

DEFAULT_LIMIT_BYTES = 128 << 20

Data = bytes | bytearray | memoryview


class Compression(IntEnum):
    """The codec's number in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def codec_name(self) -> str:
        """The name in `compression.type` of a producer."""
        return self.name.lower()


class Level(NamedTuple):
    """What `compression.<codec>.level` may be."""

    default: int
    lowest: int
    highest: int


BY_NAME = {codec.codec_name: codec for codec in Compression}
LEVELS = {
    Compression.GZIP: Level(zlib.Z_DEFAULT_COMPRESSION, zlib.Z_BEST_SPEED, zlib.Z_BEST_COMPRESSION),
    Compression.LZ4: Level(9, 1, 17),
    Compression.ZSTD: Level(3, -131072, 22),
}


class DecompressedTooLarge(CorruptBatch):
    """More came out of a batch than the reader allows."""


def codec_of(number: int) -> Compression:
    try:
        return Compression(number)
    except ValueError:
        raise CorruptBatch(f"compression codec {number} is unknown; the highest is {max(Compression)}") from None


def compress(codec: Compression, data: Data, level: int | None = None) -> Data:
    """`data` as the codec writes it; a level of None is Kafka's default."""
    if codec is Compression.NONE:
        return data
    if level is None and codec in LEVELS:
        level = LEVELS[codec].default
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Compression, data: Data, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Data:
    """What `compress` was given; CorruptBatch if it is damaged, DecompressedTooLarge if it is beyond the limit."""
    if codec is Compression.NONE:
        if len(data) > limit_bytes:
            raise _too_large(codec, limit_bytes)
        return data
    return _DECOMPRESSORS[codec](data, limit_bytes)


def _too_large(codec: Compression, limit_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"the records of a {codec.codec_name} batch exceed the limit of {limit_bytes} bytes")


def _corrupt(codec: Compression, cause: object) -> CorruptBatch:
    return CorruptBatch(f"the records of a {codec.codec_name} batch cannot be decompressed: {cause}")


# gzip

_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # zlib's way to ask for gzip's header and trailer


def _compress_gzip(data: Data, level: int | None) -> Data:
    assert level is not None
    return zlib.compress(data, level, _GZIP_WINDOW)


def _decompress_gzip(data: Data, limit_bytes: int) -> Data:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        output = stream.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise _corrupt(Compression.GZIP, error) from None
    if len(output) > limit_bytes:
        raise _too_large(Compression.GZIP, limit_bytes)
    if not stream.eof or stream.unused_data:
        raise _corrupt(Compression.GZIP, "bytes after its end" if stream.eof else "the stream ends too early")
    return output


# snappy

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + Struct(">ii").pack(1, 1)  # its version, and the oldest that can read it
_XERIAL_BLOCK = 32 * 1024
_BLOCK_SIZE = Struct(">i")
_SNAPPY_HIGHEST_RATIO = 32  # three bytes copy at most 64: a header that claims more is lying


def _compress_snappy(data: Data, level: int | None) -> Data:
    view = memoryview(data)
    output = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = memoryview(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        output += _BLOCK_SIZE.pack(len(block))
        output += block
    return output


def _decompress_snappy(data: Data, limit_bytes: int) -> Data:
    view = memoryview(data)
    blocks = _xerial_blocks(view) if view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [view]
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        if any(size > _SNAPPY_HIGHEST_RATIO * len(block) for size, block in zip(sizes, blocks)):
            raise _corrupt(Compression.SNAPPY, "a block declares more than it can hold")
        if sum(sizes) > limit_bytes:
            raise _too_large(Compression.SNAPPY, limit_bytes)
        output = bytearray(sum(sizes))
        room, start = memoryview(output), 0
        for size, block in zip(sizes, blocks):
            cramjam.snappy.decompress_raw_into(block, room[start : start + size])
            start += size
    except cramjam.DecompressionError as error:
        raise _corrupt(Compression.SNAPPY, error) from None
    return output


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    blocks = []
    position, end = len(_XERIAL_HEADER), len(view)
    while position != end:
        start = position + _BLOCK_SIZE.size
        if start > end:
            raise _corrupt(Compression.SNAPPY, f"half a block size at byte {position}")
        (size,) = _BLOCK_SIZE.unpack_from(view, position)
        position = start + size
        if size <= 0 or position > end:
            raise _corrupt(Compression.SNAPPY, f"a block of {size} bytes at byte {start} of {end}")
        blocks.append(view[start:position])
    return blocks


# lz4 and zstd

_OVERFLOW = "failed to write whole buffer"  # what cramjam says when the output is too small
_FIRST_GUESS = 8  # times the input, where the data do not tell
_GROWTH = 4
_HIGHEST_TRUST = 256  # times the input: a tiny batch that declares gigabytes gets its room step by step


def _compress_lz4(data: Data, level: int | None) -> Data:
    """Blocks of 64 KiB that do not refer to each other, for Java reads no others.

    As in Java the default level stands for the fast compressor, any other for the high one.
    """
    assert level is not None
    frame_level = 1 if level == LEVELS[Compression.LZ4].default else min(max(level, 3), 12)
    compressor = cramjam.lz4.Compressor(frame_level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # it takes nothing else
    return memoryview(compressor.finish())


def _compress_zstd(data: Data, level: int | None) -> Data:
    return memoryview(cramjam.zstd.compress(data, level))


def _declared_by_lz4(data: Data) -> int:
    if len(data) >= 14 and data[4] & 0x08:
        return int.from_bytes(data[6:14], "little")
    return 0


def _declared_by_zstd(data: Data) -> int:
    """The frame's content size (RFC 8878, 3.1.1.1), or 0 where there is none, as Java leaves it out."""
    if len(data) < 18:
        return 0
    descriptor = data[4]
    single_segment = bool(descriptor & 0x20)
    width = (int(single_segment), 2, 4, 8)[descriptor >> 6]
    start = 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 0x03]
    return int.from_bytes(data[start : start + width], "little") + (256 if width == 2 else 0)


def _growing(
    codec: Compression, decompress_into: Callable[[Data, bytearray], int], declared: Callable[[Data], int]
) -> Callable[[Data, int], Data]:
    def decompress(data: Data, limit_bytes: int) -> Data:
        room = declared(data) or _FIRST_GUESS * len(data)
        room = min(room, _HIGHEST_TRUST * len(data), limit_bytes)
        while True:
            output = bytearray(room)
            try:
                size = decompress_into(data, output)
            except cramjam.DecompressionError as error:
                if str(error) != _OVERFLOW:
                    raise _corrupt(codec, error) from None
            else:
                return memoryview(output)[:size]
            if room == limit_bytes:
                raise _too_large(codec, limit_bytes)
            room = min(_GROWTH * room, limit_bytes)

    return decompress


_COMPRESSORS: dict[Compression, Callable[[Data, int | None], Data]] = {
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[Compression, Callable[[Data, int], Data]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _growing(Compression.LZ4, cramjam.lz4.decompress_into, _declared_by_lz4),
    Compression.ZSTD: _growing(Compression.ZSTD, cramjam.zstd.decompress_into, _declared_by_zstd),
}
