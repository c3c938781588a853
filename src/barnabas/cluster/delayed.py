"""Requests that wait: a produce for its acknowledgement, a fetch for enough to read.

Each is woken by its partitions and bounded by a timer. What happens on completion is the caller's.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.partition import Partition
    from barnabas.storage.log import AppendInfo

CallLater = Callable[[float, Callable[[], None]], TimerHandle]


class DelayedProduce:
    """Waits until every append of one request is acknowledged, each with its own outcome."""

    __slots__ = ("_done", "_outcomes", "_pending", "_timer")

    def __init__(
        self, call_later: CallLater, timeout_seconds: float, done: Callable[[dict[int, ErrorCode]], None]
    ) -> None:
        self._done = done
        self._outcomes: dict[int, ErrorCode] = {}
        self._pending: set[int] = set()
        self._timer = call_later(timeout_seconds, self._time_out)

    def wait_for(self, item: int, partition: Partition, info: AppendInfo, required_acks: int) -> None:
        """Wait for one append; `item` is the caller's number for it."""
        self._pending.add(item)
        partition.when_acknowledged(info, required_acks, lambda outcome: self._settle(item, outcome))

    def _settle(self, item: int, outcome: ErrorCode) -> None:
        if item in self._pending:
            self._pending.discard(item)
            self._outcomes[item] = outcome
            if not self._pending:
                self._timer.cancel()
                self._done(self._outcomes)

    def _time_out(self) -> None:
        for item in sorted(self._pending):
            self._outcomes[item] = ErrorCode.REQUEST_TIMED_OUT
        self._pending.clear()
        self._done(self._outcomes)


class DelayedFetch:
    """Waits until enough bytes have arrived in any of its partitions, one of them changed hands, or time is up.

    For who reads committed records alone, bytes arrive when the last stable offset has passed them: what comes while a
    transaction is open counts with its end, or every batch in between would wake a reader that cannot see it.
    """

    __slots__ = ("_done", "_held_back_bytes", "_missing_bytes", "_partitions", "_stable_offsets", "_timer")

    def __init__(
        self,
        call_later: CallLater,
        timeout_seconds: float,
        missing_bytes: int,
        partitions: list[Partition],
        done: Callable[[], None],
        *,
        read_committed: bool = False,
    ) -> None:
        self._stable_offsets: dict[Partition, int] | None = None
        self._held_back_bytes: dict[Partition, int] = {}
        if read_committed:
            self._stable_offsets = {partition: partition.log.last_stable_offset for partition in partitions}
            for partition, offset in self._stable_offsets.items():
                if offset < partition.log.high_watermark:
                    self._held_back_bytes[partition] = missing_bytes  # nobody knows how much it is: let the reader look
        self._missing_bytes = missing_bytes
        self._partitions = partitions
        self._done = done
        self._timer = call_later(timeout_seconds, self.complete)
        for partition in partitions:
            partition.watch(self)

    def data_arrived(self, partition: Partition, size_bytes: int) -> None:
        if self._stable_offsets is not None and size_bytes:
            size_bytes += self._held_back_bytes.pop(partition, 0)
            stable_offset = partition.log.last_stable_offset
            if stable_offset == self._stable_offsets[partition]:
                self._held_back_bytes[partition] = size_bytes
                return
            self._stable_offsets[partition] = stable_offset
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0 or not size_bytes:
            self.complete()

    def complete(self) -> None:
        if self._partitions:  # else it is a second wake-up within one change
            self.abandon()
            self._done()

    def abandon(self) -> None:
        """Stop waiting: nobody asks for the answer any more."""
        self._timer.cancel()
        for partition in self._partitions:
            partition.unwatch(self)
        self._partitions = []
