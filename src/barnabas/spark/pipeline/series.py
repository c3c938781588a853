"""Values over time, reduced to what the width of a chart can show. The least and the greatest value are kept.

A value that holds for a while is a `Segment`; a chart has a number of columns, each with the least, the mean and the
greatest value of the segments in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

_WHOLE, _SEEN = 0.9, 0.2
"""Which part of a batch, or of a column, a segment has to cover to count among the extremes: where one batch follows
another, clocks that differ by a moment would show a speed that no batch had."""
SHORTEST_S = 1e-3
"""A batch that took no time by the clock took at least this."""


class Segment(NamedTuple):
    start: float
    end: float
    low: float
    value: float
    high: float
    is_whole: bool = True
    """Whether it has a whole batch in it, and is not just a part of one or the moment between two."""


class Column(NamedTuple):
    low: float
    mean: float
    high: float


class Step(NamedTuple):
    """A batch, or several in a row."""

    began: float
    ended: float
    records: int
    slowest: float
    """Records per second of the slowest of them, then of the fastest."""
    fastest: float
    low_lag: int
    high_lag: int
    lag: int
    """After the last of them."""
    state_rows: int = 0

    @classmethod
    def of(cls, began: float, ended: float, records: int, lag: int, state_rows: int = 0) -> Step:
        ended = max(ended, began + SHORTEST_S)
        speed = records / (ended - began)
        return cls(began, ended, records, speed, speed, lag, lag, lag, state_rows)

    def joined(self, later: Step) -> Step:
        return Step(
            min(self.began, later.began),
            max(self.ended, later.ended),
            self.records + later.records,
            min(self.slowest, later.slowest),
            max(self.fastest, later.fastest),
            min(self.low_lag, later.low_lag),
            max(self.high_lag, later.high_lag),
            later.lag,
            later.state_rows,
        )


def halved(steps: Sequence[Step]) -> list[Step]:
    """Each two neighbours as one."""
    pairs = [first.joined(second) for first, second in zip(steps[::2], steps[1::2])]
    return pairs + list(steps[len(pairs) * 2 :])


def speed_segments(steps: Iterable[Step]) -> list[Segment]:
    """Records per second while at least one step is under way; of steps side by side, their sum."""
    numbered = dict(enumerate(steps))
    changes = sorted(
        change for number, step in numbered.items() for change in ((step.began, number), (step.ended, number))
    )
    found: list[Segment] = []
    active: dict[int, Step] = {}
    for (start, number), (end, _) in pairwise(changes):
        if active.pop(number, None) is None:
            active[number] = numbered[number]
        if active and end > start:
            under_way = active.values()
            low, high = sum(step.slowest for step in under_way), sum(step.fastest for step in under_way)
            value = sum(step.records / (step.ended - step.began) for step in under_way)
            is_whole = any(end - start >= _WHOLE * (step.ended - step.began) for step in under_way)
            found.append(Segment(start, end, low, value, high, is_whole))
    return found


def lag_segments(steps: Sequence[Step], first_lag: int, until: float) -> list[Segment]:
    """The lag from the beginning of the first step, as it was after each step."""
    found = [Segment(min(step.began for step in steps), steps[0].ended, first_lag, first_lag, first_lag)]
    for step, following in zip(steps, [*(later.ended for later in steps[1:]), until]):
        found.append(Segment(step.ended, following, step.low_lag, step.lag, step.high_lag))
    return found


def state_segments(steps: Sequence[Step], until: float) -> list[Segment]:
    ends = [*(later.ended for later in steps[1:]), until]
    return [
        Segment(step.ended, end, step.state_rows, step.state_rows, step.state_rows) for step, end in zip(steps, ends)
    ]


def bridged(line: Sequence[Column | None], most: int) -> list[Column | None]:
    """The line with 0 where nothing was under way between its first and its last column; a gap of up to `most`
    columns would hardly be seen, and is bridged."""
    found: list[Column | None] = []
    for is_idle, group in groupby(line, key=lambda column: column is None):
        some = list(group)
        if is_idle and found and len(found) + len(some) < len(line):
            some = [found[-1] if len(some) <= most else Column(0.0, 0.0, 0.0)] * len(some)
        found += some
    return found


def columns(segments: Iterable[Segment], start: float, end: float, count: int) -> list[Column | None]:
    """The segments from `start` to `end` in N columns; None where there is none."""
    width = (end - start) / count or 1.0
    lows: list[float | None] = [None] * count
    highs: list[float | None] = [None] * count
    sums = [0.0] * count
    weights = [0.0] * count
    for segment in segments:
        first = min(count - 1, max(0, int((segment.start - start) / width)))
        last = min(count - 1, max(first, int((segment.end - start) / width)))
        for index in range(first, last + 1):
            left = start + index * width
            inside = min(segment.end, left + width) - max(segment.start, left)
            if inside <= 0 and index > first:
                continue
            weight = max(inside, width * 1e-9)  # a batch that is too short to be seen has its extremes too
            sums[index] += segment.value * weight
            weights[index] += weight
            if segment.is_whole or inside >= _SEEN * width:
                low, high = lows[index], highs[index]
                lows[index] = segment.low if low is None else min(low, segment.low)
                highs[index] = segment.high if high is None else max(high, segment.high)
    return [
        _column(low, total / weight, high) if weight else None
        for low, high, total, weight in zip(lows, highs, sums, weights)
    ]


def _column(low: float | None, mean: float, high: float | None) -> Column:
    return Column(mean if low is None else min(low, mean), mean, mean if high is None else max(high, mean))
