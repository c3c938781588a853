"""Which partition a record goes to.

A key goes where Java's client would put it: murmur2 of its bytes, sign bit cleared, modulo the number of partitions, so
that producers in all languages agree. Records without a key go round the partitions batch by batch (KIP-480): they stay
with one partition until its batch is full, which makes few large batches instead of many small ones.
"""

from __future__ import annotations

from random import Random

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_WORD = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed, as an unsigned number."""
    length = len(data)
    whole = length & ~3
    hash_ = _SEED ^ length
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MIX & _WORD
        word = (word ^ word >> 24) * _MIX & _WORD
        hash_ = (hash_ * _MIX & _WORD) ^ word
    if length > whole:
        hash_ = (hash_ ^ int.from_bytes(data[whole:], "little")) * _MIX & _WORD
    hash_ = (hash_ ^ hash_ >> 13) * _MIX & _WORD
    return hash_ ^ hash_ >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartition:
    """The partition that keyless records of one topic go to for now."""

    __slots__ = ("_current", "_random")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._current = -1

    def current(self, partition_count: int) -> int:
        if not 0 <= self._current < partition_count:
            self._current = self._random.randrange(partition_count)
        return self._current

    def next(self, partition_count: int) -> None:
        """Move on, to another partition wherever there is one."""
        if partition_count > 1:
            step = 1 + self._random.randrange(partition_count - 1)
            self._current = (self._current + step) % partition_count
