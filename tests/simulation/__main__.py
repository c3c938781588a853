"""Runs seeds of the simulation, and looks closer at one of them.

    python -m tests.simulation 1000                                     a thousand fresh seeds, in every scenario
    python -m tests.simulation --minutes 30                             for half an hour
    python -m tests.simulation 1000 --first 5000 --scenario one_broker  these seeds of this scenario
    python -m tests.simulation --scenario three_brokers --replay 571    one seed: its plan of faults and its history
    python -m tests.simulation --scenario three_brokers --shrink 571    a shorter plan that fails, too
    python -m tests.simulation 1000 --plant a-leader-epoch-reused       whether a planted bug is found

With `--plan FILE` a seed is run by a plan that was printed before, and perhaps cut by hand. The exit status is 1 if
something was wrong, or a planted bug was not found.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from pathlib import Path

from tests.simulation.fault_plan import Plan, read, written
from tests.simulation.planted_bugs import BUGS, planted
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.shrinking import shrink
from tests.simulation.sweep import Tally, cases, command, fresh_seed, sweep
from tests.simulation.world import Verdict

SHRINKING_S = 300.0
LINE_S = 60.0  # between two lines of progress, where nobody watches a terminal


def main() -> int:
    arguments = _parse()
    if arguments.replay is not None or arguments.shrink is not None:
        if len(arguments.scenario) != 1:
            sys.exit("name one scenario with --scenario: " + ", ".join(SCENARIOS))
        (scenario,) = arguments.scenario
        plan = None if arguments.plan is None else read(arguments.plan.read_text())
        with planted(arguments.plant):
            if arguments.shrink is not None:
                return _shrink(scenario, arguments.shrink, plan)
            return _tell(SCENARIOS[scenario](arguments.replay, plan))
    if arguments.plant:
        return _look_for(arguments.plant, range(arguments.first or 0, (arguments.first or 0) + arguments.seeds))
    first = fresh_seed() if arguments.first is None else arguments.first
    seeds = sys.maxsize - first if arguments.minutes else arguments.seeds
    return _run(range(first, first + seeds), arguments.scenario or list(SCENARIOS), arguments.minutes)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.simulation", description="runs seeds of the simulation")
    parser.add_argument("seeds", type=int, nargs="?", default=100, help="how many; 100 if not said")
    parser.add_argument("--minutes", type=float, default=0, help="as many as fit into this time instead")
    parser.add_argument("--first", type=int, help="the first of them; a fresh one if not said")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, default=[], help="all of them if not said")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed, and print all about it")
    parser.add_argument("--shrink", type=int, metavar="SEED", help="find a shorter plan for a seed that fails")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="a plan of faults instead of the seed's own")
    parser.add_argument("--plant", choices=BUGS, default="", metavar="BUG", help="a bug to plant: " + ", ".join(BUGS))
    return parser.parse_args()


def _run(seeds: range, scenarios: list[str], minutes: float) -> int:
    """All of the seeds, or, with `minutes`, those that are begun before they are over."""
    print(f"seeds from {seeds.start} of {', '.join(scenarios)}", flush=True)
    tally, progress = Tally(), _Progress(0 if minutes else len(seeds) * len(scenarios))
    ends = time.monotonic() + minutes * 60 if minutes else math.inf
    some = itertools.takewhile(lambda _: time.monotonic() < ends, cases(seeds, scenarios))
    for judgement in sweep(some):
        tally.add(judgement)
        if judgement.problems:
            progress.clear()
            print(judgement, flush=True)
        progress.show(tally)
    progress.clear()
    print(tally)
    if tally.wrong:
        first = tally.wrong[0]
        print(f"\nthe first of them, {first.scenario} {first.seed}:")
        _tell(SCENARIOS[first.scenario](first.seed, None))
        _shrink(first.scenario, first.seed, None)
    return bool(tally.wrong)


def _look_for(bug: str, seeds: range) -> int:
    wanted = BUGS[bug]
    tally, progress = Tally(), _Progress(len(seeds))
    for judgement in sweep(cases(seeds, [wanted.scenario]), bug):
        tally.add(judgement)
        progress.show(tally)
        if wanted.is_shown_by(judgement.problems):
            progress.clear()
            print(f"{bug} is found by seed {judgement.seed}, after {tally.runs} seeds:")
            print(*judgement.problems, sep="\n")
            print(command(wanted.scenario, judgement.seed, bug))
            return 0
    progress.clear()
    print(f"{bug} is not found by seeds {seeds.start} to {seeds.stop - 1}")
    return 1


def _tell(verdict: Verdict) -> int:
    """All about one run."""
    print(written(verdict.plan), verdict.history, sep="\n")
    print(*verdict.problems, sep="\n")
    print(f"{verdict.seconds:.1f} simulated seconds, digest {verdict.history.digest}")
    return bool(verdict.problems)


def _shrink(scenario: str, seed: int, plan: Plan | None) -> int:
    """A shorter plan whose problem has the same first word."""
    run, deadline = SCENARIOS[scenario], time.monotonic() + SHRINKING_S
    verdict = run(seed, plan)
    if not verdict.problems:
        print("nothing is wrong with it")
        return 0
    wanted = _kinds(verdict.problems)
    shorter = shrink(
        verdict.plan,
        lambda candidate: bool(wanted & _kinds(run(seed, candidate).problems)),
        lambda: time.monotonic() > deadline,
    )
    print(f"of {len(verdict.plan)} steps of its plan {len(shorter)} are needed; with `--plan FILE` of these lines:")
    print(written(shorter), end="")
    return 1


def _kinds(problems: list[str]) -> set[str]:
    """What is the matter, without where and when: the name of an anomaly, or the last line of a traceback."""
    return {
        problem.strip().splitlines()[-1 if problem.startswith("Traceback") else 0].split(":")[0] for problem in problems
    }


class _Progress:
    """One line that changes, on a terminal; elsewhere a line now and then."""

    def __init__(self, expected: int) -> None:
        """`expected` runs; 0 if that is not known."""
        self._expected = expected
        self._is_terminal = sys.stderr.isatty()
        self._shown = time.monotonic()

    def show(self, tally: Tally) -> None:
        line = f"{tally} ({100 * tally.runs // self._expected} %)" if self._expected else str(tally)
        if self._is_terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._shown > LINE_S:
            self._shown = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
