"""Which partition of an internal topic a group or a transactional id belongs to.

Java's `String.hashCode`, because clients and tools of Kafka's compute it too: the code units of UTF-16, 31 times and
added, in 32 bits; then its absolute value, modulo the partitions.
"""

from __future__ import annotations

from array import array
from functools import lru_cache

_LOWEST = -(1 << 31)


def java_hash(text: str) -> int:
    """`String.hashCode` as the signed 32-bit number that Java sees."""
    value = 0
    for unit in array("H", text.encode("utf-16-le", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=10_000)  # asked with every request, a dozen times the price of the answer
def partition_of(key: str, partitions: int) -> int:
    value = java_hash(key)
    if value == _LOWEST:  # has no absolute value in 32 bits
        value = 0
    return abs(value) % partitions
