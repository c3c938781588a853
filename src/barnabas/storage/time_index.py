"""The sparse index from timestamp to offset of one segment (`.timeindex`).

    timestamp i64 | relative_offset i32       12 bytes, big-endian, timestamps rising

An entry says: up to this offset, the last of its batch, the greatest timestamp is this one. The last entry of a sealed
segment holds the segment's greatest timestamp. As with the offset index, entries stay in memory until the segment is
sealed. They are kept as the file holds them: look-ups by time are rare.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.records.batch import NO_TIMESTAMP
from barnabas.storage.offset_index import CorruptIndex

_ENTRY = struct.Struct(">qi")
ENTRY_SIZE = _ENTRY.size


class TimeEntry(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex:
    __slots__ = ("_data", "base_offset", "last_timestamp")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._data = bytearray()
        self.last_timestamp = NO_TIMESTAMP

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> TimeIndex:
        if len(data) % ENTRY_SIZE:
            raise CorruptIndex(f"a time index of {len(data)} bytes is not made of entries of {ENTRY_SIZE}")
        index = cls(base_offset)
        index._data += data
        index.last_timestamp = index.last_entry().timestamp
        if len(index) and index._entry(0).timestamp > index.last_timestamp:
            raise CorruptIndex("the timestamps of a time index do not rise")
        return index

    def encode(self) -> bytes:
        return bytes(self._data)

    def __len__(self) -> int:
        return len(self._data) // ENTRY_SIZE

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry unless it would tell nothing new."""
        if timestamp > self.last_timestamp:
            self._data += _ENTRY.pack(timestamp, offset - self.base_offset)
            self.last_timestamp = timestamp

    def lookup(self, timestamp: int) -> TimeEntry:
        """The last entry whose timestamp is less than `timestamp`: before its offset there is nothing as late."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle).timestamp < timestamp:
                low = middle + 1
            else:
                high = middle
        return self._entry(low - 1) if low else TimeEntry(NO_TIMESTAMP, self.base_offset)

    def last_entry(self) -> TimeEntry:
        return self._entry(len(self) - 1) if self._data else TimeEntry(NO_TIMESTAMP, self.base_offset)

    def entries(self) -> list[TimeEntry]:
        return [self._entry(slot) for slot in range(len(self))]

    def truncate_to(self, offset: int) -> None:
        """Forget the entries at or after `offset`."""
        kept = sum(1 for entry in self.entries() if entry.offset < offset)
        del self._data[kept * ENTRY_SIZE :]
        self.last_timestamp = self.last_entry().timestamp

    def _entry(self, slot: int) -> TimeEntry:
        timestamp, relative_offset = _ENTRY.unpack_from(self._data, slot * ENTRY_SIZE)
        return TimeEntry(timestamp, self.base_offset + relative_offset)
