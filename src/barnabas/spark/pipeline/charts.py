"""Charts as inline SVG, with no library: values over time, and bars. Colours come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from barnabas.spark.pipeline.page import Markup, safe
from barnabas.spark.pipeline.series import Column

WIDTH = 1000
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 10, 24
PLOT = WIDTH - _LEFT - _RIGHT
"""How many columns a chart over time can show."""
_PANEL, _PANEL_HEAD, _BARS, _HEADROOM = 130, 34, 150, 4
_ZONES = 100
"""Parts of a chart over time that have a tooltip."""
_STEPS = (1, 2, 2.5, 5, 10)
_DAY = 86400.0
_TIME_STEPS: tuple[float, ...] = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)),
    *(_DAY * days for days in (1, 2, 7, 14, 30, 91, 182, 365)),
)

Columns = Sequence[Column | None]


@dataclass(frozen=True)
class Panel:
    """One quantity over time; charts that share a time axis are panels of one picture."""

    title: str
    unit: str
    series: Mapping[str, Columns]


def time_chart(label: str, panels: Sequence[Panel], start: float, end: float) -> Markup:
    """Panels above one another, from `start` to `end` in seconds since 1970: the mean as a line, the extremes as a
    band around it."""
    height = len(panels) * (_PANEL_HEAD + _PANEL) + _BOTTOM
    bottom = height - _BOTTOM
    parts: list[str] = []
    for x, text in _time_ticks(start, end):
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_PANEL_HEAD}" y2="{bottom}"/>')
        parts.append(_text(x, height - 8, text, "middle"))
    for index, panel in enumerate(panels):
        top = index * (_PANEL_HEAD + _PANEL) + _PANEL_HEAD
        parts.append(_text(0, top - 10, f"{panel.title}, {panel.unit}", "start", "title"))
        parts += _panel(panel, top)
    parts += _tooltips(panels, start, end, bottom)
    return _svg(label, height, parts)


def _panel(panel: Panel, top: int) -> list[str]:
    seen = [column for line in panel.series.values() for column in line if column is not None]
    ticks = round_ticks(max((column.high for column in seen), default=0.0), 3)
    parts = _levels(ticks, top, _PANEL)

    def y(value: float) -> float:
        return round(top + _PANEL - (_PANEL - _HEADROOM) * value / ticks[-1], 1)

    for number, line in enumerate(panel.series.values()):
        runs = _runs(line)
        for run in runs:
            upper = [f"{x},{y(column.high)}" for x, column in run]
            lower = [f"{x},{y(column.low)}" for x, column in reversed(run)]
            if any(column.high > column.low for _, column in run):
                parts.append(f'<polygon class="band {series_class(number)}" points="{" ".join(upper + lower)}"/>')
            if len(panel.series) == 1:
                base = f"{run[-1][0]},{top + _PANEL} {run[0][0]},{top + _PANEL}"
                points = " ".join(f"{x},{y(column.mean)}" for x, column in run)
                parts.append(f'<polygon class="area {series_class(number)}" points="{points} {base}"/>')
            points = " ".join(f"{x},{y(column.mean)}" for x, column in run)
            parts.append(f'<polyline class="line {series_class(number)}" points="{points}"/>')
    return parts


def _runs(line: Columns) -> list[list[tuple[int, Column]]]:
    """The columns with their places, without those that lie on a straight line; a gap ends a run."""
    runs: list[list[tuple[int, Column]]] = []
    before: Column | None = None
    for index, column in enumerate(line):
        if column is not None:
            after = line[index + 1] if index + 1 < len(line) else None
            if before is None:
                runs.append([(_LEFT + index, column)])
            elif column != before or after != column:
                runs[-1].append((_LEFT + index, column))
            if after is None:
                runs[-1].append((_LEFT + index + 1, column))
        before = column
    return runs


def _tooltips(panels: Sequence[Panel], start: float, end: float, bottom: int) -> list[str]:
    parts = []
    for zone in range(_ZONES):
        first, last = (PLOT * bound // _ZONES for bound in (zone, zone + 1))
        begin, finish = (start + (end - start) * bound / PLOT for bound in (first, last))
        lines = [f"{time_of_day(begin, (end - start) / _ZONES)} to {time_of_day(finish, (end - start) / _ZONES)} UTC"]
        for panel in panels:
            for name, line in panel.series.items():
                seen = [column for column in line[first:last] if column is not None]
                if seen:
                    low, high = shown(min(each.low for each in seen)), shown(max(each.high for each in seen))
                    span = low if low == high else f"{low} to {high}"
                    of = f"{name}: " if len(panel.series) > 1 else ""
                    lines.append(f"{panel.title}: {of}{span} {panel.unit}")
        if len(lines) > 1:
            box = f'x="{_LEFT + first}" y="{_PANEL_HEAD}" width="{last - first}" height="{bottom - _PANEL_HEAD}"'
            title = "\n".join(lines)
            parts.append(f'<rect class="zone" {box}><title>{safe(title)}</title></rect>')
    return parts


class Bar(NamedTuple):
    value: float
    name: str
    """In the tooltip."""
    tick: str = ""
    """Below the bar, if it is one that is labelled."""


def bar_chart(label: str, unit: str, bars: Sequence[Bar | None], colour: str) -> Markup:
    """One bar after the other, in a colour of the style; None is a gap, where nothing but empty bars is left out."""
    height = _TOP + _BARS + _BOTTOM
    ticks = round_ticks(max((bar.value for bar in bars if bar), default=0.0), 3)
    parts = _levels(ticks, _TOP, _BARS)
    slot = min(PLOT / max(1, len(bars)), 72.0)
    width = round(max(slot * 0.8, slot - 8, 0.8), 2)
    for index, bar in enumerate(bars):
        x = _LEFT + index * slot
        middle = round(x + slot / 2, 1)
        if bar is None:
            parts.append(_text(middle, _TOP + _BARS - 6, "\N{MIDLINE HORIZONTAL ELLIPSIS}", "middle"))
            continue
        tall = round(max((_BARS - _HEADROOM) * bar.value / ticks[-1], 1.5 if bar.value else 0.0), 1)
        box = f'x="{round(x + (slot - width) / 2, 2)}" y="{round(_TOP + _BARS - tall, 1)}" width="{width}"'
        title = f"{bar.name}: {bar.value:,.0f} {unit}"
        parts.append(f'<rect class="bar {colour}" {box} height="{tall}"><title>{safe(title)}</title></rect>')
        if bar.tick:
            parts.append(_text(middle, height - 8, bar.tick, "middle"))
    return _svg(label, height, parts)


def legend(names: Sequence[str]) -> Markup:
    """Which colour is which; nothing where there is but one."""
    if len(names) < 2:
        return Markup("")
    keys = "".join(f'<span class="key {series_class(index)}">{safe(name)}</span>' for index, name in enumerate(names))
    return Markup(f'<p class="legend">{keys}</p>')


def series_class(number: int) -> str:
    """The style has six colours."""
    return f"s{number % 6}"


def round_ticks(most: float, about: int = 4) -> list[float]:
    """From 0 in equal steps of 1, 2, 2.5 or 5 times a power of ten, the last at or above `most`."""
    if most <= 0 or not math.isfinite(most):
        return [0.0, 1.0]
    rough = most / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * each for each in _STEPS if power * each >= rough), power * 10)
    return [round(step * index, 10) for index in range(math.ceil(round(most / step, 9)) + 1)]


def shown(value: float) -> str:
    """A number as short as it can be read: 1.2 M, 25 k, 0.4."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"


