"""One file of record batches (`.log`) with its three indexes; the file's name is its base offset.

A segment is *written to* while it is its log's last one, then *sealed*. Its index files exist only while they are
whole: they are written when the segment is sealed or closed, and taken away before an append or a truncation makes
them stale. So after a crash a missing index file tells that the segment wants a scan, and one that is there can be
trusted.

The file and the indexes of a sealed segment are opened when they are first needed and let go again by `cool`. A
`LogSlice` refers to the file itself, which therefore outlives a deletion. Owned by the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.seams import Disk, File
from barnabas.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader
from barnabas.storage.log_config import LogConfig
from barnabas.storage.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from barnabas.storage.offset_index import CorruptIndex, OffsetIndex
from barnabas.storage.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from barnabas.storage.time_index import TimeEntry, TimeIndex
from barnabas.storage.txn_index import TxnIndex

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

MAX_RELATIVE_OFFSET = 2**31 - 1
_SCAN_BYTES = 8 * 1024
_UNKNOWN = -2  # a timestamp that was not read from the files yet
_NEVER = 2**63


def base_name(offset: int) -> str:
    """Twenty digits, so that names sort as offsets do."""
    return f"{offset:020d}"


class Indexes(NamedTuple):
    offset: OffsetIndex
    time: TimeIndex


class Segment:
    __slots__ = (
        "_bytes_since_index_entry", "_config", "_disk", "_file", "_first_timestamp", "_indexes", "_indexes_full",
        "_max_timestamp", "_max_timestamp_offset", "_path", "_rolls_after_ms", "_suffix", "_txn_index", "base_offset",
        "created_ms", "jitter_ms", "saved", "size", "truncations",
    )  # fmt: skip

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, created_ms: int, size: int = 0, suffix: str = ""
    ) -> None:
        """A segment whose files are there; `create` makes new ones. With a suffix they are not part of a log yet."""
        self._disk = disk
        self._path = f"{directory}/{base_name(base_offset)}"
        self._suffix = suffix
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.size = size
        self.saved = True
        """Whether the index files hold all that the indexes know."""
        self.truncations = 0
        """Counts what makes a slice that was given out worthless."""
        self.jitter_ms = 0
        self._config = LogConfig()
        self._indexes_full = False
        self._rolls_after_ms = _NEVER
        self._file: File | None = None
        self._indexes: Indexes | None = None
        self._txn_index: TxnIndex | None = None
        self._bytes_since_index_entry = 0
        self._first_timestamp = _UNKNOWN
        self._max_timestamp = _UNKNOWN
        self._max_timestamp_offset = base_offset

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, now_ms: int, suffix: str = "") -> Segment:
        segment = cls(disk, directory, base_offset, now_ms, suffix=suffix)
        segment._file = disk.open(segment.path(LOG_SUFFIX), create=True)
        segment._file.truncate(0)
        segment.forget_indexes()
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG_SUFFIX)}, {self.size} bytes)"

    # files

    def path(self, kind: str) -> str:
        """Where the file of a kind is, or would be."""
        return self._path + kind + self._suffix

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path(LOG_SUFFIX))
        return self._file

    @property
    def indexes(self) -> Indexes:
        if self._indexes is None:
            self._indexes = self._load_indexes()
        return self._indexes

    @property
    def txn_index(self) -> TxnIndex:
        """Nearly always empty, so it is kept once it was looked for."""
        if self._txn_index is None:
            path = self.path(TXN_INDEX_SUFFIX)
            try:
                self._txn_index = TxnIndex.decode(self._disk.read_bytes(path) if self._disk.exists(path) else b"")
            except CorruptIndex as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path}: {error}; restore this replica") from error
        return self._txn_index

    def _load_indexes(self) -> Indexes:
        disk, base_offset = self._disk, self.base_offset
        try:
            offsets = OffsetIndex.decode(base_offset, disk.read_bytes(self.path(OFFSET_INDEX_SUFFIX)))
            times = TimeIndex.decode(base_offset, disk.read_bytes(self.path(TIME_INDEX_SUFFIX)))
        except (CorruptIndex, FileNotFoundError):
            return self.rebuild_indexes()
        return Indexes(offsets, times)

    def rebuild_indexes(self) -> Indexes:
        """Walk the headers, which takes its time, for what the index files of a sealed segment ought to say."""
        aborted = self.txn_index
        self._remove_index_files()
        self.forget_indexes()
        self._txn_index = aborted
        for position, header in list(self.headers()):  # at once: `add_batch` sets the size that bounds the walk
            self.add_batch(position, header.size, header.last_offset, header.time_to_index)
        self.seal()
        return self.indexes

    def forget_indexes(self) -> None:
        """Start the indexes afresh, in memory; whoever scans or writes the log fills them with `add_batch`."""
        self._indexes = Indexes(OffsetIndex(self.base_offset), TimeIndex(self.base_offset))
        self._txn_index = TxnIndex()
        self._bytes_since_index_entry = 0
        self._first_timestamp = NO_TIMESTAMP if self.size == 0 else _UNKNOWN
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self.saved = False

    def configure(self, config: LogConfig) -> None:
        """Go by these settings from now on."""
        self._config = config
        if not self.saved:
            self._update_limits()

    def _update_limits(self) -> None:
        """Work out beforehand what `takes` asks for every batch."""
        config, indexes = self._config, self.indexes
        self._indexes_full = (
            len(indexes.offset) >= config.segment_index_bytes // OFFSET_ENTRY_SIZE
            or len(indexes.time) >= config.segment_index_bytes // TIME_ENTRY_SIZE - 1
        )
        if self.size:
            first = self.first_timestamp
            begun_ms = first if first >= 0 else self.created_ms
            self._rolls_after_ms = begun_ms + config.max_segment_ms - self.jitter_ms
        else:
            self._rolls_after_ms = _NEVER

    def make_writable(self) -> None:
        """Load what an append needs, and take away the index files that it is about to outdate."""
        self._load_max_timestamp()
        if self._indexes is None:
            self._indexes = self._load_indexes()
        if self._txn_index is None:
            self._txn_index = self.txn_index
        if self.saved:
            self._remove_index_files()
            self.saved = False
        self._update_limits()

    def _remove_index_files(self) -> None:
        for suffix in INDEX_SUFFIXES:
            if self._disk.exists(self.path(suffix)):
                self._disk.remove(self.path(suffix))

    def seal(self) -> None:
        """Complete the indexes; the last entry of the time index is the greatest timestamp."""
        if self._max_timestamp > NO_TIMESTAMP:
            self.indexes.time.maybe_append(self._max_timestamp, self._max_timestamp_offset)

    def index_files(self) -> list[tuple[str, bytes]]:
        """Path and content of the index files of a sealed segment; once they are written, `saved` may be set."""
        indexes = self.indexes
        files = [
            (self.path(OFFSET_INDEX_SUFFIX), indexes.offset.encode()),
            (self.path(TIME_INDEX_SUFFIX), indexes.time.encode()),
        ]
        if self.txn_index.aborted:
            files.append((self.path(TXN_INDEX_SUFFIX), self.txn_index.encode()))
        return files

    def cool(self) -> None:
        """Let go of what can be loaded again."""
        self._file = None
        if self.saved:
            self._indexes = None

    def reload_indexes(self) -> None:
        """The index files are others now. They count if the segment has none that are newer, in memory."""
        if self.saved:
            self._indexes = self._txn_index = None
            self._max_timestamp = _UNKNOWN
        else:
            self._remove_index_files()

    def twin(self, config: LogConfig) -> Segment:
        """The same files, for another thread; nothing of them is loaded."""
        twin = Segment(self._disk, os.path.dirname(self._path), self.base_offset, self.created_ms, self.size)
        twin.configure(config)
        return twin

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self.cool()

    def paths(self) -> list[str]:
        """The files that are there."""
        paths = [self.path(suffix) for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES)]
        return [path for path in paths if self._disk.exists(path)]

    # writing

    def append(self, records: memoryview, size: int, last_offset: int, max_timestamp: int) -> int:
        """Write one batch at the end, and return its position. The segment must be writable."""
        position = (self._file or self.file).append(records)
        self.add_batch(position, size, last_offset, max_timestamp)
        return position

    def add_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Take account of a batch that is in the file."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        self.size = position + size
        if self._bytes_since_index_entry > self._config.index_interval_bytes:
            indexes = self.indexes
            indexes.offset.append(last_offset, position)
            if self._max_timestamp > NO_TIMESTAMP:
                indexes.time.maybe_append(self._max_timestamp, self._max_timestamp_offset)
            self._bytes_since_index_entry = 0
            self._update_limits()
        elif position == 0:
            self._first_timestamp = max_timestamp
            self._update_limits()
        self._bytes_since_index_entry += size

    def takes(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch may still go into this writable segment, by its size, its offsets, its indexes and its age.

        The age goes by the records' own time if the first batch has one, else by the clock.
        """
        return (
            self.size + size <= self._config.segment_bytes
            and last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
            and (max_timestamp if self._first_timestamp >= 0 else now_ms) <= self._rolls_after_ms
            and not self._indexes_full
        )

    @property
    def first_timestamp(self) -> int:
        """The time of the first batch; NO_TIMESTAMP if it has none, or there is no batch."""
        if self._first_timestamp == _UNKNOWN:
            self._first_timestamp = next(self.headers())[1].max_timestamp if self.size else NO_TIMESTAMP
        return self._first_timestamp

    def truncate_to(self, offset: int) -> int:
        """Cut the batch that holds `offset`, and what follows; the offset at which a writable segment now ends."""
        found = self.locate(offset)
        if found is None:
            return offset
        position, header = found
        self.file.truncate(position)
        self.size = position
        self.truncations += 1
        self.indexes.offset.truncate_to_position(position)
        self.indexes.time.truncate_to(header.base_offset)
        self.txn_index.truncate_to(header.base_offset)
        self._bytes_since_index_entry = 0
        self._first_timestamp = NO_TIMESTAMP if position == 0 else self._first_timestamp
        self._max_timestamp = _UNKNOWN
        self._load_max_timestamp()
        self._update_limits()
        return min(offset, header.base_offset)

    # reading

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch from `position` on, where a batch must begin."""
        file, chunk, chunk_start = self.file, b"", position
        while position < self.size:
            start = position - chunk_start
            if start + HEADER_SIZE > len(chunk):
                chunk, chunk_start, start = file.read(position, _SCAN_BYTES), position, 0
                if len(chunk) < HEADER_SIZE:
                    raise self._corrupt(position)
            header = BatchHeader._make(HEADER.unpack_from(chunk, start))
            if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
                raise self._corrupt(position)
            yield position, header
            position += LOG_OVERHEAD + header.batch_length

    def _corrupt(self, position: int) -> KafkaError:
        where = f"{self.path(LOG_SUFFIX)} at position {position}"
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{where} holds no batch; restore this replica from another")

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that ends at or after `offset`."""
        for position, header in self.headers(self.indexes.offset.lookup(offset)):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, header
        return None

    def read_next_offset(self) -> int:
        """The offset after the last batch, by the files."""
        next_offset = self.base_offset
        for _, header in self.headers(self.indexes.offset.last_entry().position):
            next_offset = header.next_offset
        return next_offset

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp of the segment's records; NO_TIMESTAMP if none has one."""
        self._load_max_timestamp()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch that has the greatest timestamp."""
        self._load_max_timestamp()
        return self._max_timestamp_offset

    def last_timestamp(self) -> int:
        """The greatest timestamp of the last few batches, by themselves: no index has to be right for it."""
        start = self.indexes.offset.last_entry().position
        return max((header.time_to_index for _, header in self.headers(start)), default=NO_TIMESTAMP)

    def _last_time_entry(self) -> TimeEntry:
        file = self._disk.open(self.path(TIME_INDEX_SUFFIX))
        size = file.size()
        if size % TIME_ENTRY_SIZE:
            return self.rebuild_indexes().time.last_entry()
        last = file.read(max(size - TIME_ENTRY_SIZE, 0), TIME_ENTRY_SIZE)
        return TimeIndex.decode(self.base_offset, last).last_entry()

    def _load_max_timestamp(self) -> None:
        if self._max_timestamp != _UNKNOWN:
            return
        if self.saved:  # then the last entry tells, and is read without loading the rest
            timestamp, offset = self._last_time_entry()
        else:
            timestamp, offset = self.indexes.time.last_entry()
            for _, header in self.headers(self.indexes.offset.lookup(offset)):
                if header.time_to_index > timestamp:
                    timestamp, offset = header.time_to_index, header.last_offset
        self._max_timestamp, self._max_timestamp_offset = timestamp, offset
