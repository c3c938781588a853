"""Which partition a record goes to.

A key goes where Java's client would put it: murmur2 of its bytes, sign bit cleared, modulo the number of partitions, so
that producers in all languages agree. Records without a key stay with one partition for about a batch, which makes few
large batches instead of many small ones, and then move on to another (KIP-480). It is drawn by lot, and a partition
with more batches waiting gets fewer lots: one on a slow broker gets less, until it has caught up (KIP-794).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from typing import TypeAlias

from barnabas.records import engine

Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""A caller's choice, given topic, key, value and the number of partitions."""


def partition_of_key(key: bytes, partition_count: int) -> int:
    hashed: int = engine.append_codec.murmur2(key)
    return (hashed & 0x7FFFFFFF) % partition_count


class StickyPartition:
    """The partition that keyless records of one topic go to for now: `current`."""

    __slots__ = ("_random", "current")

    def __init__(self, random: Random) -> None:
        self._random = random
        self.current = 0

    def move(self, waiting_batches: Sequence[int | None]) -> None:
        """Draw the next one, given how many batches wait for each partition; None is one that has no leader."""
        lengths = [length for length in waiting_batches if length is not None]
        longest = max(lengths, default=0)
        lots = [0 if length is None else longest + 1 - length for length in waiting_batches]
        if not lengths:  # nobody leads anything: one is as good as another
            lots = [1] * len(waiting_batches)
        cumulative = list(accumulate(lots))
        drawn = self._random.randrange(cumulative[-1])
        self.current = next(index for index, end in enumerate(cumulative) if drawn < end)
