"""What one fetch brought of one partition: whole batches, checked, and not yet decoded.

Control batches and, for read_committed, those of aborted transactions are left out, but count for where to go on.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from barnabas.client.consume.consumed import ConsumerRecord
from barnabas.client.metadata import TopicPartition
from barnabas.core.dataclass import dataclass
from barnabas.records import engine
from barnabas.records.batch import BatchHeader, CorruptBatch, headers, verify
from barnabas.records.columns import Column, ColumnReader, Columns
from barnabas.records.control import ControlType, parse_end_marker
from barnabas.records.reader import section_of
from barnabas.wire.messages.k01_fetch import AbortedTransaction


@dataclass(slots=True)
class Chunk:
    """The records from `from_offset` up to `next_offset`."""

    batches: list[tuple[memoryview, BatchHeader]]
    from_offset: int
    next_offset: int
    last_epoch: int
    """Of the leader that wrote the last batch; -1 where there is none."""
    size: int

    def epoch_at(self, offset: int) -> int:
        """Of the leader that wrote the record at an offset, or the next one: an epoch that lasted at least so long."""
        return next((h.partition_leader_epoch for _, h in self.batches if h.last_offset >= offset), self.last_epoch)

    def records(self, partition: TopicPartition, at_a_time: int = sys.maxsize) -> Iterator[list[ConsumerRecord]]:
        """The records, decoded in portions of one batch each and of so many records at most."""
        for batch, header in self.batches:
            section = section_of(batch, header)
            stream = engine.codec.RecordStream(section, header, self.from_offset, ConsumerRecord, *partition)
            while portion := stream.take(at_a_time):
                yield portion

    def columns(self, wanted: Column) -> Columns:
        reader = ColumnReader(wanted)
        reader.expect(sum(len(batch) for batch, _ in self.batches))
        for batch, header in self.batches:
            reader.add_checked(batch, header, self.from_offset)
        return reader.finish()


def scan(
    fetched: memoryview, position: int, aborted: Sequence[AbortedTransaction], *, check_crcs: bool = True
) -> Chunk:
    """The batches that hold `position` and what follows.

    Of a corrupt batch nobody is told until it comes first: what is before it can still be read.
    """
    is_aborted = _aborted_filter(aborted)
    chunk = Chunk([], position, position, -1, 0)
    try:
        for start, header in headers(fetched):
            batch = fetched[start : start + header.size]
            if check_crcs:
                verify(batch, 0, header)
            if header.last_offset < position:
                is_aborted(batch, header)
                continue
            if not is_aborted(batch, header) and not header.is_control and header.record_count:
                chunk.batches.append((batch, header))
            chunk.last_epoch = header.partition_leader_epoch
            chunk.next_offset = header.next_offset
            chunk.size += header.size
        if fetched and chunk.next_offset == position:
            raise CorruptBatch(f"{len(fetched)} bytes hold no whole batch from there on")
    except CorruptBatch:
        if chunk.next_offset == position:
            raise
    return chunk


def _aborted_filter(aborted: Sequence[AbortedTransaction]) -> Callable[[memoryview, BatchHeader], bool]:
    """Tells, for batch after batch, whether it belongs to an aborted transaction, which only read_committed lists."""
    if not aborted:
        return lambda batch, header: False
    upcoming = deque(sorted((txn.first_offset, txn.producer_id) for txn in aborted))
    aborting: set[int] = set()

    def is_aborted(batch: memoryview, header: BatchHeader) -> bool:
        while upcoming and upcoming[0][0] <= header.last_offset:
            aborting.add(upcoming.popleft()[1])
        if header.is_control:
            marker = parse_end_marker(batch)
            if marker is not None and marker.type is ControlType.ABORT:
                aborting.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in aborting

    return is_aborted
