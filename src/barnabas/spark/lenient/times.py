"""Parses texts of dates and timestamps as Spark does by default (spark.sql.legacy.timeParserPolicy is not LEGACY).

    date        [+-]Y-M-D, Y-M or Y, and whatever stands behind a T or a blank; Y has 4 to 7 digits
    timestamp   Y[-M[-D[ h[:m[:s[.f][zone]]]]]], with T or a blank before h; Y has 4 to 6 digits
    time        [T]h:m[:s[.f][zone]], which is today's
    zone        Z, +h:mm, +hh:mm and the like, UTC+h, Europe/Paris, PST

Blanks and control characters around a text do not count. Where the text is of none of these forms, it is read once
more without the letters GMT. Calendars are the proleptic Gregorian one, and years may be far from ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

_BLANKS = "".join(map(chr, [*range(33), 127]))  # Java's trim() leaves the last one
_TIME = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(\D.*)?)?)?"
_DATE = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIMESTAMP = re.compile(rf"([+-]?)(\d{{4,6}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T]{_TIME})?)?)?", re.ASCII | re.DOTALL)
_TIME_OF_DAY = re.compile(rf"(?:T|(?=\d+:)){_TIME}", re.ASCII | re.DOTALL)

_ONE_DIGIT_HOUR = re.compile(r"([+-])(\d):", re.ASCII)
_ONE_DIGIT_MINUTE = re.compile(r"([+-])(\d\d):(\d)$", re.ASCII)
_OFFSET = re.compile(r"([+-])(\d{1,2}|(\d\d)(\d\d)|(\d\d):(\d\d)|(\d\d)(\d\d)(\d\d)|(\d\d):(\d\d):(\d\d))", re.ASCII)
_DAY_NUMBER = re.compile(r"[+-]?\d+")
_OFFSET_LIMIT_S = 18 * 3600
_PREFIXED = re.compile(r"(UTC|GMT|UT)([+-].*)?", re.DOTALL)
_UNKNOWN_TO_JAVA = frozenset({"EST", "MST", "HST", "ROC", "Factory", "localtime"})
_SHORT_IDS = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "EST": "-05:00", "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia",
    "MST": "-07:00", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Java's java.time.ZoneId.SHORT_IDS."""

_EPOCH_DAY = 719_468  # days from March 1 of the year 0 to 1970-01-01
_FIRST_JULIAN_DAY = 719_470  # the same by the Julian calendar
_FIRST_GREGORIAN_DAY = -141_427  # 1582-10-15
_DAYS_PER_400_YEARS = 146_097
_MICROS_PER_DAY = 86_400_000_000
_INT32, _INT64 = 1 << 31, 1 << 63


def parse_date(text: str) -> int | None:
    """Days since 1970-01-01; None if the text is no date."""
    return _or_without_gmt(_date, text)


def parse_timestamp(text: str, zone: tzinfo) -> int | None:
    """Microseconds since 1970 in UTC; None if the text is no timestamp. `zone` is for a text that names none."""
    return _or_without_gmt(lambda given: _timestamp(given, zone), text)


def parse_timestamp_ntz(text: str) -> int | None:
    """Microseconds since 1970 on a clock that knows no zones; None if the text names a zone, or is no timestamp."""
    match = _TIMESTAMP.fullmatch(text.strip(_BLANKS))
    if match is None or match[9] is not None:
        return None
    days, micros = _days(match), _micros_of_day(match, 5)
    return None if days is None or micros is None else _in_64_bits(days * _MICROS_PER_DAY + micros)


def parse_day_number(text: str) -> int | None:
    """Days since 1970 that a text gives as a number, which Spark 1.5 wrote: in the calendar of those days."""
    if not _DAY_NUMBER.fullmatch(text) or not -_INT32 <= (days := int(text)) < _INT32:
        return None
    return days if days >= _FIRST_GREGORIAN_DAY else _julian_days(days)


@lru_cache(maxsize=1000)
def find_zone(name: str) -> tzinfo | None:
    """A zone by a name that Spark takes; None if there is no such zone."""
    name = _ONE_DIGIT_MINUTE.sub(r"\1\2:0\3", _ONE_DIGIT_HOUR.sub(r"\g<1>0\2:", name, count=1))
    name = _SHORT_IDS.get(name, name)
    if name == "Z":
        return UTC
    if name.startswith(("+", "-")):
        return _fixed(name)
    if match := _PREFIXED.fullmatch(name):
        return UTC if match[2] is None else _fixed(match[2])
    return ZoneInfo(name) if name in _regions() else None


