"""Charts show what the width allows, with extremes kept, round numbers and units that people read."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from barnabas.spark.pipeline.charts import (
    PLOT,
    Bar,
    Panel,
    bar_chart,
    duration_shown,
    legend,
    round_ticks,
    shown,
    size_shown,
    time_chart,
    time_of_day,
)
from barnabas.spark.pipeline.hour_bars import MAX_BARS, hour_bars
from barnabas.spark.pipeline.series import Column, Step, bridged, columns, halved, lag_segments, speed_segments

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("most", "ticks"),
    [(0, [0, 1]), (7, [0, 2, 4, 6, 8]), (1000, [0, 250, 500, 750, 1000]), (0.03, [0, 0.01, 0.02, 0.03])],
)
def test_axes_have_round_numbers(most: float, ticks: list[float]) -> None:
    assert round_ticks(most) == pytest.approx(ticks)


def test_numbers_sizes_and_durations_are_short() -> None:
    assert [shown(value) for value in (0, 0.25, 999, 25_000, 999_999, 1_200_000)] == [
        *("0", "0.25", "999", "25 k", "1 M", "1.2 M")
    ]
    assert [size_shown(value) for value in (0, 999, 1_500, 3.2e9)] == ["0 B", "999 B", "1.5 kB", "3.2 GB"]
    assert [duration_shown(value) for value in (0, 0.85, 0.9999, 12.34, 100, 185, 3600, 8_100, 273_600)] == [
        *("0 ms", "850 ms", "1 s", "12.3 s", "1 min 40 s", "3 min 5 s", "1 h", "2 h 15 min", "3 d 4 h")
    ]
    assert [time_of_day(NOON + 5.25, step) for step in (86400, 60, 5, 0.05)] == [
        *("18 Nov", "12:00", "12:00:05", "12:00:05.25")
    ]


def batches(count: int, slow: int, fast: int) -> list[Step]:
    """Of 1,000 records and 1 s each, but for one that took 10 s and one that took 0.1 s; the lag falls by 1,000."""
    steps, at = [], NOON
    for number in range(count):
        seconds = {slow: 10.0, fast: 0.1}.get(number, 1.0)
        steps.append(Step.of(at, at + seconds, 1_000, 1_000 * (count - number - 1)))
        at += seconds
    return steps


@pytest.mark.parametrize("halvings", [0, 3])
def test_downsampling_keeps_the_slowest_and_the_fastest_batch(halvings: int) -> None:
    steps = batches(5_000, slow=1_234, fast=4_321)
    end = steps[-1].ended
    for _ in range(halvings):
        steps = halved(steps)
    seen = [column for column in columns(speed_segments(steps), NOON, end, 200) if column is not None]
    assert len(seen) == 200
    assert min(column.low for column in seen) == pytest.approx(100)
    assert max(column.high for column in seen) == pytest.approx(10_000)
    assert all(column.low <= column.mean * 1.0001 and column.mean <= column.high * 1.0001 for column in seen)
    lags = [column for column in columns(lag_segments(steps, 5_000_000, end + 1), NOON, end + 1, 200) if column]
    assert (lags[0].high, lags[-1].low) == (5_000_000, 0)
    assert sum(step.records for step in steps) == 5_000_000


def test_clocks_that_differ_by_a_moment_show_no_speed_that_no_batch_had() -> None:
    steps = [Step.of(step.began - 0.0005, step.ended, 1_000, step.lag) for step in batches(2_000, slow=7, fast=9)]
    seen = [column for column in columns(speed_segments(steps), NOON, steps[-1].ended, 200) if column is not None]
    assert max(column.high for column in seen) == pytest.approx(10_000, rel=0.01)
    assert min(column.low for column in seen) == pytest.approx(100, rel=0.01)


def test_batches_side_by_side_add_up_and_idle_time_is_no_batch() -> None:
    steps = [Step.of(0, 10, 100, 0), Step.of(5, 10, 100, 0), Step.of(20, 30, 50, 0)]
    found = [(segment.start, segment.end, segment.value) for segment in speed_segments(steps)]
    assert found == [(0, 5, 10.0), (5, 10, 30.0), (20, 30, 5.0)]
    line = columns(speed_segments(steps), 0, 30, 6)
    assert [column and column.mean for column in line] == pytest.approx([10, 30, None, None, 5, 5])
    assert [column and column.mean for column in bridged(line, 1)] == pytest.approx([10, 30, 0, 0, 5, 5])
    assert [column and column.mean for column in bridged(line, 2)] == pytest.approx([10, 30, 30, 30, 5, 5])
    outside = [None, *line, None]
    assert [column and column.mean for column in bridged(outside, 2)] == pytest.approx(
        [None, 10, 30, 30, 30, 5, 5, None]
    )


def test_a_chart_over_time_has_a_line_for_each_series_and_no_dots() -> None:
    steps = batches(1_000, slow=3, fast=1)
    line = columns(speed_segments(steps), NOON, steps[-1].ended, PLOT)
    panels = [Panel("Throughput", "records/s", {"one": line, "<two>": line}), Panel("Lag", "records", {"one": line})]
    chart = ElementTree.fromstring(time_chart("Speed & lag", panels, NOON, steps[-1].ended))
    assert len(list(chart.iter("polyline"))) == 3
    assert not list(chart.iter("circle"))
    texts = [element.text for element in chart.iter("text")]
    assert {"Throughput, records/s", "Lag, records", "12:10", "10 k"} <= set(texts)
    titles = [element.text or "" for element in chart.iter("title")]
    assert len(titles) == 100
    assert "Throughput: <two>: 100 to 10 k records/s" in titles[0]
    assert len(time_chart("", panels[1:], NOON, steps[-1].ended)) < 60_000


def test_a_legend_is_for_more_than_one_series() -> None:
    assert legend(["only"]) == ""
    assert re.findall(r"s\d", legend(["a", "b"])) == ["s0", "s1"]


def test_bars_are_as_tall_as_their_values_and_small_ones_are_seen() -> None:
    chart = ElementTree.fromstring(bar_chart("Rows", "rows", [Bar(2_000_000, "a", "A"), None, Bar(1, "b")], "s0"))
    tall, short = (float(bar.get("height") or 0) for bar in chart.iter("rect"))
    levels = [float(line.get("y1") or 0) for line in chart.iter("line")]
    assert (tall, short) == (levels[0] - levels[-1], 1.5)
    assert [title.text for title in chart.iter("title")] == ["a: 2,000,000 rows", "b: 1 rows"]


def test_hours_are_bars_with_empty_ones_between_and_a_gap_where_they_are_many() -> None:
    found = hour_bars({"2026-11-16T10": 3, "2026-11-16T13": 4, "1970-01-01T00": 1, "without a time": 9})
    assert [bar and bar.value for bar in found.bars] == [1, None, 3, 0, 0, 4]
    assert (found.unit, found.without_time) == ("hour", 9)
    assert found.span == "1970-01-01 00:00 to 2026-11-16 13:00"
    assert hour_bars({"without a time": 9}).bars == []


@pytest.mark.parametrize(
    ("count", "every", "unit", "bars"),
    [(300, 1, "hour", 300), (2_400, 1, "day", 100), (600, 20, "month", 17), (700, 24 * 28, "year", 54)],
)
def test_many_hours_become_days_months_or_years(count: int, every: int, unit: str, bars: int) -> None:
    first = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) // 3600
    by_hour = {datetime.fromtimestamp((first + n * every) * 3600, UTC).isoformat()[:13]: 2 for n in range(count)}
    found = hour_bars(by_hour)
    assert (found.unit, len(found.bars)) == (unit, bars)
    assert sum(bar.value for bar in found.bars if bar) == 2 * count
    assert len(found.bars) <= MAX_BARS
    assert 1 <= len([bar for bar in found.bars if bar and bar.tick]) <= 12


def test_a_column_knows_what_is_too_short_to_be_seen() -> None:
    steps = [Step.of(0, 1_000, 1_000, 0), Step.of(1_000, 1_000.001, 50, 0), Step.of(1_000.001, 2_000, 1_000, 0)]
    line = columns(speed_segments(steps), 0, 2_000, 10)
    assert max(column.high for column in line if isinstance(column, Column)) == pytest.approx(50_000, rel=0.01)
