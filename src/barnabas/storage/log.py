"""The log of one partition: a directory of segments, appended at its end and read from anywhere.

    log_start_offset <= high_watermark <= log_end_offset, all segments together hold what lies between

Owned by the event loop, which appends in line: a batch is in the page cache when `append_as_leader` returns. What
blocks (sync, removal) is prepared here and run elsewhere (`flush`, `LogTasks`). A batch is judged before anything
changes, so a refused or failed append leaves nothing behind.

Crash rule: everything but the batches themselves is derived from them. Indexes, producer snapshots and leader epochs
are written when a segment is sealed, then the recovery point moves on; after a crash `recovery` scans the log from
there.
"""

from __future__ import annotations

import os
import random
from struct import Struct

from barnabas.core import logs
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.seams import Disk
from barnabas.records.batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    read_header,
    write_log_append_time,
)
from barnabas.records.control import ControlType, EndMarker, build_end_marker, parse_end_marker
from barnabas.records.crc import crc32c
from barnabas.storage import leader_epochs as epochs_file
from barnabas.storage.flush import FlushJob
from barnabas.storage.leader_epochs import EpochEntry, LeaderEpochs
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_slice import LogSlice
from barnabas.storage.producer_state import ProducerBatch, ProducerStates
from barnabas.storage.reader import LogReader
from barnabas.storage.results import AppendInfo, TimestampedOffset
from barnabas.storage.retention import expired_segments
from barnabas.storage.segment import Segment
from barnabas.storage.segments import Segments
from barnabas.storage.snapshots import Snapshots
from barnabas.storage.tasks import LogTasks, NoBackground
from barnabas.storage.txn_index import AbortedTxn
from barnabas.storage.validation import LAST_COMPRESSION, check_copies, check_timestamps, open_batch, refusal

__all__ = ["DELETED_SUFFIX", "AppendInfo", "Log", "LogSlice", "TimestampedOffset"]

DELETED_SUFFIX = ".deleted"

_STAMP = Struct(">qii")  # base offset, length, leader epoch: the head of a batch, which a leader writes

_log = logs.get_logger(__name__)


