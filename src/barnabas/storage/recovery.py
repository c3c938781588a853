"""Opening a partition's directory, and making it whole again after a crash.

After a clean stop nothing is scanned: the end of the log is read from the last batches, the rest when it is needed.

After an unclean one, the segments from the recovery point on, and any whose index files are missing, are read through:
every batch is checked to its CRC, indexes, leader epochs and producer state are built anew, and at the first batch
that is torn or damaged the log is cut. What was below the recovery point was synced, and is not in doubt. If there are
valid batches behind the place, which is not how a write is torn, what is cut off is kept in files for a human to judge.

Whatever the stop was, a log that has lost its end, or whose leader epochs cannot be read, is scanned too. One that ends
before it once did is *short*: it must not be taken for complete where other replicas have the rest. What was synced in
a clean stop and is damaged since is not cut: it stays in the log, which is known to be damaged.
"""

from __future__ import annotations

import random

from barnabas.core import logs
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.core.seams import Disk
from barnabas.records.batch import MAGIC, CorruptBatch, crc_of, headers
from barnabas.storage import leader_epochs as epochs_file
from barnabas.storage.batch_scan import valid_batches
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log import DELETED_SUFFIX, Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producer_state import SNAPSHOT_SUFFIX
from barnabas.storage.segment import (
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    base_name,
)
from barnabas.storage.segments import Segments
from barnabas.storage.snapshots import Snapshots
from barnabas.storage.swap import finish_swaps

DAMAGED_SUFFIX = ".damaged"
_REMAINS = (DELETED_SUFFIX, ".tmp")  # what a crash may leave of work that was not finished
_NOWHERE = 2**63 - 1
_END_BYTES = 16 * 1024

_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LogState:
    """What is known of a log from outside its directory: the checkpoints, and how the broker stopped."""

    is_clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    first_dirty_offset: int = 0


@dataclass(slots=True)
class Recovery:
    """What opening a log took."""

    scanned_segments: int = 0
    scanned_bytes: int = 0
    dropped_bytes: int = 0
    dropped_segments: int = 0


def create_log(
    disk: Disk,
    directory: str,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: LogConfig,
    rng: random.Random,
    now_ms: int,
) -> Log:
    """A new, empty log in a directory that is empty."""
    segments = Segments([Segment.create(disk, directory, 0, now_ms)])
    snapshots = Snapshots(disk, directory, set())
    return Log(disk, directory, topic, partition, topic_id, config, segments, snapshots, LeaderEpochs(), rng)


def open_log(
    disk: Disk,
    directory: str,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: LogConfig,
    rng: random.Random,
    now_ms: int,
    state: LogState,
) -> tuple[Log, Recovery]:
    """The log in `directory`, ready for use, and what was done to make it so. Blocks while it scans."""
    names = _tidy(disk, directory)
    base_offsets = [int(name[: -len(LOG_SUFFIX)]) for name in names if name.endswith(LOG_SUFFIX)]
    found = [
        Segment(disk, directory, offset, now_ms, disk.size(f"{directory}/{base_name(offset)}{LOG_SUFFIX}"))
        for offset in base_offsets
    ]
    segments = Segments(found or [Segment.create(disk, directory, state.log_start_offset, now_ms)])
    snapshots = Snapshots(disk, directory, {int(name[:20]) for name in names if name.endswith(SNAPSHOT_SUFFIX)})
    epochs = _read_epochs(disk, directory) if epochs_file.FILE_NAME in names else LeaderEpochs()
    log = Log(disk, directory, topic, partition, topic_id, config, segments, snapshots, epochs or LeaderEpochs(), rng)
    log.log_start_offset = max(state.log_start_offset, segments.first.base_offset)
    log.first_dirty_offset = state.first_dirty_offset
    recovery = Recovery()
    doubtful = list(segments) if epochs is None else _doubtful_segments(segments, set(names), state, epochs)
    if doubtful:
        recovery = _rebuild(log, snapshots, doubtful, state.recovery_point)
    else:
        log.log_end_offset = segments.active.read_next_offset()
        log.damage = _damage_at_the_end(segments.active)
        if log.damage:
            _log.error("log is damaged at its end", topic=topic, partition=partition, problem=log.damage)
    log.is_short = recovery.dropped_bytes > 0 or log.log_end_offset < state.recovery_point
    if log.log_end_offset < log.log_start_offset:
        if state.is_clean and not log.is_short:
            _log.error("log start offset is beyond the log; done without", log=log)
            log.log_start_offset = segments.first.base_offset
        else:
            log.truncate_fully_and_start_at(log.log_start_offset)
    snapshots.truncate_to(log.log_end_offset)
    snapshots.remove_strays({segment.base_offset for segment in segments})
    log.leader_epochs.truncate_from_end(log.log_end_offset)
    log.leader_epochs.truncate_from_start(log.log_start_offset)
    if not doubtful:
        log.rebuild_producers()
        log.flushed_offset = log.log_end_offset
    log.set_high_watermark(min(max(state.high_watermark, log.log_start_offset), log.log_end_offset))
    if doubtful:
        job = log.prepare_flush()
        job.run(disk)
        log.complete_flush(job)
    else:
        segments.active.cool()
        if state.is_clean:
            log.unsynced_directories.clear()
    return log, recovery


