"""A place in a partition, as people write it.

beginning, end      the first record that is still there; after the last one (also: earliest, latest)
1234                the record with that offset
-10                 ten records before the end
@2h, @90s, @7d      the first record of the last two hours (ms, s, m, h, d, w)
@2026-11-15T10:00   the first record since then, in local time unless it says otherwise (Z, +02:00)
@1763200800000      the same in milliseconds since 1970
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TypeAlias

from barnabas.core.dataclass import dataclass

_DURATION = re.compile(r"(\d+)(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


@dataclass(frozen=True, slots=True)
class Beginning:
    pass


@dataclass(frozen=True, slots=True)
class End:
    pass


@dataclass(frozen=True, slots=True)
class Absolute:
    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    count: int


@dataclass(frozen=True, slots=True)
class Since:
    timestamp_ms: int


OffsetSpec: TypeAlias = Beginning | End | Absolute | Last | Since

_NAMES: dict[str, OffsetSpec] = {"beginning": Beginning(), "earliest": Beginning(), "end": End(), "latest": End()}


def parse_offset(text: str, now_ms: int) -> OffsetSpec:
    """The place that `text` means; ValueError says what it could have been."""
    if text in _NAMES:
        return _NAMES[text]
    if text.startswith("@"):
        return Since(_parse_time(text[1:], now_ms))
    if re.fullmatch(r"-?\d+", text, re.ASCII):
        number = int(text)
        return Last(-number) if text.startswith("-") else Absolute(number)
    raise ValueError(f"offset {text!r} is none of beginning, end, 1234, -10, @2h, @2026-11-15T10:00")


def _parse_time(text: str, now_ms: int) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    if duration := _DURATION.fullmatch(text):
        return now_ms - int(duration[1]) * _UNIT_MS[duration[2]]
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ValueError(f"time '@{text}' is neither an age such as @2h nor a date such as @2026-11-15T10:00") from None
