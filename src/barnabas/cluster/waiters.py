"""Who waits for a partition's log to get somewhere."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

from barnabas.core.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.partition import Partition


class DataWatcher(Protocol):
    """Somebody who waits for more to read, such as a long-polling fetch."""

    def data_arrived(self, partition: Partition, size_bytes: int) -> None:
        """More bytes than before lie below the watermark, or (with 0) the partition is no longer ours to serve."""
        ...


class OffsetWaiters:
    """Call-backs that wait for an offset to be reached, the lowest first."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[ErrorCode], None]]] = []
        self._count = 0

    def add(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        self._count += 1
        heappush(self._heap, (offset, self._count, callback))

    def __bool__(self) -> bool:
        return bool(self._heap)

    def reached(self, offset: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= offset:
            heappop(heap)[2](ErrorCode.NONE)

    def fail(self, reason: ErrorCode) -> None:
        heap, self._heap = self._heap, []
        while heap:
            heappop(heap)[2](reason)
