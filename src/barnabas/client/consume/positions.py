"""Where a consumer stands in each of its partitions.

    position ............ fetch_offset .......... high_watermark
    next for the caller   next for the broker     the end, as last told

What lies between the first two is buffered: chunks, and of one partition at a time the chunk that is read record by
record. `drop` empties the buffer; answers that were asked for before it are recognised by `version` and thrown away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum, auto
from itertools import islice
from operator import length_hint

from barnabas.client.consume.chunks import Chunk
from barnabas.client.consume.consumed import ConsumerRecord
from barnabas.client.metadata import TopicPartition

_DECODED_AT_A_TIME = 200


class Begin(Enum):
    """How the place of a partition is found that has none."""

    COMMITTED = auto()
    """What its group has committed; where that is nothing, as RESET."""
    RESET = auto()
    """As `auto_offset_reset` says."""
    EARLIEST = auto()


class Reading:
    """A chunk that is read record by record, decoded some at a time: few objects are easy on the collector.

    The caller's loop runs over `iterator`; taking what is left out of it ends the loop.
    """

    __slots__ = ("_is_over", "_portions", "chunk", "iterator", "records", "state")

    def __init__(self, state: PartitionState, chunk: Chunk) -> None:
        self.state = state
        self.chunk = chunk
        self.records: list[ConsumerRecord] = []
        self.iterator: Iterator[ConsumerRecord] = iter(self.records)
        self._portions = chunk.records(state.partition, _DECODED_AT_A_TIME)
        self._is_over = False

    @property
    def left(self) -> int:
        """Records that are decoded and were not taken yet."""
        return length_hint(self.iterator)

    def advance(self) -> bool:
        """Decode the next records; False at the end of the chunk."""
        records = next(self._portions, None)
        if records is None:
            self._is_over = True
            return False
        self.records = records
        self.iterator = iter(records)
        return True

    @property
    def position(self) -> int:
        left = self.left
        if left:
            return self.records[-left].offset
        last = self.records[-1].offset if self.records else self.chunk.from_offset - 1
        if self._is_over or last >= self.chunk.batches[-1][1].last_offset:
            return self.chunk.next_offset
        return last + 1

    @property
    def last_given(self) -> int:
        """The offset of the record that was taken last, if it is still known, or else of the one that comes."""
        given = len(self.records) - self.left
        return self.records[given - 1].offset if given else self.position

    def upcoming(self, count: int) -> list[ConsumerRecord]:
        """The next records that are decoded, which stay where they are."""
        first = len(self.records) - self.left
        return self.records[first : first + count]

    def stop(self) -> None:
        """Let the caller's loop end after the record that it has. It may run in another thread: this is one step."""
        self.iterator = iter(list(self.iterator))

    def skip(self, count: int) -> None:
        for _ in islice(self.iterator, count):
            pass


class PartitionState:
    """One assigned partition."""

    def __init__(self, partition: TopicPartition, begin: Begin = Begin.COMMITTED) -> None:
        self.partition = partition
        self.begin = begin
        self.topic_id: bytes | None = None
        self.paused = False
        self.is_held = False
        """Nothing is asked about it yet: a callback may know a better place."""
        self.version = 0
        self.chunks: deque[Chunk] = deque()
        self.buffered_bytes = 0
        self.reading: Reading | None = None
        self.fetch_offset: int | None = None
        self.until: int | None = None
        """Where a range ends: nothing is fetched from there on."""
        self.fetch_epoch = -1
        """Of the leader that wrote the record before `fetch_offset`, by which a broker tells if that is still there."""
        self.high_watermark = -1
        self.read_replica: int | None = None
        self.read_replica_until = 0.0
        self.failures = 0
        self.failing_since: float | None = None
        self.retry_at = 0.0
        self._position: int | None = None
        self._epoch = -1

    @property
    def position(self) -> int | None:
        """The offset of the record that the caller gets next; None until it is found."""
        return self._position if self.reading is None else self.reading.position

    @property
    def epoch(self) -> int:
        """Of the leader that wrote the record before `position` or the one there; -1 if not known."""
        return self._epoch if self.reading is None else self.reading.chunk.epoch_at(self.reading.position)

    def place(self, offset: int, epoch: int = -1) -> None:
        """Go on from an offset, whatever was asked for or has come in before."""
        self.drop()
        self._position = self.fetch_offset = offset
        self._epoch = self.fetch_epoch = epoch

    def displace(self, begin: Begin) -> None:
        """Look for a place anew; what is buffered is thrown away."""
        self.drop()
        self._position = self.fetch_offset = None
        self.begin = begin

    def lose_fetch_offset(self) -> None:
        """The broker has nothing where it was asked to go on; what is buffered is still good."""
        self.fetch_offset = None
        self.begin = Begin.RESET

    def found(self, offset: int, epoch: int = -1) -> None:
        """The place that was looked for."""
        self.fetch_offset, self.fetch_epoch = offset, epoch
        self._catch_up()

    def arrived(self, chunk: Chunk) -> bool:
        """Take over what a fetch brought; whether there is anything in it for the caller."""
        self.fetch_offset, self.fetch_epoch = chunk.next_offset, chunk.last_epoch
        if not chunk.batches:
            self._catch_up()
            return False
        self.chunks.append(chunk)
        self.buffered_bytes += chunk.size
        return True

    def take(self) -> Chunk:
        """The next chunk; the position is behind it until it is read or put back."""
        chunk = self.chunks.popleft()
        self.buffered_bytes -= chunk.size
        self._position, self._epoch = chunk.next_offset, chunk.last_epoch
        self._catch_up()
        return chunk

    def put_back(self, chunk: Chunk) -> None:
        self.chunks.appendleft(chunk)
        self.buffered_bytes += chunk.size
        self._position, self._epoch = chunk.from_offset, chunk.epoch_at(chunk.from_offset)

    def set_aside(self) -> None:
        """Stop reading record by record; the rest of the chunk is buffered again."""
        reading, self.reading = self.reading, None
        if reading is None:
            return
        reading.stop()
        if reading.position < reading.chunk.next_offset:
            reading.chunk.from_offset = reading.position
            self.put_back(reading.chunk)
        else:
            self._catch_up()

    def drop(self) -> None:
        self.version += 1
        self.chunks.clear()
        self.buffered_bytes = 0
        if self.reading is not None:
            self.reading.stop()
            self.reading = None

    def succeeded(self) -> None:
        self.failures = 0
        self.failing_since = None

    def _catch_up(self) -> None:
        """With nothing buffered the caller stands where the next fetch begins, past records that are not for it."""
        if not self.chunks and self.reading is None and self.fetch_offset is not None:
            self._position, self._epoch = self.fetch_offset, self.fetch_epoch
