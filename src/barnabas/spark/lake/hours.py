"""Hours of a lake: their directories, and when no more rows are expected for them.

An hour is a whole number of hours since 1970, in UTC whatever the session's time zone. None stands for rows without a
time, or with one that no calendar has; their hour is never complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

HOUR_MS = 3_600_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_HOUR = (datetime(1, 1, 2, tzinfo=UTC) - _EPOCH) // timedelta(hours=1)
LAST_HOUR = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(hours=1)

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What stands for null in the name of a directory, with Hive as with Spark."""


@dataclass(frozen=True, slots=True)
class HourDirectories:
    """The directory of an hour, under the names that the lake's owner has chosen."""

    date_name: str = "date"
    hour_name: str = "hour"

    def of(self, hour: int | None) -> str:
        if hour is None:
            return f"{self.date_name}={NO_VALUE}/{self.hour_name}={NO_VALUE}"
        begin = _EPOCH + timedelta(hours=hour)
        return f"{self.date_name}={begin.date().isoformat()}/{self.hour_name}={begin.hour:02}"


def hour_text(hour: int | None) -> str:
    """For people: 2026-11-16T10."""
    return "without a time" if hour is None else f"{(_EPOCH + timedelta(hours=hour)).isoformat()[:13]}"


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far the load of one partition is."""

    is_at_end: bool
    """Everything that the topic had a moment ago is in the lake."""
    latest_ms: int | None
    """The greatest time among the rows so far, if all offsets before them are in the lake too."""


def complete_until(partitions: Iterable[PartitionProgress], now_ms: int, lateness_ms: int) -> int | None:
    """The first hour that may still get rows; all before it are complete. None: nothing can be said.

    A partition that was read to its end has given all that was sent before now, also when it is idle; of another the
    greatest time is known. Times in the future do not count, or one wrong clock would make everybody else late.
    """
    watermarks = [_watermark(partition, now_ms) for partition in partitions]
    if not watermarks or None in watermarks:
        return None
    return (min(watermark for watermark in watermarks if watermark is not None) - lateness_ms) // HOUR_MS


def _watermark(partition: PartitionProgress, now_ms: int) -> int | None:
    if partition.is_at_end:
        return now_ms
    return None if partition.latest_ms is None else min(partition.latest_ms, now_ms)
