"""The topics that a producer writes to: their partitions' queues, and the records that wait for a topic to be known.

How many partitions a topic has is remembered here, for the client's picture drops a topic whenever a leader turns out
to have changed. Records of a topic that was never seen are parked, in order, until the cluster tells of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from barnabas.client.metadata import TopicInfo, TopicPartition
from barnabas.client.produce.delivery import Delivery, Moved, Pending
from barnabas.client.produce.partition_queue import PartitionQueue
from barnabas.client.produce.partitioner import StickyPartition
from barnabas.client.produce.producer_batch import ProducerBatch
from barnabas.core.errors import KafkaError
from barnabas.records.record import Header


class ParkedRecord(NamedTuple):
    """A record that has no partition yet."""

    pending: Pending
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    partition: int | None
    timestamp_ms: int
    deadline: float
    reserved_bytes: int

    def placed(self, handle: Delivery) -> None:
        """Let the handle that the caller has find what this one does."""
        self.pending.complete(Moved(((-handle.delta, handle.pending),)))


class ProducerTopic:
    """One topic; it has no queues until the cluster has told of it."""

    __slots__ = (
        "_sticky_bytes",
        "learned_at",
        "name",
        "parked",
        "problem",
        "queues",
        "retry_at",
        "sticky",
        "sticky_batch",
        "tries",
    )

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.parked: deque[ParkedRecord] = deque()
        self.sticky = StickyPartition(random)
        self.sticky_batch: ProducerBatch | None = None
        """The last batch that was begun for keyless records."""
        self.learned_at = 0.0
        self.retry_at = 0.0
        self.tries = 0
        self.problem: KafkaError | None = None
        """Why the last look at it failed."""
        self._sticky_bytes = 0

    def learned(self, info: TopicInfo, now: float) -> None:
        """Take over what the cluster tells; a topic never loses partitions, unless it was made anew under its name."""
        self.problem, self.learned_at = None, now
        count = len(info.partitions)
        first_time = not self.queues
        for partition in range(len(self.queues), count):
            self.queues.append(PartitionQueue(TopicPartition(self.name, partition)))
        if count < len(self.queues) and not any(queue.waiting or queue.in_flight for queue in self.queues[count:]):
            del self.queues[count:]
        if first_time or self.sticky.current >= len(self.queues):
            self.sticky.move([len(queue) for queue in self.queues])

    def moves_on(self, batch_size: int, has_leader: Callable[[TopicPartition], bool]) -> bool:
        """Let keyless records go to another partition, if the present one got about a batch of them."""
        if self.sticky_batch is not None:
            self._sticky_bytes += self.sticky_batch.filled_bytes
            self.sticky_batch = None
        full = self.queues[self.sticky.current].open is not None
        if len(self.queues) == 1 or not (full or self._sticky_bytes >= batch_size):
            return False
        self.move_on(has_leader)
        return True

    def move_on(self, has_leader: Callable[[TopicPartition], bool]) -> None:
        """Let keyless records go to another partition."""
        self._sticky_bytes = 0
        self.sticky.move([len(queue) if has_leader(queue.partition) else None for queue in self.queues])
