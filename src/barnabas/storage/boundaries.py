"""Where batches begin, remembered for the offsets that were lately written or read.

A consumer that follows the end of the log, or reads it through, asks next for the offset where its last slice ended; so
nearly every look-up is answered from here, without an index and without the disk. Bounded by dropping the older of two
generations.
"""

from __future__ import annotations

from typing import TypeAlias

from barnabas.storage.segment import Segment

Boundary: TypeAlias = tuple[Segment, int]
"""A segment and a position in it: of a batch, or of the segment's end."""

_GENERATION_SIZE = 1024


class Boundaries:
    __slots__ = ("_new", "_old")

    def __init__(self) -> None:
        self._new: dict[int, Boundary] = {}
        self._old: dict[int, Boundary] = {}

    def add(self, offset: int, segment: Segment, position: int) -> None:
        """The batch that holds `offset`, or will, begins here."""
        new = self._new
        if len(new) >= _GENERATION_SIZE:
            self._old = new
            new = self._new = {}
        new[offset] = (segment, position)

    def find(self, offset: int) -> Boundary | None:
        return self._new.get(offset) or self._old.get(offset)

    def clear(self) -> None:
        self._new, self._old = {}, {}
