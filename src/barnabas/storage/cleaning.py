"""Compaction itself: from the segments of a log to fewer that hold the newest record of every key.

A round reads the dirty segments once, to learn the newest offset of every key in them, then all segments from the
first, and writes group by group what is to be kept. It only reads the log's files and writes `.cleaned` ones beside
them; putting these in their place is the log's affair (`swap`). So it can run in another process.

What is kept, batch by batch, with its offsets and its sequence numbers:

- of the records, the newest of every key, and all that lie past what the map had room for. Those of aborted
  transactions go.
- a tombstone until `delete.retention.ms` after the round that first found nothing older of its key. That time, the
  delete horizon, is written to the batch in place of its base timestamp (KIP-534).
- the marker that ends a transaction as long as a batch of it is left, and then, too, for `delete.retention.ms`.
- at least the header of a batch by which a producer's sequence is known, and of the last one of a group: it tells
  where the log ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from barnabas.core.dataclass import dataclass
from barnabas.core.seams import Disk
from barnabas.records import engine
from barnabas.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatch,
    verify,
)
from barnabas.records.builder import seal
from barnabas.records.codec import LARGEST
from barnabas.records.compaction_codec import SLOT_BYTES
from barnabas.records.compression import Compression, codec_of
from barnabas.records.reader import section_of
from barnabas.storage.log_config import LogConfig
from barnabas.storage.segment import (
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
)
from barnabas.storage.swap import CLEANED_SUFFIX
from barnabas.storage.txn_index import AbortedTxn

_NEVER_MS = LARGEST // 2  # as late as timestamps can count from


class CannotClean(Exception):
    """What the files hold does not allow it; the message says where, and what to do."""


class SegmentFile(NamedTuple):
    base_offset: int
    end_offset: int
    """Where the next segment begins."""
    size: int


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """One round in one log: all that it depends on besides the files."""

    directory: str
    config: LogConfig
    segments: tuple[SegmentFile, ...]
    """From the log's first to the last that may be cleaned."""
    first_dirty_offset: int
    aborted: tuple[AbortedTxn, ...]
    remembered_offsets: frozenset[int]
    """The last offsets of the batches by which the producers' sequences are known."""
    remembered_epochs: Mapping[int, int]
    """The epoch, by producer id, of those who are known by the marker of a transaction alone."""
    now_ms: int
    dedupe_buffer_bytes: int
    dedupe_load_factor: float
    io_buffer_bytes: int
    secret: bytes
    """A key for the digests of the records' keys."""


class CleanedGroup(NamedTuple):
    """A segment that is written and synced under `.cleaned` names, and those that it is to replace."""

    base_offsets: tuple[int, ...]
    size: int
    old_size: int
    end_offset: int
    """All records before it have been compared with the keys of this round."""


def clean(disk: Disk, job: CleaningJob) -> Iterator[CleanedGroup]:
    """Do the round, group by group, in the order of offsets."""
    try:
        newest, end_offset = _index_dirty_segments(disk, job)
        transactions = _Transactions(job.aborted)
        for group in group_segments(disk, job, end_offset):
            yield _clean_group(disk, job, group, newest, end_offset, transactions)
    except CorruptBatch as error:
        raise CannotClean(f"{job.directory}: {error}; restore this replica from another") from error


def group_segments(disk: Disk, job: CleaningJob, end_offset: int) -> list[list[SegmentFile]]:
    """The segments that hold offsets below `end_offset`, put together as far as they fit into one."""
    groups: list[list[SegmentFile]] = []
    size = index_size = 0
    for file in job.segments:
        if file.base_offset >= end_offset:
            break
        file_index_size = _index_size(disk, job, file)
        size += file.size
        index_size += file_index_size
        if (
            not groups
            or size > job.config.segment_bytes
            or index_size > job.config.segment_index_bytes
            or file.end_offset - groups[-1][0].base_offset > MAX_RELATIVE_OFFSET
        ):
            groups.append([])
            size, index_size = file.size, file_index_size
        groups[-1].append(file)
    return groups


def _index_size(disk: Disk, job: CleaningJob, file: SegmentFile) -> int:
    segment = _segment(disk, job, file)
    return max(disk.size(segment.path(kind)) for kind in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX))


def _segment(disk: Disk, job: CleaningJob, file: SegmentFile) -> Segment:
    return Segment(disk, job.directory, file.base_offset, job.now_ms, file.size)


