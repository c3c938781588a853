"""Many seeds in a few processes at once, and what is said of each."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from tests.simulation.planted_bugs import planted
from tests.simulation.scenarios import SCENARIOS

Case = tuple[str, int]
"""A scenario and a seed."""


@dataclass(frozen=True, slots=True)
class Judgement:
    scenario: str
    seed: int
    seconds: float
    """Simulated ones."""
    digest: str
    problems: list[str]

    @property
    def command(self) -> str:
        return command(self.scenario, self.seed)

    def __str__(self) -> str:
        return "\n".join([f"{self.scenario} {self.seed} is wrong; `{self.command}` shows its history:", *self.problems])


def command(scenario: str, seed: int, bug: str = "", option: str = "--replay") -> str:
    """What runs a seed again."""
    plant = f" --plant {bug}" if bug else ""
    return f"python -m tests.simulation --scenario {scenario} {option} {seed}{plant}"


def judge(case: Case, bug: str = "") -> Judgement:
    """Whatever the run or its checker raises is a problem of this seed, and no reason to end a sweep."""
    scenario, seed = case
    try:
        with planted(bug):
            verdict = SCENARIOS[scenario](seed, None)
    except Exception:
        return Judgement(scenario, seed, 0.0, "", [traceback.format_exc()])
    return Judgement(scenario, seed, verdict.seconds, verdict.history.digest, verdict.problems)


def cases(seeds: Iterable[int], scenarios: Sequence[str] = tuple(SCENARIOS)) -> Iterator[Case]:
    """Every seed in every scenario."""
    return ((scenario, seed) for seed in seeds for scenario in scenarios)


def fresh_seed() -> int:
    """Where nobody is likely to have looked yet."""
    return int(time.time()) * 1000


def sweep(some_cases: Iterable[Case], bug: str = "") -> Generator[Judgement, None, None]:
    """What is said of each case, as soon as it is known; whoever has heard enough closes the iterator."""
    processes = os.cpu_count() or 1
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
    coming = iter(some_cases)
    running: set[Future[Judgement]] = set()
    try:
        while True:
            while len(running) < 2 * processes and (case := next(coming, None)) is not None:
                running.add(pool.submit(judge, case, bug))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from sorted((future.result() for future in done), key=lambda each: (each.seed, each.scenario))
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(slots=True)
class Tally:
    """How far a sweep has come."""

    runs: int = 0
    simulated_s: float = 0.0
    wrong: list[Judgement] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def add(self, judgement: Judgement) -> None:
        self.runs += 1
        self.simulated_s += judgement.seconds
        if judgement.problems:
            self.wrong.append(judgement)

    def __str__(self) -> str:
        real_s = time.monotonic() - self.begun
        hours, speed = self.simulated_s / 3600, self.simulated_s / real_s
        return (
            f"{self.runs} runs, {hours:.2f} simulated hours, {speed:.0f}x real time, {len(self.wrong)} with anomalies"
        )
