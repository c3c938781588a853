"""What all in one run share: loop, network, clock, chance, and the history that is judged."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import traceback
import warnings
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from barnabas.core.logs import ROOT, TextFormatter
from barnabas.core.seams import Clock
from tests.checker.history import Fault, History
from tests.simulation.fault_plan import Disturb, Plan, chosen
from tests.simulation.simulated_network import SimulatedNetwork
from tests.simulation.virtual_loop import SimulationError, VirtualClock, VirtualLoop

SIMULATED = "simulated failure"
EXPECTED_ERRORS = (SIMULATED, "a log directory is offline", "records behind a damaged batch are kept")
"""An operation that fails, and what a power cut leaves of bytes that were not synced."""
TIME_LIMIT_S = 6000.0
LATENCY_S = 0.008


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happened, for how long, by which plan, and what is wrong with it."""

    plan: Plan
    history: History
    seconds: float
    problems: list[str]


class World:
    """With an odd seed the loop runs what is ready in an order drawn from it."""

    def __init__(self, seed: int, max_steps: int) -> None:
        self.seed = seed
        self.loop = VirtualLoop(shuffle=self.stream("order") if seed % 2 else None, max_steps=max_steps)
        self.history = History(self.loop.time)
        self.clock = VirtualClock(self.loop)
        self.problems: list[str] = []
        """Invariants that were seen broken."""
        self.network = SimulatedNetwork(self.loop, self.stream("network"), self.history.trace, LATENCY_S)

    def stream(self, name: str) -> random.Random:
        """Chance of its own for every part, so that one part's draws do not move another's."""
        return random.Random(f"{self.seed}/{name}")

    def disturb(self, fault: Disturb) -> None:
        """Reset, stall or lose one of the connections that are open, or all between the two machines."""
        ends = self.network.connections()
        among = [end for end in ends if not (fault.of_clients and end.host)]
        if not among:
            return
        end = among[chosen(fault.where, len(among))]
        ways = (end.host, end.peer.host)
        for each in [each for each in ends if (each.host, each.peer.host) == ways] if fault.is_wide else [end]:
            self.history.record(Fault(fault.how, each.name))
            if fault.how == "reset":
                self.network.reset(each)
            elif fault.how == "stall":
                self.network.stall(each, fault.seconds)
            else:
                self.network.lose(each)

    def run(self, main: Coroutine[Any, Any, None]) -> list[str]:
        """Run to the end; what went wrong, and the errors that a broker has logged for other reasons than a fault."""
        problems = []
        errors = _ErrorLog(self.clock)
        logger = logging.getLogger(ROOT)
        logger.addHandler(errors)
        try:
            with _without_collector():
                self.loop.run_until_complete(asyncio.wait_for(main, TIME_LIMIT_S))
                self.loop.close()
        except (Exception, asyncio.CancelledError) as error:  # whatever it is, it belongs to the seed's verdict
            problems.append("".join(traceback.format_exception(error)))
            with suppress(SimulationError), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of coroutines that nobody will await
                self.loop.close()
        finally:
            logger.removeHandler(errors)
        return problems + errors.lines + self.problems


@contextmanager
def _without_collector() -> Iterator[None]:
    """Garbage with finalizers must not be found at a moment that the seed does not choose."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _ErrorLog(logging.Handler):
    """Errors that the broker logged: it handled them, but of the faults here only what a disk does should be one."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.ERROR)
        self.setFormatter(TextFormatter(clock, colour=False))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if not any(cause in line for cause in EXPECTED_ERRORS):
            self.lines.append(line)
