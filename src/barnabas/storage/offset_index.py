"""The sparse index from offset to file position of one segment (`.index`).

    relative_offset i32 | position i32        8 bytes, big-endian, both rising

An entry holds the *last* offset of a batch, relative to the segment's base offset, and where that batch begins. A
look-up gives a position at or before the batch that is wanted; a scan of batch headers does the rest.

Entries of the segment that is written to are kept in memory alone; they reach the disk when the segment is sealed, and
after a crash before that they are rebuilt from the log.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from typing import NamedTuple

ENTRY_SIZE = 8


class CorruptIndex(ValueError):
    """An index file that cannot be right; the index is to be rebuilt from the log."""


class IndexEntry(NamedTuple):
    offset: int
    position: int


class OffsetIndex:
    """Entries as two native arrays, so that a look-up is one `bisect` in C."""

    __slots__ = ("_offsets", "_positions", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("i")
        self._positions = array("i")

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> OffsetIndex:
        if len(data) % ENTRY_SIZE:
            raise CorruptIndex(f"an offset index of {len(data)} bytes is not made of entries of {ENTRY_SIZE}")
        numbers = array("i", data)
        if sys.byteorder == "little":
            numbers.byteswap()
        index = cls(base_offset)
        index._offsets = numbers[0::2]
        index._positions = numbers[1::2]
        for name, values in (("offsets", index._offsets), ("positions", index._positions)):
            if values and (values[0] < 0 or values[-1] - values[0] < len(values) - 1):  # zeros at the end, for one
                raise CorruptIndex(f"the {name} of an offset index do not rise")
        return index

    def encode(self) -> bytes:
        numbers = array("i", bytes(ENTRY_SIZE * len(self._offsets)))
        numbers[0::2] = self._offsets
        numbers[1::2] = self._positions
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers.tobytes()

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, offset: int, position: int) -> None:
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)

    def lookup(self, offset: int) -> int:
        """The position of the last indexed batch that ends at or before `offset`; 0 if there is none."""
        slot = bisect_right(self._offsets, offset - self.base_offset)
        return self._positions[slot - 1] if slot else 0

    def floor_position(self, position: int) -> int:
        """The last indexed position that is at or before `position`; 0 if there is none."""
        slot = bisect_right(self._positions, position)
        return self._positions[slot - 1] if slot else 0

    def last_entry(self) -> IndexEntry:
        if not self._offsets:
            return IndexEntry(self.base_offset, 0)
        return IndexEntry(self.base_offset + self._offsets[-1], self._positions[-1])

    def entries(self) -> list[IndexEntry]:
        base_offset = self.base_offset
        return [IndexEntry(base_offset + offset, position) for offset, position in zip(self._offsets, self._positions)]

    def truncate_to_position(self, position: int) -> None:
        """Forget the batches that begin at or after `position`."""
        slot = bisect_right(self._positions, position - 1)
        del self._offsets[slot:]
        del self._positions[slot:]