def _tidy(disk: Disk, directory: str) -> list[str]:
    """The names in the directory, once what was being written, swapped or deleted in a crash is out of the way."""
    finish_swaps(disk, directory)
    names = disk.list_dir(directory)
    remains = [name for name in names if name.endswith(_REMAINS)]
    for name in remains:
        disk.remove(f"{directory}/{name}")
    return [name for name in names if name not in remains] if remains else names


def _read_epochs(disk: Disk, directory: str) -> LeaderEpochs | None:
    """None if they are damaged."""
    path = f"{directory}/{epochs_file.FILE_NAME}"
    try:
        return LeaderEpochs.decode(disk.read_bytes(path))
    except ValueError as error:
        _log.warning("leader epochs damaged; the log is scanned to find them again", path=path, problem=error)
        return None


def _doubtful_segments(segments: Segments, names: set[str], state: LogState, epochs: LeaderEpochs) -> list[Segment]:
    """The segments from the first one that has to be scanned; an empty one needs no indexes."""
    recovery_point = None if state.is_clean else state.recovery_point
    certain = 0
    for segment in segments:
        name = base_name(segment.base_offset)
        following = segments.after(segment)
        end_offset = following.base_offset if following else None
        synced = recovery_point is None or (end_offset is not None and end_offset <= recovery_point)
        indexed = name + OFFSET_INDEX_SUFFIX in names and name + TIME_INDEX_SUFFIX in names
        if not synced or (segment.size and not indexed):
            break
        certain += 1
    if certain < len(segments):
        return list(segments)[certain:]
    return _wrong_at_the_end(segments, state.recovery_point, epochs)


def _wrong_at_the_end(segments: Segments, recovery_point: int, epochs: LeaderEpochs) -> list[Segment]:
    """What to scan of a log that was closed: nothing if its last batches are whole, and those that were synced."""
    segment = segments.active
    try:
        _ = segment.txn_index
        end, last = segment.indexes.offset.last_entry().position, None
        for position, header in segment.headers(end):
            end, last = position + header.size, header
    except KafkaError:  # the scan finds out what was aborted, too
        return [segment]
    if end != segment.size or (last.next_offset if last else segment.base_offset) < recovery_point:
        return [segment]
    if last is not None and epochs.entries and epochs.epoch_of(last.base_offset) != last.partition_leader_epoch:
        _log.warning("leader epochs are not those of the last batch; the log is scanned to find them", segment=segment)
        epochs.clear()
        return list(segments)
    return []


def _damage_at_the_end(segment: Segment) -> str:
    """What is wrong with the last batches of a segment; nothing, as a rule."""
    end = segment.indexes.offset.last_entry().position
    for position, header in valid_batches(segment.file, segment.size, end, chunk_bytes=_END_BYTES):
        end = position + header.size
    if end == segment.size:
        return ""
    return f"{segment.path(LOG_SUFFIX)}: there is no valid batch at position {end} of {segment.size}"


