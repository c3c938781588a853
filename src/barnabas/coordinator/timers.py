"""Deadlines of one shard, by key: set, moved, cancelled. The driver asks for the next one, and calls when it is due.

A key has one deadline at most. Moving it leaves a stale entry in the heap, which is passed over when it comes up.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class TimerKey(NamedTuple):
    """A deadline of a group: of the whole group, or of one member; `kind` is the group's own word for it."""

    group_id: str
    kind: str
    member_id: str = ""


class Timers(Generic[K]):
    __slots__ = ("_count", "_deadlines", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[K, tuple[int, int]] = {}  # deadline, and the number of the entry that counts
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: object) -> bool:
        return key in self._deadlines

    def set(self, key: K, deadline_ms: int) -> None:
        self._count += 1
        self._deadlines[key] = (deadline_ms, self._count)
        heappush(self._heap, (deadline_ms, self._count, key))
        if len(self._heap) > 64 + 4 * len(self._deadlines):  # heartbeats move deadlines far more often than they pass
            self._heap = [(at, number, key) for key, (at, number) in self._deadlines.items()]
            heapify(self._heap)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)

    @property
    def next_deadline_ms(self) -> int | None:
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[K]:
        """The keys whose deadline has come, in order; they are no longer set."""
        due = []
        self._drop_stale()
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, key = heappop(self._heap)
            del self._deadlines[key]
            due.append(key)
            self._drop_stale()
        return due

    def _drop_stale(self) -> None:
        heap = self._heap
        while heap and self._deadlines.get(heap[0][2], (0, -1))[1] != heap[0][1]:
            heappop(heap)
