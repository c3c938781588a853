"""Reading one segment through, to find out whether the disk still holds what was written.

Every batch is checked to its CRC. Offsets have to rise, and leader epochs to be those that the log knows of: no CRC
covers them. The file has to be as long as it was. Each entry of an index has to lead to a batch from which a search
would find what it looks for.

An index that is wrong is built again from the records, which are in order then. Records that are wrong, or missing, are
only found elsewhere. A sealed segment may end before the next one begins, as compaction leaves it; but not if an index
knows of what came after that end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas.core.seams import Disk, File
from barnabas.records.batch import NO_TIMESTAMP, BatchHeader
from barnabas.storage.batch_scan import valid_batches
from barnabas.storage.leader_epochs import UNDEFINED_EPOCH, EpochEntry
from barnabas.storage.offset_index import CorruptIndex, IndexEntry, OffsetIndex
from barnabas.storage.segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, Segment
from barnabas.storage.time_index import TimeEntry, TimeIndex
from barnabas.storage.txn_index import TxnIndex

_STEP_BYTES = 256 * 1024
_STEP_BATCHES = 200  # small ones cost time that the event loop does not have


class Finding(NamedTuple):
    problem: str
    is_index: bool
    """Whether only an index is wrong, and the records are as they were."""


class SegmentCheck:
    """Made on the loop, of the segment as it is then; `step` and `close` block. Done when `step` says 0."""

    __slots__ = (
        "_base_offset", "_batches", "_disk", "_end_offset", "_epoch", "_epochs", "_file", "_index_problem",
        "_is_growing", "_latest_ms", "_next_offset", "_offsets", "_path", "_position", "_size", "_slot", "_time_slot",
        "_times", "finding",
    )  # fmt: skip

    def __init__(
        self, disk: Disk, segment: Segment, end_offset: int, epochs: Sequence[EpochEntry], *, is_growing: bool
    ) -> None:
        """`end_offset` is where the next segment begins, or where the log ends; `epochs` are the log's. One that is
        growing has its indexes in memory alone.
        """
        self._disk = disk
        self._path = segment.path
        self._base_offset = self._next_offset = segment.base_offset
        self._size = segment.size
        self._end_offset = end_offset
        self._is_growing = is_growing
        self._file: File | None = None
        self._batches: Iterator[tuple[int, BatchHeader]] = iter(())
        self._position = 0
        self._epoch = UNDEFINED_EPOCH
        self._epochs = list(reversed(epochs))
        self._latest_ms = NO_TIMESTAMP
        self._offsets: list[IndexEntry] = []
        self._times: list[TimeEntry] = []
        self._slot = self._time_slot = 0  # the next entry that the batches have yet to reach
        self._index_problem = ""
        self.finding: Finding | None = None

    def step(self) -> int:
        """Look at the next batches, a few; the number of their bytes, 0 when all is done, or something was found."""
        if self._file is None:
            self._open()
        start = self._position
        for _ in range(_STEP_BATCHES):
            if self.finding is not None or self._position - start >= _STEP_BYTES:
                break
            found = next(self._batches, None)
            if found is None:
                if self._position == start:
                    self._conclude()
                break
            self._judge(*found)
        return 0 if self.finding is not None else self._position - start

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    # the beginning

    def _open(self) -> None:
        self._file = self._disk.open(self._path(LOG_SUFFIX))
        there = self._file.size()
        if there < self._size or (there > self._size and not self._is_growing):
            self._records_are_wrong(f"the file has {there} bytes instead of {self._size}")
            return
        self._batches = valid_batches(self._file, self._size, chunk_bytes=_STEP_BYTES)
        if self._size and not self._is_growing:
            self._read_indexes()

    def _read_indexes(self) -> None:
        disk, base_offset = self._disk, self._base_offset
        try:
            self._offsets = OffsetIndex.decode(base_offset, disk.read_bytes(self._path(OFFSET_INDEX_SUFFIX))).entries()
            self._times = TimeIndex.decode(base_offset, disk.read_bytes(self._path(TIME_INDEX_SUFFIX))).entries()
        except (CorruptIndex, FileNotFoundError) as error:
            self._index_is_wrong(str(error))
        if not _rises(self._offsets) or not _rises(self._times):
            self._index_is_wrong("the entries of an index do not rise")
        path = self._path(TXN_INDEX_SUFFIX)
        try:
            aborted = TxnIndex.decode(disk.read_bytes(path) if disk.exists(path) else b"").aborted
        except CorruptIndex as error:
            self._records_are_wrong(f"{error}; what was aborted is not known")
            return
        for txn in aborted:
            if not 0 <= txn.first_offset <= txn.last_offset or not base_offset <= txn.last_offset < self._end_offset:
                self._records_are_wrong(f"the transaction index has an entry {tuple(txn)}; what was aborted is unknown")

    # the batches

    def _judge(self, position: int, header: BatchHeader) -> None:
        if header.base_offset < self._next_offset or header.last_offset >= self._end_offset:
            self._records_are_wrong(
                f"the batch at position {position} has offsets {header.base_offset} to {header.last_offset}, "
                f"which are not between {self._next_offset} and {self._end_offset}"
            )
            return
        while self._epochs and self._epochs[-1].start_offset <= header.base_offset:
            self._epoch = self._epochs.pop().epoch
        if self._epoch not in (UNDEFINED_EPOCH, header.partition_leader_epoch):
            self._records_are_wrong(
                f"the batch at position {position} is of leader epoch {header.partition_leader_epoch}, "
                f"but at its offset there was {self._epoch}"
            )
            return
        self._judge_entries(position, header)
        self._position = position + header.size
        self._next_offset = header.next_offset
        self._latest_ms = max(self._latest_ms, header.time_to_index)

    def _judge_entries(self, position: int, header: BatchHeader) -> None:
        """Before the batch is counted: what a search for it, or for its time, would be told."""
        while self._slot < len(self._offsets) and self._offsets[self._slot].position <= position:
            entry = self._offsets[self._slot]
            if entry.position < position or entry.offset < header.base_offset:
                self._index_is_wrong(f"an entry of the offset index leads from offset {entry.offset} to no such batch")
            self._slot += 1
        while self._time_slot < len(self._times) and self._times[self._time_slot].offset < header.last_offset:
            self._judge_time(self._times[self._time_slot])
            self._time_slot += 1

    def _judge_time(self, entry: TimeEntry) -> None:
        if entry.timestamp < self._latest_ms:
            self._index_is_wrong(f"the time index says {entry.timestamp} where there is {self._latest_ms}")

    # the end

    def _conclude(self) -> None:
        """There is no further batch that is in order."""
        if self._position < self._size:
            self._records_are_wrong(f"there is no valid batch at position {self._position} of {self._size}")
            return
        if self._size and not self._is_growing:
            for entry in self._times[self._time_slot :]:
                self._judge_time(entry)
            if (self._times[-1].timestamp if self._times else NO_TIMESTAMP) != self._latest_ms:
                self._index_is_wrong(f"the time index does not end with {self._latest_ms}")
            is_beyond = self._slot < len(self._offsets) or any(each.offset >= self._next_offset for each in self._times)
            if is_beyond and self._next_offset < self._end_offset:
                self._records_are_wrong(f"the records from offset {self._next_offset} to {self._end_offset} are gone")
            elif is_beyond:
                self._index_is_wrong("an index leads beyond the last batch")
        if self._index_problem and self.finding is None:
            self.finding = Finding(f"{self._path(LOG_SUFFIX)}: {self._index_problem}", True)

    def _index_is_wrong(self, problem: str) -> None:
        self._index_problem = self._index_problem or problem

    def _records_are_wrong(self, problem: str) -> None:
        self.finding = Finding(f"{self._path(LOG_SUFFIX)}: {problem}", False)


def _rises(entries: list[IndexEntry] | list[TimeEntry]) -> bool:
    return all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(entries))
