"""The simulations that there are, by name."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation import consumer_group, one_broker, three_brokers
from tests.simulation.fault_plan import Plan
from tests.simulation.world import Verdict

Scenario = Callable[[int, Plan | None], Verdict]
"""Runs a seed, by its own plan or by another."""

SCENARIOS: dict[str, Scenario] = {
    "one_broker": one_broker.run,
    "three_brokers": three_brokers.run,
    "consumer_group": consumer_group.run,
}
