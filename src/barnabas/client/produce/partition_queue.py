"""The batches of one partition, and what keeps them in order.

Several batches may be in flight. One that has to be repeated returns to its place in the queue, and leaves again when
nothing is in flight; so order holds through retries and changes of leader.

A leader knows the last five batches again. So what counts against the limit is how far a batch is from the first that
is unsettled, those between that are settled included: they may have overtaken it on another connection, and each makes
the leader forget an older one.

A batch gets its sequence number when it first leaves, and keeps it. The first one under an identity goes alone: a
leader that knows nothing of the identity takes any number, also that of a batch which has overtaken the first. Where a
batch was given up, its numbers are missing: the leader refuses what follows as out of order, and if that left when
nothing before it was unsettled, the queue starts again at 0 under the next epoch. Only if it cannot be in the log,
though: under another epoch the leader would not know it again.
"""

from __future__ import annotations

from collections import deque
from math import inf

from barnabas.client.metadata import TopicPartition
from barnabas.client.produce.delivery import Moved
from barnabas.client.produce.identity import NOBODY, ProducerIdentity
from barnabas.client.produce.producer_batch import ProducerBatch
from barnabas.core.errors import KafkaError
from barnabas.records.batch import HEADER, NO_SEQUENCE, BatchHeader
from barnabas.records.compression import Compression
from barnabas.records.reader import records_of

_SEQUENCES = 2**31 - 1  # a mask: they wrap from 2**31 - 1 to 0
_NO_LIMIT = 2**31 - 1
_REMEMBERED_SECONDS = 600  # leaders forget a producer that was silent for long; it is a day unless configured otherwise


