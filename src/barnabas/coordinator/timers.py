"""Deadlines of one shard, by key: set, moved, cancelled. The driver asks for the next one, and calls when it is due.

A key has one deadline at most. Heartbeats and commits move deadlines away far more often than they pass, so moving one
away only notes where it now lies: its entry in the heap follows when it comes up. Moving one nearer, or cancelling it,
leaves a stale entry, which is passed over.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush, heapreplace
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
        self._deadlines: dict[K, tuple[int, int]] = {}  # deadline, and the number of its entry
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: object) -> bool:
        return key in self._deadlines

    def set(self, key: K, deadline_ms: int) -> None:
        before = self._deadlines.get(key)
        if before is not None and before[0] <= deadline_ms:
            self._deadlines[key] = (deadline_ms, before[1])
            return
        self._count += 1
        self._deadlines[key] = (deadline_ms, self._count)
        heappush(self._heap, (deadline_ms, self._count, key))
        if len(self._heap) > 64 + 4 * len(self._deadlines):
            self._heap = [(at, number, key) for key, (at, number) in self._deadlines.items()]
            heapify(self._heap)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)

    @property
    def next_deadline_ms(self) -> int | None:
        self._settle_first()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[K]:
        """The keys whose deadline has come, in order; they are no longer set."""
        due = []
        self._settle_first()
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, key = heappop(self._heap)
            del self._deadlines[key]
            due.append(key)
            self._settle_first()
        return due

    def _settle_first(self) -> None:
        """Let the first entry be one that counts, and stands where it should."""
        heap = self._heap
        while heap:
            at, number, key = heap[0]
            deadline = self._deadlines.get(key)
            if deadline is None or deadline[1] != number:
                heappop(heap)
            elif deadline[0] != at:
                heapreplace(heap, (deadline[0], number, key))
            else:
                return
