"""Rows by event hour as bars: by hour, or by day, month or year where there are too many hours to be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from barnabas.spark.pipeline.charts import Bar

MAX_BARS = 400
LONGEST_GAP = 24
"""Bars in a row that may be empty; more of them are one gap, so that a wrong clock does not hide everything else."""
_TICKS = 10


@dataclass(frozen=True)
class _Unit:
    name: str
    start: Callable[[datetime], datetime]
    following: Callable[[datetime], datetime]
    text: str
    tick: str
    large: Callable[[datetime], bool]
    """Whether a bar begins what the ticks of many bars are for: a day of hours, a month of days."""
    large_tick: str


def _next_month(start: datetime) -> datetime:
    return (start + timedelta(days=31)).replace(day=1)


_UNITS = (
    _Unit(
        "hour",
        lambda at: at,
        lambda at: at + timedelta(hours=1),
        "%Y-%m-%d %H:00",
        "%H:00",
        lambda at: at.hour == 0,
        "%-d %b",
    ),
    _Unit(
        "day",
        lambda at: at.replace(hour=0),
        lambda at: at + timedelta(days=1),
        "%Y-%m-%d",
        "%-d %b",
        lambda at: at.day == 1,
        "%b %Y",
    ),
    _Unit(
        "month",
        lambda at: at.replace(day=1, hour=0),
        _next_month,
        "%b %Y",
        "%b %Y",
        lambda at: at.month == 1,
        "%Y",
    ),
    _Unit(
        "year",
        lambda at: at.replace(month=1, day=1, hour=0),
        lambda at: at.replace(year=at.year + 1),
        "%Y",
        "%Y",
        lambda at: at.year % 10 == 0,
        "%Y",
    ),
)


@dataclass(frozen=True)
class HourBars:
    unit: str
    """hour, day, month or year: what one bar stands for."""
    bars: Sequence[Bar | None]
    without_time: int
    """Rows that have no hour."""

    @property
    def span(self) -> str:
        first, last = (next(bar.name for bar in order if bar) for order in (self.bars, self.bars[::-1]))
        return first if first == last else f"{first} to {last}"


def hour_bars(rows_by_hour: Mapping[str, int]) -> HourBars:
    """From rows by hour, written as 2026-11-16T10."""
    by_hour: Counter[datetime] = Counter()
    without_time = 0
    for text, rows in rows_by_hour.items():
        hour = _parsed(text)
        if hour is None:
            without_time += rows
        else:
            by_hour[hour] += rows
    for unit in _UNITS:
        found: Counter[datetime] = Counter()
        for hour, rows in by_hour.items():
            found[unit.start(hour)] += rows
        places = list(_places(found, unit))
        if len(places) <= MAX_BARS or unit is _UNITS[-1]:
            break
    return HourBars(unit.name, list(_bars(places, found, unit)), without_time)


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(f"{text}:00Z")
    except ValueError:
        return None


def _places(found: Mapping[datetime, int], unit: _Unit) -> Iterator[datetime | None]:
    """Every bar from the first to the last; None is a gap of more empty ones than are shown."""
    before: datetime | None = None
    for place in sorted(found):
        if before is not None:
            empty: list[datetime] = []
            following = unit.following(before)
            while following < place and len(empty) <= LONGEST_GAP:
                empty.append(following)
                following = unit.following(following)
            yield from [None] if len(empty) > LONGEST_GAP else empty
        yield place
        before = place


def _bars(places: Sequence[datetime | None], found: Mapping[datetime, int], unit: _Unit) -> Iterator[Bar | None]:
    labelled = _labelled(places, unit)
    for index, place in enumerate(places):
        if place is None:
            yield None
        else:
            yield Bar(found.get(place, 0), place.strftime(unit.text), labelled.get(index, ""))


def _labelled(places: Sequence[datetime | None], unit: _Unit) -> dict[int, str]:
    """Ticks that do not touch: the first bar, those after gaps, and then the large ones, or every Nth."""
    step = -(-len(places) // _TICKS)
    ticks: dict[int, str] = {}
    last = -step
    days = {place.date() for place in places if place is not None}
    for index, place in enumerate(places):
        if place is None:
            continue
        is_first = index == 0 or places[index - 1] is None
        is_wanted = is_first or (unit.large(place) if len(places) > 48 else True)
        if is_wanted and index - last >= step:
            shows_day = unit.name == "hour" and len(days) > 1 and (is_first or place.hour == 0 or step >= 24)
            large = unit.large(place) and not is_first and unit.name != "hour"
            ticks[index] = place.strftime(unit.large_tick if large or shows_day else unit.tick)
            last = index
    return ticks