class PartitionQueue:
    """The batches of one partition in their order; only the last one may still take records."""

    __slots__ = (
        "_batch_count",
        "_family",
        "_last_created",
        "has_gap",
        "identity",
        "in_flight",
        "is_counted",
        "leader_id",
        "next_sequence",
        "open",
        "partition",
        "problem",
        "retry_at",
        "waiting",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.open: ProducerBatch | None = None
        self.leader_id = -1
        """Who got the batches in flight."""
        self.problem: KafkaError | None = None
        """Why the last attempt failed."""
        self.retry_at = 0.0
        self.identity = NOBODY
        self.is_counted = False
        """Whether the leader has taken a batch of this identity, and so counts its sequence."""
        self.next_sequence = 0
        self.has_gap = False
        self._family = NOBODY
        self._batch_count = 0
        self._last_created = 0.0

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, batch: ProducerBatch) -> None:
        """Put a batch at the end."""
        self.close()
        self._batch_count += 1
        batch.order = (self._batch_count,)
        self.waiting.append(batch)
        if batch.is_open:
            self.open = batch

    def close(self) -> None:
        """Let the last batch take no more records."""
        if self.open is not None:
            self.open.is_open = False
            self.open = None

    def ready_at(self, linger_seconds: float, max_in_flight: int) -> float | None:
        """When the first batch may leave; None while an answer must come first, or there is nothing."""
        if not self.waiting:
            return None
        first = self.waiting[0]
        if first.attempts:
            return None if self.in_flight else self.retry_at
        if self.in_flight:
            distance = first.order[0] - self.in_flight[0].order[0]
            if distance >= (max_in_flight if self.is_counted else 1):
                return None
        return first.created + linger_seconds if first.is_open else 0.0

    def take(self, identity: ProducerIdentity, compression: Compression, transactional: bool) -> ProducerBatch:
        """Move the first batch into flight, under its sequence number if there is an identity to count by."""
        batch = self.waiting.popleft()
        if batch is self.open:
            self.open = None
        if identity != self._family and not self._has_unsettled(batch):
            self._family = self.identity = identity
            self.is_counted = False
            self.next_sequence = 0
        if batch.created - self._last_created > _REMEMBERED_SECONDS:
            self.is_counted = False
        self._last_created = batch.created
        if batch.base_sequence == NO_SEQUENCE:
            sequence = NO_SEQUENCE if identity is NOBODY else self.next_sequence
            if batch.data is None:
                batch.seal(compression, self.identity, sequence, transactional)
            else:
                batch.stamp(self.identity, sequence)
            self.next_sequence = (self.next_sequence + batch.count) & _SEQUENCES
        batch.attempts += 1
        batch.leads = not self.in_flight
        self.in_flight.append(batch)
        return batch

    def _has_unsettled(self, batch: ProducerBatch) -> bool:
        """Whether numbers that were given out are not settled yet, those of `batch` included."""
        following = self.waiting[0].base_sequence if self.waiting else NO_SEQUENCE
        return bool(self.in_flight) or batch.base_sequence != NO_SEQUENCE or following != NO_SEQUENCE

    def settle(self, batch: ProducerBatch) -> None:
        """Its fate is decided: it is no longer in flight."""
        self.in_flight.remove(batch)

    def repeat(self, batch: ProducerBatch, at: float) -> None:
        """Put a batch that was in flight back to its place, not to leave before `at`."""
        self.in_flight.remove(batch)
        self._insert(batch)
        self.retry_at = max(self.retry_at, at)

    def _insert(self, batch: ProducerBatch) -> None:
        index = next((i for i, other in enumerate(self.waiting) if other.order > batch.order), len(self.waiting))
        self.waiting.insert(index, batch)

    def close_gap(self) -> bool:
        """Number what was numbered again, from 0 under the next epoch; False if the identity has no further epoch."""
        self.has_gap = False
        if not self.identity.can_be_raised:
            self._family = NOBODY
            for batch in self.waiting:
                batch.base_sequence = NO_SEQUENCE
            return False
        self.identity = self.identity.raised()
        self.is_counted = False
        self.next_sequence = 0
        for batch in self.waiting:
            if batch.base_sequence == NO_SEQUENCE:
                break
            batch.stamp(self.identity, self.next_sequence)
            self.next_sequence = (self.next_sequence + batch.count) & _SEQUENCES
        return True

    def split(self, batch: ProducerBatch, compression: Compression) -> None:
        """Put the two halves of a batch that was in flight in its place; together they keep its sequence numbers."""
        assert batch.data is not None
        header = BatchHeader._make(HEADER.unpack_from(batch.data))
        identity = ProducerIdentity(header.producer_id, header.producer_epoch)
        records = records_of(memoryview(batch.data))
        middle = len(records) // 2
        self.in_flight.remove(batch)
        halves = []
        for first, chosen in ((0, records[:middle]), (middle, records[middle:])):
            half = ProducerBatch(batch.partition, _NO_LIMIT, batch.created)
            for record in chosen:
                half.append(half, record.key, record.value, record.headers, record.timestamp_ms)
            numbered = batch.base_sequence != NO_SEQUENCE
            sequence = (batch.base_sequence + first) & _SEQUENCES if numbered else NO_SEQUENCE
            half.seal(compression, identity, sequence, header.is_transactional)
            half.order, half.attempts = (*batch.order, first), batch.attempts
            half.may_be_appended = batch.may_be_appended
            half.reserved_bytes = batch.reserved_bytes * len(chosen) // len(records)
            self._insert(half)
            halves.append((first, half))
        batch.reserved_bytes -= sum(half.reserved_bytes for _, half in halves)
        batch.complete(Moved(tuple(halves)))

    @property
    def oldest(self) -> float:
        """When the oldest batch was made that nobody has given up."""
        unsettled = [batch.created for batch in self.in_flight if not batch.is_done]
        unsettled += [batch.created for batch in list(self.waiting)[:1]]
        return min(unsettled, default=inf)

    def expire(self, now: float, limit_seconds: float) -> list[ProducerBatch]:
        """Take out the batches that have become too old; those in flight stay until they are answered."""
        expired = []
        while self.waiting and self.waiting[0].created + limit_seconds <= now:
            expired.append(self.waiting.popleft())
        if self.open in expired:
            self.open = None
        return expired + [b for b in self.in_flight if b.created + limit_seconds <= now and not b.is_done]
