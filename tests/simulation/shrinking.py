"""A shorter plan of faults that fails in the same way: what is not needed is left out, until every step is.

First whole runs of steps are left out, half of the plan at a time, then shorter ones, and single steps in the end
(delta debugging). A step that goes leaves its pause to the next one, so that the rest happens when it did; then it is
tried whether that pause is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.fault_plan import Plan

Fails = Callable[[Plan], bool]


def shrink(plan: Plan, fails: Fails, is_over: Callable[[], bool] = lambda: False) -> Plan:
    """The shortest plan that was found; `is_over` ends the search early."""
    size = max(1, len(plan) // 2)
    while plan and not is_over():
        shorter = _without_some(plan, size, fails, is_over)
        if shorter == plan and size == 1:
            break
        plan = shorter
        size = max(1, min(size // 2, len(plan) // 2))
    return _with_shorter_pauses(plan, fails, is_over)


def _without_some(plan: Plan, size: int, fails: Fails, is_over: Callable[[], bool]) -> Plan:
    start = 0
    while start < len(plan) and not is_over():
        shorter = without(plan, start, start + size)
        if fails(shorter):
            plan = shorter
        else:
            start += size
    return plan


def without(plan: Plan, start: int, stop: int) -> Plan:
    """The plan without some steps; the others keep their time."""
    before, gone, after = plan[:start], plan[start:stop], plan[stop:]
    if after:
        pause = round(sum(step.after_s for step in gone) + after[0].after_s, 3)
        after = (replace(after[0], after_s=pause), *after[1:])
    return (*before, *after)


def _with_shorter_pauses(plan: Plan, fails: Fails, is_over: Callable[[], bool]) -> Plan:
    for index, step in enumerate(plan):
        if step.after_s and not is_over():
            shorter = (*plan[:index], replace(step, after_s=0.0), *plan[index + 1 :])
            if fails(shorter):
                plan = shorter
    return plan
