"""A plan of faults is data: what is written can be read, and what is left out leaves the rest as it was."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation import consumer_group, one_broker, three_brokers
from tests.simulation.fault_plan import Crash, Cut, Elect, Plan, Step, Stop, draw_disturbance, read, written
from tests.simulation.shrinking import shrink, without

PLAN: Plan = tuple(Step(0.5, Crash(number, 1.0)) for number in range(12))


def needs(*brokers: int) -> tuple[list[int], Plan]:
    """How many steps each tried plan had, and the shortest one that still has these brokers crash."""
    tried: list[int] = []

    def fails(plan: Plan) -> bool:
        tried.append(len(plan))
        return {step.fault.broker for step in plan if isinstance(step.fault, Crash)} >= set(brokers)

    return tried, shrink(PLAN, fails)


@pytest.mark.parametrize("scenario", [one_broker, three_brokers, consumer_group])
def test_what_a_plan_says_can_be_read_back(scenario: object) -> None:
    for seed in range(200):
        plan = scenario.plan_of(seed)  # type: ignore[attr-defined]
        assert plan
        assert read(written(plan)) == plan


def test_every_value_of_a_fault_is_written_unless_it_is_the_usual_one() -> None:
    plan = (Step(0.0, Cut(("1>2", "clients>3"), 2.5)), Step(1.25, Crash(2, 0.5, power_cut=True)), Step(0.0, Elect()))
    assert written(plan) == (
        '{"after_s": 0.0, "fault": "Cut", "ways": ["1>2", "clients>3"], "seconds": 2.5}\n'
        '{"after_s": 1.25, "fault": "Crash", "broker": 2, "down_s": 0.5, "power_cut": true}\n'
        '{"after_s": 0.0, "fault": "Elect"}\n'
    )
    assert read(written(plan)) == plan


def test_a_place_among_connections_is_never_outside() -> None:
    rng = Random(1)
    assert all(0 <= draw_disturbance(rng).where <= 1 for _ in range(10_000))


def test_the_other_steps_keep_their_time_when_one_is_left_out() -> None:
    plan = (Step(1.0, Elect()), Step(0.25, Stop(1, 0.5)), Step(0.5, Stop(2, 0.5)))
    assert without(plan, 0, 2) == (Step(1.75, Stop(2, 0.5)),)
    assert without(plan, 2, 3) == plan[:2]


@pytest.mark.parametrize("brokers", [(0,), (11,), (3, 4), (0, 5, 11), ()])
def test_shrinking_leaves_the_steps_that_are_needed(brokers: tuple[int, ...]) -> None:
    tried, shortest = needs(*brokers)
    assert [step.fault.broker for step in shortest if isinstance(step.fault, Crash)] == list(brokers)
    assert all(step.after_s == 0 for step in shortest)
    assert len(tried) < 60


def test_shrinking_stops_when_its_time_is_over() -> None:
    looks = iter([False] * 3 + [True] * 100)
    assert len(shrink(PLAN, lambda plan: len(plan) > 0, lambda: next(looks))) > 1