class Log:
    __slots__ = (
        "_boundaries", "_inspects_batches", "_log_append_time", "_reader", "_refused_attributes", "_rng",
        "_snapshots", "_truncations", "config", "damage", "directory", "disk", "first_dirty_offset", "flushed_offset",
        "high_watermark", "is_offline", "is_short", "leader_epochs", "log_end_offset", "log_start_offset", "name",
        "parent_directory", "partition", "producers", "segments", "tasks", "topic", "topic_id", "unsynced_directories",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        segments: Segments,
        snapshots: Snapshots,
        leader_epochs: LeaderEpochs,
        rng: random.Random,
    ) -> None:
        """The parts of a log, whose offsets are still to be found out: `recovery` opens and creates logs."""
        self.disk = disk
        self.tasks: LogTasks = NoBackground(disk)
        self._rng = rng
        self.directory = directory
        self.parent_directory = os.path.dirname(directory)
        """The log directory (`log.dirs`) that the partition's directory is in."""
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.topic_id = topic_id
        self.is_offline = False
        """Whether the disk below has failed."""
        self.damage = ""
        """What is wrong with records that were written, if anything is."""
        self.is_short = False
        """Whether records are missing at the end that were there, as it was opened."""
        self.segments = segments
        self.leader_epochs = leader_epochs
        self.producers = ProducerStates()
        start = segments.first.base_offset
        self.log_start_offset = start
        self.high_watermark = start
        self.log_end_offset = start
        self.flushed_offset = start
        self.first_dirty_offset = 0
        """Up to here the log was compacted; what follows was not looked at."""
        self._reader = LogReader(segments, leader_epochs)
        self._boundaries = self._reader.boundaries
        self._snapshots = snapshots
        self.unsynced_directories = {directory, self.parent_directory}
        """Those in which something was made or renamed since the last flush."""
        self._truncations = 0
        self.update_config(config)

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.log_start_offset} to {self.log_end_offset})"

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self.segments.active.configure(config)
        self._log_append_time = config.is_log_append_time
        self._refused_attributes = CONTROL if config.is_log_append_time else CONTROL | LOG_APPEND_TIME
        self._inspects_batches = config.is_compacted or config.compression_type != "producer"

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def recovery_point(self) -> int:
        """All below it is synced; a scan after a crash begins with the segment that holds it."""
        return self.flushed_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to here every transaction is decided, and its end committed."""
        unstable = self.producers.first_unstable_offset
        return unstable if 0 <= unstable < self.high_watermark else self.high_watermark

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        if self.producers.first_unstable_offset >= 0:
            self.producers.high_watermark_moved(offset)

    # appending

    def append_as_leader(self, records: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Append one batch of a client. `records` is written to: offset, epoch and, if so configured, time."""
        size = len(records)
        config = self.config
        if size < HEADER_SIZE:
            raise refusal(records, config)
        (
            base_offset, batch_length, _, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
            producer_id, producer_epoch, base_sequence, record_count,
        ) = HEADER.unpack_from(records)  # fmt: skip
        if (
            base_offset
            or magic != MAGIC
            or batch_length + LOG_OVERHEAD != size
            or size > config.max_message_bytes
            or last_offset_delta + 1 != record_count
            or record_count < 1
            or attributes & self._refused_attributes
            or attributes & COMPRESSION_MASK > LAST_COMPRESSION
            or crc32c(records[CRC_START:]) != crc
        ):
            raise refusal(records, config)
        if (
            max_timestamp - now_ms > config.message_timestamp_after_max_ms
            or now_ms - base_timestamp > config.message_timestamp_before_max_ms
        ) and not self._log_append_time:
            check_timestamps(records, now_ms, config, self.name)
        if producer_id >= 0:
            if base_sequence < 0:
                raise KafkaError(ErrorCode.INVALID_RECORD, f"producer {producer_id} sent a batch without a sequence")
            seen = self.producers.check_batch(
                producer_id,
                producer_epoch,
                base_sequence,
                (base_sequence + last_offset_delta) & 0x7FFFFFFF,
                bool(attributes & TRANSACTIONAL),
            )
            if seen is not None:
                return self._duplicate(seen)
        if self._inspects_batches:
            records = open_batch(records, attributes, config, now_ms, self.name)
            size = len(records)
        if self._log_append_time:
            max_timestamp = now_ms
            write_log_append_time(records, now_ms)
        return self._append_one(
            records, size, leader_epoch, now_ms, attributes, last_offset_delta, max_timestamp,
            producer_id, producer_epoch, base_sequence,
        )  # fmt: skip

    def _append_one(
        self,
        records: memoryview,
        size: int,
        leader_epoch: int,
        now_ms: int,
        attributes: int,
        last_offset_delta: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
    ) -> AppendInfo:
        """Append a batch that was found good."""
        offset = self.log_end_offset
        last_offset = offset + last_offset_delta
        segment = self.segments.active
        if segment.saved or not segment.takes(size, last_offset, max_timestamp, now_ms):
            segment = self._writable_segment(size, offset, last_offset, max_timestamp, now_ms)
        _STAMP.pack_into(records, 0, offset, size - LOG_OVERHEAD, leader_epoch)
        position = segment.append(records, size, last_offset, max_timestamp)
        self.log_end_offset = last_offset + 1
        self._boundaries.add(last_offset + 1, segment, position + size)
        if leader_epoch != self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, offset)
        if producer_id >= 0 and not attributes & CONTROL:
            self.producers.add_batch(
                producer_id, producer_epoch, base_sequence, offset, last_offset, max_timestamp,
                bool(attributes & TRANSACTIONAL),
            )  # fmt: skip
        return AppendInfo(
            offset,
            last_offset,
            now_ms if self._log_append_time else NO_TIMESTAMP,
            self.log_start_offset,
            max_timestamp,
            leader_epoch,
            last_offset_delta + 1,
            size,
        )

    def _duplicate(self, seen: ProducerBatch) -> AppendInfo:
        return AppendInfo(
            seen.first_offset,
            seen.last_offset,
            seen.timestamp if self._log_append_time else NO_TIMESTAMP,
            self.log_start_offset,
            seen.timestamp,
            self.epoch_of(seen.first_offset),
            seen.offset_delta + 1,
            0,
            duplicate=True,
        )

    def append_from_coordinator(self, records: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Append one batch that a coordinator of this broker has built. It has no sequence, also in a transaction."""
        size = len(records)
        if size > self.config.max_message_bytes:
            raise refusal(records, self.config)
        header = read_header(records)
        return self._append_one(
            records, size, leader_epoch, now_ms, header.attributes, header.last_offset_delta, header.max_timestamp,
            header.producer_id, header.producer_epoch, header.base_sequence,
        )  # fmt: skip

    def append_end_marker(
        self,
        marker: EndMarker,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """End a producer's transaction in this partition, as its coordinator decided."""
        self.producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch, transaction_version)
        batch = build_end_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms)
        attributes = CONTROL | TRANSACTIONAL
        info = self._append_one(
            memoryview(batch), len(batch), leader_epoch, now_ms, attributes, 0, now_ms, producer_id, producer_epoch, -1
        )
        self._end_transaction(marker, producer_id, producer_epoch, info.first_offset, now_ms, self.segments.active)
        return info

    def append_as_follower(self, records: memoryview) -> AppendInfo:
        """Append whole batches as a leader sent them; a batch that was cut at the end is left for the next fetch."""
        try:
            batches = check_copies(records, self.log_end_offset)
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: {error}") from error
        for position, header in batches:
            self._append_copy(records[position : position + header.size], header)
        first, last = batches[0][1], batches[-1][1]
        return AppendInfo(
            first.base_offset,
            last.last_offset,
            NO_TIMESTAMP,
            self.log_start_offset,
            max([header.max_timestamp for _, header in batches]),
            last.partition_leader_epoch,
            sum([header.record_count for _, header in batches]),
            sum([header.size for _, header in batches]),
        )

    def _append_copy(self, batch: memoryview, header: BatchHeader) -> None:
        size, last_offset, timestamp = header.size, header.last_offset, header.time_to_index
        segment = self._writable_segment(size, header.base_offset, last_offset, timestamp, timestamp)
        position = segment.append(batch, size, last_offset, timestamp)
        self.log_end_offset = last_offset + 1
        self._boundaries.add(last_offset + 1, segment, position + size)
        self.replay(header, segment, position)

    def replay(self, header: BatchHeader, segment: Segment, position: int, *, index_aborted: bool = True) -> None:
        """Fold a batch that is in the log into the leader epochs and the producers' state."""
        epoch = header.partition_leader_epoch
        if epoch < self.leader_epochs.latest:
            self.leader_epochs.witness(epoch, header.base_offset)
        if epoch > self.leader_epochs.latest:
            self.leader_epochs.assign(epoch, header.base_offset)
        producer_id = header.producer_id
        if producer_id < 0:
            return
        if not header.is_control:
            self.producers.add_batch(
                producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.is_transactional,
            )
            return
        marker = parse_end_marker(memoryview(segment.file.read(position, header.size)))
        if marker is not None:
            self._end_transaction(
                marker,
                producer_id,
                header.producer_epoch,
                header.base_offset,
                header.max_timestamp,
                segment if index_aborted else None,
            )

    def _end_transaction(
        self,
        marker: EndMarker,
        producer_id: int,
        producer_epoch: int,
        offset: int,
        timestamp: int,
        segment: Segment | None,
    ) -> None:
        is_abort = marker.type is ControlType.ABORT
        completed = self.producers.add_marker(
            producer_id, producer_epoch, marker.coordinator_epoch, offset, timestamp, is_abort
        )
        if completed is not None and is_abort and segment is not None:
            stable = self.producers.last_stable_offset_after(completed)
            segment.txn_index.aborted.append(AbortedTxn(producer_id, completed.first_offset, offset, stable))

    # segments

    def _writable_segment(self, size: int, offset: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        """The active segment, or a new one if the batch no longer belongs into it."""
        segment = self.segments.active
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes does not fit a segment of {self.config.segment_bytes} (segment.bytes)",
            )
        if segment.saved:
            self._reopen(segment)
        return segment if segment.takes(size, last_offset, max_timestamp, now_ms) else self.roll(offset, now_ms)

    def _reopen(self, segment: Segment) -> None:
        segment.configure(self.config)
        segment.make_writable()
        self.unsynced_directories.add(self.directory)

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Seal the active segment and go on in a new one that begins at `base_offset`."""
        sealed = self.segments.active
        if sealed.size == 0 and sealed.base_offset == base_offset:
            return sealed
        segment = self._new_segment(base_offset, now_ms)
        sealed.seal()
        self.segments.add(segment)
        if sealed.size == 0:
            self.segments.remove([sealed])
            self.discard([sealed])
        else:
            self._snapshots.take(base_offset, self.producers)
            self.tasks.segment_sealed(self)
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        config = self.config
        segment = Segment.create(self.disk, self.directory, base_offset, now_ms)
        segment.jitter_ms = self._rng.randrange(min(config.segment_jitter_ms, config.segment_ms) or 1)
        segment.configure(config)
        self.unsynced_directories.add(self.directory)
        return segment

    def discard(self, doomed: list[Segment], keep_snapshot_at: int = -1) -> None:
        """Rename the files of segments at once, so that no restart sees them; they are removed later."""
        removed = []
        for segment in doomed:
            paths = segment.paths()
            if segment.base_offset != keep_snapshot_at and (snapshot := self._snapshots.forget(segment.base_offset)):
                paths.append(snapshot)
            for path in paths:
                self.disk.rename(path, path + DELETED_SUFFIX)
                removed.append(path + DELETED_SUFFIX)
            segment.cool()
        self._boundaries.clear()
        self.tasks.remove_later(removed, self.config.file_delete_delay_ms)

    def indexes_rebuilt(self, segment: Segment) -> None:
        """A sealed segment has other index files now; nothing that was found by the old ones is to be trusted."""
        segment.reload_indexes()
        self._boundaries.clear()

    def delete_old_segments(self, now_ms: int) -> int:
        """Let go of what retention no longer wants; the number of segments."""
        doomed, reason = expired_segments(self, now_ms)
        if not doomed:
            return 0
        if len(doomed) == len(self.segments):
            self.roll(self.log_end_offset, now_ms)
        self.segments.remove(doomed)
        self.discard(doomed)
        self._move_log_start_offset(max(self.log_start_offset, self.segments.first.base_offset))
        _log.info(
            "segments deleted",
            topic=self.topic,
            partition=self.partition,
            segments=len(doomed),
            size_bytes=sum([segment.size for segment in doomed]),
            reason=reason,
            log_start_offset=self.log_start_offset,
        )
        return len(doomed)

    def advance_log_start_offset(self, offset: int) -> None:
        """Give up the records below `offset` (DeleteRecords); their segments go with the next retention."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} has high watermark {self.high_watermark}; cannot delete up to {offset}",
            )
        if offset > self.log_start_offset:
            self._move_log_start_offset(offset)

    def _move_log_start_offset(self, offset: int) -> None:
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.tasks.checkpoint_soon(self)

    # truncating

    def truncate_to(self, offset: int) -> None:
        """Drop the records from `offset` on, with the whole batch that holds it."""
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)  # one that began here and got no record
            return
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        doomed = [segment for segment in self.segments if segment.base_offset > offset]
        self.segments.remove(doomed)
        active = self.segments.active
        self._reopen(active)
        end_offset = active.truncate_to(offset)
        active.file.sync()  # or a power cut could bring back what was cut
        self._end_at(end_offset, doomed)
        self.rebuild_producers()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the next record is expected at `offset`."""
        doomed = list(self.segments)
        self.leader_epochs.clear()
        self.producers.clear()
        self._snapshots.truncate_to(-1)
        self._end_at(offset, doomed)
        self.segments.restart_with(self._new_segment(offset, doomed[-1].created_ms))
        self.log_start_offset = self.high_watermark = self.flushed_offset = offset

    def _end_at(self, offset: int, doomed: list[Segment]) -> None:
        """Let all that is known of the log end at `offset`, and make that survive a power cut."""
        for segment in doomed:
            segment.truncations += 1
        self.discard(doomed)
        self._truncations += 1
        self._snapshots.truncate_to(offset)
        self.leader_epochs.truncate_from_end(offset)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        self.first_dirty_offset = min(self.first_dirty_offset, offset)
        self.set_high_watermark(min(self.high_watermark, offset))
        self.disk.sync_dir(self.directory)
        self.tasks.checkpoint_soon(self)

    def rebuild_producers(self) -> None:
        """Find the producers' state again: the newest snapshot, then the batches after it."""
        start = max(self._snapshots.restore_latest(self.producers, self.log_end_offset), self.log_start_offset)
        if start < self.log_end_offset:
            for segment in self.segments.since(start):
                if segment.base_offset >= self.log_end_offset:
                    break  # recovery has yet to scan it
                found = segment.locate(start)
                for position, header in segment.headers(found[0]) if found else ():
                    self.replay(header, segment, position, index_aborted=False)
        self.producers.high_watermark_moved(self.high_watermark)

    # flushing

    def prepare_flush(self, *, closing: bool = False) -> FlushJob:
        """What must reach the disk for the recovery point to move to the end; if `closing`, all that is derived too."""
        active = self.segments.active
        if closing:
            active.seal()
            if self.log_end_offset > self.segments.first.base_offset:
                self._snapshots.take(self.log_end_offset, self.producers)
        unsynced = self.segments.since(self.flushed_offset - 1)
        sealed = [segment for segment in unsynced if not segment.saved and (segment is not active or closing)]
        writes = [file for segment in sealed if segment.size for file in segment.index_files()]
        writes += self._snapshots.unsaved()
        if (sealed or closing) and not self.leader_epochs.saved:
            self.leader_epochs.saved = True
            writes.append((f"{self.directory}/{epochs_file.FILE_NAME}", self.leader_epochs.encode()))
        directories, self.unsynced_directories = self.unsynced_directories, set()
        files = [segment.file for segment in unsynced if not segment.saved]
        return FlushJob(self.log_end_offset, self._truncations, files, sealed, writes, sorted(directories))

    def complete_flush(self, job: FlushJob) -> None:
        """Take note of what is on the disk now; none of it counts if the log was truncated meanwhile."""
        if job.truncations != self._truncations:
            self._snapshots.distrust([path for path, _ in job.writes])
            return
        self.flushed_offset = max(self.flushed_offset, job.end_offset)
        self._snapshots.saved([path for path, _ in job.writes])
        for segment in job.sealed:
            segment.saved = True
            if segment is not self.segments.active:
                self.segments.touch(segment)

    def close(self) -> None:
        """Flush all, and let go of the files."""
        job = self.prepare_flush(closing=True)
        job.run(self.disk)
        self.complete_flush(job)
        self.release()

    def release(self) -> None:
        """Let go of the files as they are."""
        for segment in self.segments:
            segment.close()

    # reading

    def read(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool) -> LogSlice:
        """Whole batches from the one that holds `offset`, below `max_offset`, of one segment, at most `max_bytes`.

        The first batch may exceed `max_bytes` if at least one is wanted (KIP-74).
        """
        self.check_readable(offset)
        return self._reader.read(offset, max_bytes, max_offset, min_one_batch, self.log_end_offset)

    def check_readable(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} holds offsets {self.log_start_offset} to {self.log_end_offset}; {offset} was asked for",
            )

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """The aborted transactions that may have records from offset `start` up to `end`, without it."""
        return self._reader.aborted_transactions(start, end)

    def epoch_of(self, offset: int) -> int:
        return self.leader_epochs.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEntry:
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampedOffset | None:
        """The first record whose time is `timestamp_ms` or later."""
        return self._reader.offset_for_timestamp(timestamp_ms, self.log_start_offset)

    def offset_of_max_timestamp(self) -> TimestampedOffset | None:
        """The first record that has the greatest time of all (KIP-734)."""
        return self._reader.offset_of_max_timestamp(self.log_start_offset)
