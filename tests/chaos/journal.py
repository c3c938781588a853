"""What the clients of a run did and learnt: their history for the checker, and how far each has come."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tests.checker.history import UNTOLD, Acknowledged, Assigned, Event, History, Offsets, Polled, TopicPartition

LIFE = 0  # nothing here may lose what was promised
Landed = tuple[TopicPartition, int, bytes]
"""A value, and where it is."""


class Journal:
    """Shared by the threads of all clients."""

    def __init__(self) -> None:
        self.history = History(time.monotonic)
        self.failures: list[str] = []
        """What must not happen to any client."""
        self.setbacks: Counter[str] = Counter()
        """What may happen to a client under faults, and how often."""
        self.writing = threading.Event()
        self.reading = threading.Event()
        self.acknowledged = 0
        self.committed_transactions = 0
        self.read_up_to: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        """By readers, the last offset that one of them has seen."""
        self._moves: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.writing.set()
        self.reading.set()

    def record(self, event: Event) -> None:
        self.history.record(event)

    def expect(self, name: str) -> None:
        """There is a client, or a group of readers, that makes progress where nothing is wrong."""
        self._moves[name] += 0

    def moved(self, name: str) -> None:
        with self._lock:
            self._moves[name] += 1

    def acknowledge(self, producer: str, landed: Iterable[Landed]) -> None:
        for partition, base_offset, values in _runs(landed):
            self.record(Acknowledged(producer, LIFE, partition, base_offset, values))
            with self._lock:
                self.acknowledged += len(values)

    def poll(self, consumer: str, readers: str, polled: Iterable[Landed], transaction: str = "") -> None:
        """`readers` are a group, or one who reads alone, of whom progress is expected."""
        if polled := list(polled):
            self.look(consumer, readers, polled, transaction)
            self.moved(readers)

    def look(self, consumer: str, readers: str, polled: Iterable[Landed], transaction: str) -> None:
        """As `poll`, but nobody waits for these readers."""
        by_partition: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        for partition, offset, value in polled:
            by_partition.setdefault(partition, []).append((offset, value))
        known = self.read_up_to[readers]
        for partition, records in by_partition.items():
            self.record(
                Polled(consumer, LIFE, partition, UNTOLD, tuple(records), read_committed=True, transaction=transaction)
            )
            known[partition] = max(known.get(partition, -1), records[-1][0])

    def begin(self, consumer: str, readers: str, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where one who reads by hand goes on from the one before it."""
        known = self.read_up_to[readers]
        begins = tuple((partition, known.get(partition, -1) + 1) for partition in partitions)
        self.record(Assigned(consumer, begins))
        return begins

    def read_by_all(self, partition: str) -> float:
        """The offset up to which all readers of a partition have read it."""
        read = [known[each] for known in self.read_up_to.values() for each in list(known) if str(each) == partition]
        return min(read, default=math.inf)

    def fail(self, what: str) -> None:
        self.failures.append(what)

    def until_all_move(self, timeout_s: float, times: int = 2) -> list[str]:
        """Wait until everybody has made progress so many times from now on; who came last."""
        last: list[str] = []
        goals = {name: count + times for name, count in self._moves.items()}
        deadline = time.monotonic() + timeout_s
        while waiting := [name for name, goal in goals.items() if self._moves[name] < goal]:
            if self.failures:
                raise AssertionError(self.failures[0])
            if time.monotonic() > deadline:
                raise AssertionError(f"no progress within {timeout_s:.0f} s: {', '.join(waiting)}")
            last = waiting
            time.sleep(0.02)
        return last


def _runs(landed: Iterable[Landed]) -> Iterator[tuple[TopicPartition, int, tuple[bytes, ...]]]:
    """Values that lie one behind the other, together."""
    start: tuple[TopicPartition, int] | None = None
    values: list[bytes] = []
    for partition, offset, value in landed:
        if start is not None and (start[0] != partition or start[1] == UNTOLD or offset != start[1] + len(values)):
            yield *start, tuple(values)
            start, values = None, []
        start = start or (partition, offset)
        values.append(value)
    if start is not None:
        yield *start, tuple(values)
