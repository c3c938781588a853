"""Which tests are heard again after they failed beside others."""

from __future__ import annotations

import pytest

from tests.side_by_side import MOST_HEARD_AGAIN, may_be_heard_again

CLUSTER = "tests/cluster/test_three_brokers.py::test_a[1]"


@pytest.mark.parametrize(
    ("failed", "codes"),
    [([CLUSTER], [0, 1, 0, 0, 0]), ([CLUSTER], [0, 1, 0, 0, 1]), ([CLUSTER] * MOST_HEARD_AGAIN, [1, 1, 1, 0, 0])],
)
def test_a_few_that_failed_in_the_crowd_are_heard_again(failed: list[str], codes: list[int]) -> None:
    assert may_be_heard_again(failed, codes)


@pytest.mark.parametrize(
    ("failed", "codes"),
    [
        ([], [0, 0, 0, 0, 0]),
        ([CLUSTER], [0, 1, 2, 0, 0]),
        ([CLUSTER] * (MOST_HEARD_AGAIN + 1), [1, 0, 0, 0, 0]),
        ([CLUSTER, "tests/simulation/test_seeds.py::test_b"], [1, 1, 0, 0, 0]),
        (["tests/unit/core/test_logs.py::test_c"], [0, 0, 0, 1, 0]),
    ],
    ids=["none", "one that could not run", "many", "one from a seed", "one that waits for nobody"],
)
def test_others_are_not(failed: list[str], codes: list[int]) -> None:
    assert not may_be_heard_again(failed, codes)
