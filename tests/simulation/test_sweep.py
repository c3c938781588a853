"""A sweep survives what its runs do."""

from __future__ import annotations

import pytest

from tests.simulation.fault_plan import Plan
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.sweep import Tally, judge
from tests.simulation.world import Verdict


def _stumble(seed: int, plan: Plan | None = None) -> Verdict:
    raise ZeroDivisionError(f"the checker cannot judge {seed}")


def test_what_a_run_raises_is_a_problem_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCENARIOS, "one_broker", _stumble)
    tally = Tally()
    tally.add(judge(("one_broker", 571)))
    (wrong,) = tally.wrong
    assert str(wrong).startswith("one_broker 571 is wrong; ")
    (problem,) = wrong.problems
    assert problem.startswith("Traceback")
    assert problem.endswith("ZeroDivisionError: the checker cannot judge 571\n")
