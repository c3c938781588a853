"""A range of whole batches in one segment's file, ready to be sent.

It refers to the file and not to the bytes: nothing is read until somebody sends it. A deletion leaves the file
readable for as long as the slice lives; a truncation does not, and `is_intact` tells.
"""

from __future__ import annotations

from barnabas.core.seams import File
from barnabas.storage.segment import Segment

_WARM_BYTES = 256 * 1024


class LogSlice:
    __slots__ = ("_segment", "_truncations", "file", "next_offset", "offset", "position", "size")

    def __init__(self, segment: Segment, position: int, size: int, offset: int, next_offset: int) -> None:
        self.file: File = segment.file
        self.position = position
        self.size = size
        self.offset = offset
        """The offset that was asked for; the first batch holds it or comes after it."""
        self.next_offset = next_offset
        """No record of the slice is at or beyond this offset."""
        self._segment = segment
        self._truncations = segment.truncations

    def __len__(self) -> int:
        return self.size

    @property
    def is_intact(self) -> bool:
        """Whether the range still holds what it held when it was given out."""
        return self._truncations == self._segment.truncations

    def read(self) -> bytes:
        return self.file.read(self.position, self.size)

    def is_cached(self) -> bool:
        return self.file.is_cached(self.position, self.size)

    def warm(self) -> None:
        """Bring the range into the page cache; to be called in a thread."""
        end = self.position + self.size
        for position in range(self.position, end, _WARM_BYTES):
            self.file.read(position, min(_WARM_BYTES, end - position))
