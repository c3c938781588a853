"""What another broker's fetch session copies, and which of it is worth a look.

A replica may copy thousands of partitions in which nothing happens. So a session does not look at all of them with
every request: it watches them, and a partition in which the replica has everything, and knows that, *rests* until there
is something new in it. What was asked for with the latest request, or had news since, is *due*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.fetch_sessions import Wanted
    from barnabas.cluster.partition import Partition


class _Tail:
    """Watches one partition for one session."""

    __slots__ = ("_copied", "_wanted", "partition")

    def __init__(self, copied: CopiedPartitions, wanted: Wanted, partition: Partition) -> None:
        self._copied = copied
        self._wanted = wanted
        self.partition = partition

    def data_arrived(self, partition: Partition, size_bytes: int) -> None:
        self._copied.stir(self._wanted, partition)


class CopiedPartitions:
    """Part of a fetch session; owned by the broker's loop."""

    __slots__ = ("_tails", "broker_epoch", "due", "fetched_ms", "is_believed", "replica_id", "waiting")

    def __init__(self, replica_id: int, broker_epoch: int, *, is_believed: bool) -> None:
        """`is_believed`: whether that broker, in its present life, really began the session."""
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.is_believed = is_believed
        self.due: dict[Wanted, None] = {}
        """In the order in which they will be served."""
        self.fetched_ms = 0
        """When the latest request came."""
        self.waiting: Callable[[], None] | None = None
        """Wakes the request that is under way."""
        self._tails: dict[Wanted, _Tail] = {}

    def ask(self, wanted: Wanted) -> None:
        """Served last, so that a partition with much to copy does not keep the others waiting."""
        self.due.pop(wanted, None)
        self.due[wanted] = None

    def forget(self, wanted: Wanted) -> None:
        self.due.pop(wanted, None)
        tail = self._tails.pop(wanted, None)
        if tail is not None:
            tail.partition.unwatch(tail)

    def watch(self, wanted: Wanted, partition: Partition, *, watermark: bool) -> None:
        """From now on; `watermark`: the replica is to learn of each that moves at once."""
        tail = self._tails.get(wanted)
        if tail is not None and tail.partition is partition:
            return
        if tail is not None:  # another topic has the name, or the partition was here before
            tail.partition.unwatch(tail)
        tail = self._tails[wanted] = _Tail(self, wanted, partition)
        partition.watch_tail(tail, watermark=watermark)

    def stir(self, wanted: Wanted, partition: Partition) -> None:
        if wanted not in self.due:
            self.due[wanted] = None
            partition.follower_was_caught_up(self.replica_id, self.fetched_ms)
        if self.waiting is not None:
            self.waiting()

    def rest(self, wanted: Wanted) -> None:
        """The replica has everything, and knows it."""
        del self.due[wanted]

    def close(self) -> None:
        for tail in self._tails.values():
            tail.partition.unwatch(tail)
        self._tails.clear()
        self.due.clear()
