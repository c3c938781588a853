"""The cleaner's work on a log, without the broker around it."""

from __future__ import annotations

from barnabas.storage import swap
from barnabas.storage.cleaner import examine, job_for
from barnabas.storage.cleaning import clean
from barnabas.storage.log import Log

SETTINGS = {
    "log.cleaner.dedupe.buffer.size": 1 << 20,
    "log.cleaner.io.buffer.load.factor": 0.9,
    "log.cleaner.io.buffer.size": 1 << 16,
}


def compact(log: Log, now_ms: int) -> None:
    job = log.prepare_flush()
    job.run(log.disk)
    log.complete_flush(job)
    for group in clean(log.disk, job_for(examine(log, now_ms), now_ms, SETTINGS, b"a secret")):
        old = [segment for segment in log.segments if segment.base_offset in group.base_offsets]
        swap.replace_segments(log, old, group.size)
        log.first_dirty_offset = group.end_offset
