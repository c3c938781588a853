"""Compaction of a log in one call, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.storage import swap
from barnabas.storage.cleaner import examine, job_for
from barnabas.storage.cleaning import CleanedGroup, CleaningJob, clean
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment
from tests.unit.storage.storage_helpers import NOW_MS

SETTINGS: Mapping[str, Any] = {
    "log.cleaner.dedupe.buffer.size": 1 << 20,
    "log.cleaner.io.buffer.load.factor": 0.9,
    "log.cleaner.io.buffer.size": 1000,
}
COMPACTED: Mapping[str, Any] = {"cleanup_policy": ("compact",), "segment_bytes": 1000, "index_interval_bytes": 200}


def flush(log: Log) -> None:
    job = log.prepare_flush()
    job.run(log.disk)
    log.complete_flush(job)


def job_of(log: Log, now_ms: int = NOW_MS, **settings: Any) -> CleaningJob:
    flush(log)
    changed = {key.replace("_", "."): value for key, value in settings.items()}
    return job_for(examine(log, now_ms), now_ms, {**SETTINGS, **changed}, b"a secret")


def segments_of(log: Log, group: CleanedGroup) -> list[Segment]:
    return [segment for segment in log.segments if segment.base_offset in group.base_offsets]


def compact(log: Log, now_ms: int = NOW_MS, **settings: Any) -> int:
    """One round over all that may be cleaned; the first offset that is dirty afterwards."""
    for group in clean(log.disk, job_of(log, now_ms, **settings)):
        swap.replace_segments(log, segments_of(log, group), group.size)
        log.first_dirty_offset = group.end_offset
    return log.first_dirty_offset
