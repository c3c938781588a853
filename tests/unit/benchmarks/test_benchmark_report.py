"""Ratios are medians of the rounds' own, and a goal is a floor or a ceiling for them."""

from __future__ import annotations

import pytest

from benchmarks import report
from benchmarks.report import BARNABAS, Figure, Round

PEER = "a peer"
TIME = Figure("time", "seconds", "s", False, 0.5)
RATE = Figure("rate", "records a second", "records/s", True, 2)
SIZE = Figure("size", "bytes", "B", False, None)


def measured(ours: float, theirs: float) -> Round:
    names = (TIME.name, RATE.name, SIZE.name)
    return {BARNABAS: dict.fromkeys(names, ours), PEER: dict.fromkeys(names, theirs)}


def test_ratio_is_the_median_of_the_rounds_ratios() -> None:
    rounds = [measured(1, 10), measured(40, 100), measured(300, 1000)]
    (line,) = report.lines([TIME], rounds, PEER)
    assert (line.barnabas, line.peer, line.ratio) == (40, 100, 0.3)


@pytest.mark.parametrize(("ratio", "time", "rate"), [(0.5, "ok", "short"), (0.6, "short", "short"), (2, "short", "ok")])
def test_goals_are_ceilings_for_times_and_floors_for_rates(ratio: float, time: str, rate: str) -> None:
    lines = report.lines([TIME, RATE, SIZE], [measured(ratio, 1)], PEER)
    assert [line.verdict for line in lines] == [time, rate, ""]


def test_one_missed_goal_is_short() -> None:
    assert report.is_short([TIME, SIZE], [measured(0.6, 1)], PEER)
    assert not report.is_short([TIME, SIZE], [measured(0.5, 1)], PEER)
    assert not report.is_short([SIZE], [measured(9, 1)], PEER)