def size_shown(size_bytes: float) -> str:
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= size * 0.9995:
            return f"{size_bytes / size:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def duration_shown(seconds: float) -> str:
    """850 ms, 12.3 s, 3 min 5 s, 2 h 14 min, 3 d 4 h."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for size, unit, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def time_of_day(seconds: float, step: float) -> str:
    """A moment in UTC, as exactly as steps of this length need it."""
    moment = datetime.fromtimestamp(round(seconds, 3), UTC)
    if step >= _DAY:
        return moment.strftime("%-d %b %Y" if step >= _DAY * 182 else "%-d %b")
    if step >= 60:
        return moment.strftime("%H:%M")
    digits = 0 if step >= 1 else min(3, math.ceil(-math.log10(step)))
    return moment.strftime("%H:%M:%S") + (f".{moment.microsecond:06}"[: digits + 1] if digits else "")


def _time_ticks(start: float, end: float) -> list[tuple[float, str]]:
    step = next((each for each in _TIME_STEPS if (end - start) / each <= 8), _TIME_STEPS[-1])
    first, last = math.ceil(round(start / step, 6)), math.floor(round(end / step, 6))

    def x(seconds: float) -> float:
        return round(_LEFT + PLOT * (seconds - start) / ((end - start) or 1.0), 1)

    return [(x(number * step), time_of_day(number * step, step)) for number in range(first, last + 1)]


def _levels(ticks: Sequence[float], top: int, tall: int) -> list[str]:
    parts = []
    for tick in ticks:
        y = round(top + tall - (tall - _HEADROOM) * tick / ticks[-1], 1)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(_text(_LEFT - 8, y + 4, shown(tick), "end"))
    return parts


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{of_kind}>{safe(text)}</text>'


def _svg(label: str, height: int, parts: Sequence[str]) -> Markup:
    frame = f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{safe(label)}"'
    return Markup(f'<div class="wide"><svg {frame}>{"".join(parts)}</svg></div>')
