"""Finding things in a log's segments: the slice at an offset, aborted transactions, records by time.

Index first, then a scan of batch headers; for offsets that were lately written or read, neither (`Boundaries`).
Records are opened only to find one by its time.
"""

from __future__ import annotations

from struct import Struct

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import NO_TIMESTAMP, BatchHeader, CorruptBatch
from barnabas.records.reader import records_of
from barnabas.records.record import Record
from barnabas.storage.boundaries import Boundaries, Boundary
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_slice import LogSlice
from barnabas.storage.results import TimestampedOffset
from barnabas.storage.segment import Segment
from barnabas.storage.segments import Segments
from barnabas.storage.txn_index import AbortedTxn

_OFFSET = Struct(">q")


class LogReader:
    __slots__ = ("_epochs", "_segments", "boundaries")

    def __init__(self, segments: Segments, epochs: LeaderEpochs) -> None:
        self._segments = segments
        self._epochs = epochs
        self.boundaries = Boundaries()

    def read(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool, log_end_offset: int) -> LogSlice:
        """Whole batches of one segment from the one that holds `offset`, below `max_offset`, at most `max_bytes`."""
        segments = self._segments
        if offset >= max_offset:
            return LogSlice(segments.active, 0, 0, offset, offset)
        segment, position = self.boundaries.find(offset) or self._locate(offset)
        while position >= segment.size:  # a gap in the offsets leads into the next segment
            following = segments.after(segment)
            if following is None:
                return LogSlice(segment, position, 0, offset, offset)
            segment, position = following, 0
        if segment is not segments.active:
            segments.touch(segment)
        end, next_offset = self._end_of(segment, max_offset, log_end_offset)
        if end - position > max_bytes:
            end, next_offset = self._cut(segment, position, offset, max_bytes, min_one_batch)
            self.boundaries.add(next_offset, segment, end)
        return LogSlice(segment, position, max(end - position, 0), offset, next_offset)

    def _locate(self, offset: int) -> Boundary:
        """The batch that holds `offset`, or the next one, by index and scan."""
        segment = self._segments.floor(offset)
        if offset <= segment.base_offset:
            return segment, 0
        found = segment.locate(offset)
        position = segment.size if found is None else found[0]
        self.boundaries.add(offset, segment, position)
        return segment, position

    def _end_of(self, segment: Segment, max_offset: int, log_end_offset: int) -> tuple[int, int]:
        """Where in `segment` the batches below `max_offset` end, and the offset that follows them."""
        end_offset = log_end_offset
        if segment is not self._segments.active:
            following = self._segments.after(segment)
            if following is not None:
                end_offset = following.base_offset
        if max_offset >= end_offset:
            return segment.size, end_offset
        last, position = self.boundaries.find(max_offset) or self._locate(max_offset)
        return (position, max_offset) if last is segment else (segment.size, end_offset)

    def _cut(self, segment: Segment, start: int, offset: int, max_bytes: int, min_one_batch: bool) -> tuple[int, int]:
        """A batch boundary at most `max_bytes` after `start`, and the offset that begins there.

        The index gives one at once; only within its first interval are the headers walked. A first batch that is larger
        than `max_bytes` is taken if at least one is wanted (KIP-74), or a consumer could never get past it.
        """
        cut = segment.indexes.offset.floor_position(start + max_bytes)
        if cut > start:
            return cut, _OFFSET.unpack(segment.file.read(cut, _OFFSET.size))[0]
        cut, next_offset = start, offset
        for position, header in segment.headers(start):
            batch_end = position + header.size
            if batch_end - start > max_bytes and (position > start or not min_one_batch):
                break
            cut, next_offset = batch_end, header.next_offset
        return cut, next_offset

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """The aborted transactions that may have records from offset `start` up to `end`, without it."""
        aborted: list[AbortedTxn] = []
        for segment in self._segments.since(start):
            for txn in segment.txn_index.aborted:
                if txn.last_offset >= start and txn.first_offset < end:
                    aborted.append(txn)
                if txn.last_stable_offset >= end:
                    return aborted
        return aborted

    def offset_for_timestamp(self, timestamp_ms: int, log_start_offset: int) -> TimestampedOffset | None:
        """The first record whose time is `timestamp_ms` or later."""
        for segment in self._segments.since(log_start_offset):
            if segment.max_timestamp < timestamp_ms:
                continue
            start = segment.indexes.time.lookup(timestamp_ms).offset
            for position, header in segment.headers(segment.indexes.offset.lookup(start)):
                if header.max_timestamp >= timestamp_ms and header.last_offset >= log_start_offset:
                    for record in _records(segment, position, header, log_start_offset):
                        if record.timestamp_ms >= timestamp_ms:
                            return self._timestamped(record)
        return None

    def offset_of_max_timestamp(self, log_start_offset: int) -> TimestampedOffset | None:
        """The first record that has the greatest time of all (KIP-734)."""
        latest = max(self._segments.since(log_start_offset), key=lambda segment: segment.max_timestamp)
        if latest.max_timestamp == NO_TIMESTAMP:
            return None
        found = latest.locate(latest.max_timestamp_offset)
        if found is None or found[1].last_offset < log_start_offset:
            return None
        records = _records(latest, *found, log_start_offset)
        return self._timestamped(max(records, key=lambda record: record.timestamp_ms)) if records else None

    def _timestamped(self, record: Record) -> TimestampedOffset:
        return TimestampedOffset(record.timestamp_ms, record.offset, self._epochs.epoch_of(record.offset))


def _records(segment: Segment, position: int, header: BatchHeader, from_offset: int) -> list[Record]:
    batch = memoryview(segment.file.read(position, header.size))
    try:
        return records_of(batch, from_offset=from_offset)
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment}: {error}; restore it from another replica") from error
