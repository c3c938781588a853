"""What a log answers: where a batch was appended, and which record stands at a time."""

from __future__ import annotations

from typing import NamedTuple


class AppendInfo(NamedTuple):
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """NO_TIMESTAMP where the topic keeps the producer's time."""
    log_start_offset: int
    max_timestamp: int
    leader_epoch: int
    record_count: int
    size_bytes: int
    duplicate: bool = False


class TimestampedOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int