# reading


def _index_dirty_segments(disk: Disk, job: CleaningJob) -> tuple[Any, int]:
    """The newest offset of every key in the dirty segments, and the offset before which all of them are in it."""
    first, last = job.first_dirty_offset, job.segments[-1].end_offset
    # There are no more keys than offsets, so a short log needs no large buffer.
    wanted_bytes = int((last - first) / job.dedupe_load_factor + 2) * SLOT_BYTES
    newest = engine.compaction_codec.OffsetMap(
        min(job.dedupe_buffer_bytes, wanted_bytes), job.dedupe_load_factor, job.secret
    )
    transactions = _Transactions(job.aborted)
    for file in job.segments:
        if file.end_offset <= first:
            continue
        for _, header, batch in _batches(disk, job, file):
            if header.is_control or header.last_offset < first or transactions.is_aborted(header):
                continue
            indexed = newest.index(section_of(batch, header), header, first)
            if indexed < header.last_offset:
                return newest, indexed + 1
    return newest, last


def _batches(disk: Disk, job: CleaningJob, file: SegmentFile) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of every batch, each found whole and valid."""
    source = disk.open(_segment(disk, job, file).path(LOG_SUFFIX))
    chunk, start = memoryview(b""), 0
    position = 0
    try:
        while position < file.size:
            at = position - start
            if len(chunk) - at < HEADER_SIZE:
                chunk, start, at = memoryview(source.read(position, max(job.io_buffer_bytes, HEADER_SIZE))), position, 0
            if len(chunk) - at < HEADER_SIZE:
                raise CorruptBatch(f"{source.path} ends at {position + len(chunk)}, in the header of a batch")
            header = BatchHeader._make(HEADER.unpack_from(chunk, at))
            if header.size > len(chunk) - at:
                size = min(max(header.size, job.io_buffer_bytes), file.size - position)
                chunk, start, at = memoryview(source.read(position, size)), position, 0
            verify(chunk, at, header)
            yield position, header, chunk[at : at + header.size]
            position += header.size
    finally:
        source.close()


class _Transactions:
    """Which batches are of aborted transactions, and which transactions have batches left."""

    __slots__ = ("_aborted", "_begun", "_ends")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._aborted: dict[int, list[AbortedTxn]] = {}  # by producer, whose transactions follow each other
        self._ends: dict[int, AbortedTxn] = {}  # by the offset of the marker
        self._begun: set[int] = set()  # the producers of whose transaction a batch has come by
        for txn in aborted:
            self._aborted.setdefault(txn.producer_id, []).append(txn)
            self._ends[txn.last_offset] = txn

    def is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.producer_id not in self._aborted:
            return False
        aborted = self._aborted[header.producer_id]
        slot = bisect_right(aborted, header.base_offset, key=lambda txn: txn.first_offset)
        return slot > 0 and header.base_offset < aborted[slot - 1].last_offset

    def batch_seen(self, header: BatchHeader) -> None:
        if header.is_transactional:
            self._begun.add(header.producer_id)

    def ends_something(self, header: BatchHeader) -> bool:
        """Whether a batch is left of the transaction that this marker ends."""
        if header.producer_id not in self._begun:
            return False
        self._begun.remove(header.producer_id)
        return True

    def aborted_by(self, header: BatchHeader) -> AbortedTxn | None:
        return self._ends.get(header.base_offset)


# writing


class _CleanedSegment:
    """A segment in the making; what is kept of the batches is gathered and written in large pieces."""

    __slots__ = ("_buffer", "_buffer_bytes", "_disk", "segment")

    def __init__(self, disk: Disk, job: CleaningJob, base_offset: int) -> None:
        self._disk = disk
        self._buffer = bytearray()
        self._buffer_bytes = job.io_buffer_bytes
        self.segment = Segment.create(disk, job.directory, base_offset, job.now_ms, CLEANED_SUFFIX)
        self.segment.configure(job.config)

    def append(self, batch: memoryview | bytearray) -> None:
        header = BatchHeader._make(HEADER.unpack_from(batch))
        segment = self.segment
        segment.add_batch(segment.size, header.size, header.last_offset, header.time_to_index)
        self._buffer += batch
        if len(self._buffer) >= self._buffer_bytes:
            segment.file.append(self._buffer)
            self._buffer = bytearray()

    def finish(self) -> None:
        """Write all there is, indexes too, and sync it."""
        segment = self.segment
        segment.file.append(self._buffer)
        segment.file.sync()
        segment.seal()
        for path, data in segment.index_files():
            file = self._disk.open(path, create=True)
            file.truncate(0)
            file.append(data)
            file.sync()
            file.close()
        segment.close()


def _clean_group(
    disk: Disk,
    job: CleaningJob,
    group: list[SegmentFile],
    newest: Any,
    end_offset: int,
    transactions: _Transactions,
) -> CleanedGroup:
    filter_ = _Filter(job, newest, end_offset - 1, transactions)
    cleaned = _CleanedSegment(disk, job, group[0].base_offset)
    last = max((file for file in group if file.size), default=None)
    for file in group:
        for position, header, batch in _batches(disk, job, file):
            is_last = file is last and position + header.size == file.size
            kept = filter_.what_is_left(batch, header, is_last)
            if kept is None:
                continue
            cleaned.append(kept)
            if header.is_control and (aborted := transactions.aborted_by(header)) is not None:
                cleaned.segment.txn_index.aborted.append(aborted)
    cleaned.finish()
    return CleanedGroup(
        tuple(file.base_offset for file in group),
        cleaned.segment.size,
        sum(file.size for file in group),
        end_offset,
    )


class _Filter:
    """Decides what is left of a batch."""

    __slots__ = ("_job", "_latest_offset", "_newest", "_transactions")

    def __init__(self, job: CleaningJob, newest: Any, latest_offset: int, transactions: _Transactions) -> None:
        self._job = job
        self._newest = newest
        self._latest_offset = latest_offset
        self._transactions = transactions

    def what_is_left(self, batch: memoryview, header: BatchHeader, is_last: bool) -> memoryview | bytearray | None:
        """The batch as it stands, a smaller one in its place, or nothing."""
        if header.is_control:
            return self._left_of_marker(batch, header, is_last)
        must_stay = is_last or header.last_offset in self._job.remembered_offsets
        kept = 0
        if header.record_count and not self._transactions.is_aborted(header):
            section = section_of(batch, header)
            kept, max_timestamp, has_tombstones, opened = engine.compaction_codec.retain(
                section, header, self._newest, self._latest_offset, not self._is_past_horizon(header)
            )
        if kept or must_stay:
            self._transactions.batch_seen(header)
        if not kept:
            return empty_batch(header) if must_stay else None
        wants_horizon = has_tombstones and not header.attributes & DELETE_HORIZON
        if kept == header.record_count and not wants_horizon:
            return batch
        left = header._replace(
            record_count=kept, max_timestamp=header.max_timestamp if header.is_log_append_time else max_timestamp
        )
        if wants_horizon:
            return self._with_horizon(memoryview(opened)[HEADER_SIZE:] if opened else section, left)
        return _sealed(opened, left)

    def _left_of_marker(self, batch: memoryview, header: BatchHeader, is_last: bool) -> memoryview | bytearray | None:
        is_needed = self._transactions.ends_something(header)
        is_remembered = self._job.remembered_epochs.get(header.producer_id) == header.producer_epoch
        if is_needed or is_remembered or is_last:
            return batch
        if not header.record_count or self._is_past_horizon(header):
            return None
        if header.attributes & DELETE_HORIZON:
            return batch
        return self._with_horizon(section_of(batch, header), header)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        return bool(header.attributes & DELETE_HORIZON) and header.base_timestamp <= self._job.now_ms

    def _with_horizon(self, section: memoryview | bytes | bytearray, header: BatchHeader) -> bytearray:
        horizon_ms = min(self._job.now_ms + self._job.config.delete_retention_ms, _NEVER_MS)
        rebased = engine.compaction_codec.rebase(section, header, horizon_ms)
        attributes = header.attributes | DELETE_HORIZON
        return _sealed(rebased, header._replace(base_timestamp=horizon_ms, attributes=attributes))


def _sealed(opened: bytearray, header: BatchHeader) -> bytearray:
    """A batch of records that stand after the room for its header, compressed as it was."""
    plain = header._replace(attributes=header.attributes & ~COMPRESSION_MASK)
    return seal(opened, plain, codec_of(header.compression))


def empty_batch(header: BatchHeader) -> bytearray:
    """A batch without records that takes the place of one: its offsets, its producer, its sequence, its time."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)
    emptied = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD, attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0
    )
    return seal(bytearray(HEADER_SIZE), emptied, Compression.NONE)
