"""What counts as calm, and what is too much for a broker or its healthy client."""

from __future__ import annotations

import time

import pytest

from tests.hostile.trial import Calm, Figures


def test_a_record_is_calm_only_if_all_of_it_was_in_one_rest() -> None:
    calm = Calm()
    first = time.monotonic()
    calm.rest(0.7)
    between = time.monotonic()
    time.sleep(0.1)
    calm.rest(0.7)
    last = time.monotonic()
    assert calm.has(first + 0.6, 0.01)
    assert calm.has(last - 0.1, 0.01)
    assert not calm.has(first, 0.01)  # the broker may still be busy with what was asked before
    assert not calm.has(first - 1, 0.01)
    assert not calm.has(between - 0.01, 0.05)
    assert not calm.has(between + 0.05, 0.01)
    assert not calm.has(last, 0.01)


@pytest.mark.parametrize(
    ("highest_mib", "p99_during_ms", "problems"), [(60, 20, 0), (61, 20, 1), (60, 21, 1), (61, 21, 2)]
)
def test_what_is_too_much_is_told(highest_mib: float, p99_during_ms: float, problems: int) -> None:
    figures = Figures("some", "work", None, 15, resident_mib=40, highest_mib=highest_mib)
    figures.p99_ms, figures.p99_during_ms = 10, p99_during_ms
    figures.judge()
    assert len(figures.problems) == problems