def local_zone() -> str | None:
    """The name of this machine's zone, as Java finds it; None if there is none."""
    if name := os.environ.get("TZ", "").removeprefix(":"):
        return name
    target = Path("/etc/localtime").resolve().as_posix()
    _, found, name = target.partition("/zoneinfo/")
    return name if found else None


def days_since_1970(year: int, month: int, day: int) -> int | None:
    """Of a day in the proleptic Gregorian calendar; None if there is no such day."""
    if not (1 <= month <= 12 and 1 <= day <= _month_days(year, month)):
        return None
    years = year if month > 2 else year - 1
    day_of_year = (153 * ((month - 3) % 12) + 2) // 5 + day - 1  # from March on
    return years * 365 + years // 4 - years // 100 + years // 400 + day_of_year - _EPOCH_DAY


def _or_without_gmt(parse: Callable[[str], int | None], text: str) -> int | None:
    found = parse(text)
    return parse(text.replace("GMT", "")) if found is None and "GMT" in text else found


def _date(text: str) -> int | None:
    match = _DATE.fullmatch(text.strip(_BLANKS))
    days = None if match is None else _days(match)
    return days if days is not None and -_INT32 <= days < _INT32 else None


def _timestamp(text: str, zone: tzinfo) -> int | None:
    stripped = text.strip(_BLANKS)
    match, first = _TIMESTAMP.fullmatch(stripped), 5
    if match is None:
        if text[:1] in _BLANKS and stripped.startswith("T"):
            return None
        match, first = _TIME_OF_DAY.fullmatch(stripped), 1
        if match is None:
            return None
    if named := match[first + 4]:
        if (found := find_zone(named.strip(_BLANKS[:-1]))) is None:
            return None
        zone = found
    days = _days(match) if first == 5 else (datetime.now(zone).date() - date(1970, 1, 1)).days
    micros = _micros_of_day(match, first)
    if days is None or micros is None:
        return None
    return _in_64_bits(days * _MICROS_PER_DAY + micros - _offset_micros(zone, days, micros))


def _days(match: re.Match[str]) -> int | None:
    sign = -1 if match[1] == "-" else 1
    return days_since_1970(sign * int(match[2]), int(match[3] or 1), int(match[4] or 1))


def _micros_of_day(match: re.Match[str], first: int) -> int | None:
    """Hour, minute, second and fraction are groups of the match, from `first` on."""
    hour, minute, second = (int(match[index] or 0) for index in range(first, first + 3))
    if hour > 23 or minute > 59 or second > 59:
        return None
    return (hour * 3600 + minute * 60 + second) * 1_000_000 + int((match[first + 3] or "")[:6].ljust(6, "0"))


def _offset_micros(zone: tzinfo, days: int, micros: int) -> int:
    """What a clock of the zone is ahead of UTC when it shows that time; by the rules for years that Python knows.

    A clock that shows a time twice means the first one, and one that skips it has not yet been moved.
    """
    known = days
    low, high = -_DAYS_PER_400_YEARS * 4, _DAYS_PER_400_YEARS * 20  # from the year 370 to 9970
    if not low <= days < high:
        cycle = low if days < low else high - _DAYS_PER_400_YEARS
        known = cycle + (days - cycle) % _DAYS_PER_400_YEARS
    offset = (datetime(1970, 1, 1, tzinfo=zone) + timedelta(days=known, microseconds=micros)).utcoffset()
    assert offset is not None  # every zone of find_zone has one
    return offset // timedelta(microseconds=1)


def _julian_days(days: int) -> int | None:
    """The day that has the date, by our calendar, which the given day has by the Julian one."""
    days += _FIRST_JULIAN_DAY
    year = (4 * days + 3) // 1461
    day_of_year = days - 365 * year - year // 4
    months = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * months + 2) // 5
    first = days_since_1970(year + (months >= 10), (months + 2) % 12 + 1, 1)
    assert first is not None
    return first + day if -_INT32 <= first + day < _INT32 else None


def _fixed(name: str) -> tzinfo | None:
    match = _OFFSET.fullmatch(name)
    if match is None:
        return None
    digits = match[2].replace(":", "")
    digits = digits.zfill(2).ljust(6, "0")
    hours, minutes, seconds = int(digits[:2]), int(digits[2:4]), int(digits[4:])
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _OFFSET_LIMIT_S:
        return None
    return timezone(timedelta(seconds=-total if match[1] == "-" else total))


@lru_cache(maxsize=1)
def _regions() -> frozenset[str]:
    return frozenset(available_timezones() - _UNKNOWN_TO_JAVA)


def _month_days(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _in_64_bits(micros: int) -> int | None:
    return micros if -_INT64 <= micros < _INT64 else None
