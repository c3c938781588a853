"""Which segments a log may let go: too old, beyond the size that is to be kept, or before the log's start.

Only whole segments from the front go, only below the high watermark, and never an active one that is empty. If all go,
the log first rolls to a new segment at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.records.batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from barnabas.storage.log import Log
    from barnabas.storage.segment import Segment


class Expired(NamedTuple):
    segments: list[Segment]
    reason: str


def expired_segments(log: Log, now_ms: int) -> Expired:
    """The segments at the front of the log that its configuration no longer wants kept."""
    config = log.config
    rules: list[tuple[str, Callable[[Segment, int], bool]]] = []
    if "delete" in config.cleanup_policy:
        if config.retention_ms >= 0:
            rules.append((f"older than retention.ms={config.retention_ms}", _older_than(now_ms - config.retention_ms)))
        if config.retention_bytes >= 0:
            too_much = log.size_bytes - config.retention_bytes
            rules.append((f"beyond retention.bytes={config.retention_bytes}", _within_first_bytes(too_much)))
    rules.append((f"before the log start offset {log.log_start_offset}", _ends_by(log.log_start_offset)))
    found = [Expired(_leading(log, rule), reason) for reason, rule in rules]
    return max(found, key=lambda expired: len(expired.segments))


def _leading(log: Log, rule: Callable[[Segment, int], bool]) -> list[Segment]:
    """The longest run of segments from the front for which the rule holds and that the watermark has passed."""
    chosen = []
    for segment in log.segments:
        following = log.segments.after(segment)
        end_offset = following.base_offset if following else log.log_end_offset
        if following is None and segment.size == 0:
            break
        if log.high_watermark < end_offset or not rule(segment, end_offset):
            break
        chosen.append(segment)
    return chosen


def _older_than(oldest_ms: int) -> Callable[[Segment, int], bool]:
    def has_expired(segment: Segment, end_offset: int) -> bool:
        timestamp = segment.max_timestamp
        is_older = (timestamp if timestamp > NO_TIMESTAMP else segment.created_ms) < oldest_ms
        return is_older and segment.last_timestamp() < oldest_ms  # an index may be wrong, and this is for good

    return has_expired


def _within_first_bytes(too_much: int) -> Callable[[Segment, int], bool]:
    left = too_much

    def fits(segment: Segment, end_offset: int) -> bool:
        nonlocal left
        left -= segment.size
        return left >= 0

    return fits


def _ends_by(offset: int) -> Callable[[Segment, int], bool]:
    return lambda segment, end_offset: end_offset <= offset