def _rebuild(log: Log, snapshots: Snapshots, doubtful: list[Segment], recovery_point: int) -> Recovery:
    """Scan the doubtful segments in their order; cut the log where it stops making sense."""
    recovery = Recovery()
    start = doubtful[0].base_offset
    snapshots.truncate_to(start)
    log.leader_epochs.truncate_from_end(start)
    log.log_end_offset = log.flushed_offset = start
    log.rebuild_producers()
    # What was not synced may be missing without a trace, and a base offset is not covered by the CRC. So a gap in the
    # offsets is damage there, except in a compacted topic.
    dense_from = _NOWHERE if log.config.is_compacted else recovery_point
    for number, segment in enumerate(doubtful):
        if number:
            expected = log.log_end_offset
            if segment.base_offset < expected or (segment.base_offset > expected and segment.base_offset > dense_from):
                _drop(log, doubtful[number:], recovery)
                break
            snapshots.take(segment.base_offset, log.producers)
        recovery.scanned_segments += 1
        recovery.scanned_bytes += segment.size
        excess = _scan(log, segment, dense_from)
        if excess:
            _keep_if_valid(log, segment, excess)
            recovery.dropped_bytes += excess
            segment.file.truncate(segment.size)
            _drop(log, doubtful[number + 1 :], recovery)
            break
        if segment is not log.segments.active:
            segment.seal()
    if recovery.dropped_bytes:
        _log.warning(
            "torn or damaged records dropped after an unclean stop",
            topic=log.topic,
            partition=log.partition,
            dropped_bytes=recovery.dropped_bytes,
            dropped_segments=recovery.dropped_segments,
            log_end_offset=log.log_end_offset,
        )
    return recovery


def _keep_if_valid(log: Log, segment: Segment, excess: int) -> None:
    """Copy what is about to be cut off, if there are records in it that could be read."""
    tail = segment.file.read(segment.size, excess)
    if _has_valid_batch(tail):
        log.disk.replace(segment.path(DAMAGED_SUFFIX), tail)
        _log.warning("records behind a damaged batch are kept", path=segment.path(DAMAGED_SUFFIX))


def _has_valid_batch(tail: bytes) -> bool:
    """Whether a batch in the tail is in order, where the lengths of those before it lead."""
    view = memoryview(tail)
    try:
        for position, header in headers(view):
            if header.magic == MAGIC and crc_of(view[position : position + header.size]) == header.crc:
                return True
    except CorruptBatch:
        pass
    return False


def _drop(log: Log, segments: list[Segment], recovery: Recovery) -> None:
    """Take out segments behind the end of what makes sense; their records are kept."""
    log.segments.remove(segments)
    for segment in segments:
        recovery.dropped_segments += 1
        recovery.dropped_bytes += segment.size
        if segment.size:
            log.disk.rename(segment.path(LOG_SUFFIX), segment.path(DAMAGED_SUFFIX))
            _log.warning("records behind a damaged batch are kept", path=segment.path(DAMAGED_SUFFIX))
        for path in segment.paths():
            log.disk.remove(path)


def _scan(log: Log, segment: Segment, dense_from: int) -> int:
    """Rebuild what is derived from one segment; the number of bytes at its end that are not whole, valid batches."""
    file_size = segment.size
    segment.size = 0
    segment.forget_indexes()
    segment.configure(log.config)
    for position, header in valid_batches(segment.file, file_size):
        expected = max(segment.base_offset, log.log_end_offset)
        if (
            header.base_offset < expected
            or (header.base_offset > expected and header.base_offset > dense_from)
            or header.last_offset > segment.base_offset + MAX_RELATIVE_OFFSET
        ):
            break
        segment.add_batch(position, header.size, header.last_offset, header.time_to_index)
        log.replay(header, segment, position)
        log.log_end_offset = header.next_offset
    return file_size - segment.size
