"""Line charts as inline SVG, with no library: axes with round numbers, one line for each series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 28
_COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2")
_STEPS = (1, 2, 2.5, 5, 10)

Points = Sequence[tuple[float, float]]


def line_chart(title: str, unit: str, series: Mapping[str, Points]) -> str:
    """A figure: x in seconds since the run began, y from zero up."""
    points = [point for line in series.values() for point in line]
    most_x = max((x for x, _ in points), default=0.0) or 1.0
    ticks = round_ticks(max((y for _, y in points), default=0.0))
    most_y = ticks[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (WIDTH - _LEFT - _RIGHT) * x / most_x
        down = HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * y / most_y
        return round(across, 1), round(down, 1)

    parts = [_grid_line(at(0, tick)[1], tick) for tick in ticks]
    parts += [_second(at(x, 0)[0], x) for x in round_ticks(most_x) if x <= most_x]
    for colour, (name, line) in zip(_colours(len(series)), series.items()):
        parts.append(_line(colour, name, unit, [(at(x, y), y) for x, y in line]))
    legend = "".join(
        f'<span class="key" style="--colour:{colour}">{escape(name)}</span>'
        for colour, name in zip(_colours(len(series)), series)
    )
    caption = f"{escape(title)} <small>({escape(unit)})</small> {legend if len(series) > 1 else ''}"
    frame = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}"'
    return f"<figure><figcaption>{caption}</figcaption><svg {frame}>{''.join(parts)}</svg></figure>"


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
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"


def _colours(count: int) -> list[str]:
    """As many as are asked for, no two alike: hues by the golden angle follow those that were chosen by eye."""
    more = [f"hsl({(20 + index * 137.508) % 360:.0f} 60% 42%)" for index in range(count - len(_COLOURS))]
    return [*_COLOURS, *more][:count]


def _grid_line(y: float, value: float) -> str:
    line = f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
    return f'{line}<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{shown(value)}</text>'


def _second(x: float, value: float) -> str:
    return f'<text x="{x}" y="{HEIGHT - 8}" text-anchor="middle">{shown(value)} s</text>'


def _line(colour: str, name: str, unit: str, points: Sequence[tuple[tuple[float, float], float]]) -> str:
    path = " ".join(f"{x},{y}" for (x, y), _ in points)
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}">'
        f"<title>{escape(name)}: {shown(value)} {escape(unit)}</title></circle>"
        for (x, y), value in points
    )
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>{dots}'
