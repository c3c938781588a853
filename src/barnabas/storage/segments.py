"""The segments of one log in the order of their offsets; the last one is written to.

At most a few sealed segments stay warm, with their file open and their indexes in memory, so that a log of any length
costs little while nobody reads its past.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from barnabas.storage.segment import Segment

_WARM_SEGMENTS = 4


class Segments:
    __slots__ = ("_base_offsets", "_segments", "_warm", "active")

    def __init__(self, segments: list[Segment]) -> None:
        """`segments` are sorted by base offset, and at least one."""
        self._segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        self._warm: list[Segment] = []
        self.active = segments[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        return sum([segment.size for segment in self._segments])

    def add(self, segment: Segment) -> None:
        """Append a segment beyond all others; it becomes the active one."""
        self.touch(self.active)
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self.active = segment

    def floor(self, offset: int) -> Segment:
        """The segment that holds `offset`: the last one that begins at or before it, else the first."""
        return self._segments[max(bisect_right(self._base_offsets, offset) - 1, 0)]

    def after(self, segment: Segment) -> Segment | None:
        """The next segment, if there is one."""
        slot = bisect_right(self._base_offsets, segment.base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def since(self, offset: int) -> list[Segment]:
        """From the segment that holds `offset` to the last."""
        return self._segments[max(bisect_right(self._base_offsets, offset) - 1, 0) :]

    def remove(self, doomed: list[Segment]) -> None:
        """Take segments out; at least one must remain."""
        for segment in doomed:
            slot = bisect_left(self._base_offsets, segment.base_offset)
            del self._segments[slot], self._base_offsets[slot]
            if segment in self._warm:
                self._warm.remove(segment)
        self.active = self._segments[-1]

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Put one segment in the place of sealed ones that follow each other; it begins where they began."""
        self.remove(old)
        slot = bisect_left(self._base_offsets, new.base_offset)
        self._segments.insert(slot, new)
        self._base_offsets.insert(slot, new.base_offset)

    def restart_with(self, segment: Segment) -> None:
        """Begin anew with one segment in place of all."""
        self._segments = [segment]
        self._base_offsets = [segment.base_offset]
        self._warm.clear()
        self.active = segment

    def touch(self, segment: Segment) -> None:
        """A sealed segment is being read: keep it warm, and let the one that was read longest ago cool."""
        warm = self._warm
        if segment in warm:
            warm.remove(segment)
        warm.append(segment)
        if len(warm) > _WARM_SEGMENTS:
            warm.pop(0).cool()
