"""Figures of a measured load."""

from __future__ import annotations

import pytest

from barnabas.cli.measure import Load, percentile


@pytest.mark.parametrize(("percent", "expected"), [(50, 50), (95, 95), (99, 99), (99.9, 100), (100, 100), (0.1, 1)])
def test_a_percentile_is_a_value_that_so_many_percent_do_not_exceed(percent: float, expected: float) -> None:
    assert percentile([float(number) for number in range(1, 101)], percent) == expected


def test_one_value_is_every_percentile() -> None:
    assert {percentile([7.0], percent) for percent in (1, 50, 99.9, 100)} == {7.0}


def test_rates_are_over_the_time_that_the_load_took() -> None:
    assert Load(records=1000, size_bytes=2_000_000, seconds=0.5).rates() == {
        "records": 1000,
        "mb": 2.0,
        "seconds": 0.5,
        "records_per_s": 2000,
        "mb_per_s": 4.0,
    }


def test_latencies_come_with_the_number_of_their_samples() -> None:
    found = Load(latencies_ms=[3.0, 1.0, 2.0]).latencies()
    assert (found["samples"], found["p50_ms"], found["max_ms"]) == (3, 2.0, 3.0)
    assert Load().latencies() == {}
