"""`make proof`: the programs that take long, one after the other, and one table of what they found.

    python -m tests.proof --minutes 60
    python -m tests.proof --only chaos --only simulation --minutes 20

The tests marked `proof` take the time that they take, about half an hour. What is left of the minutes is shared by the
programs that can go on for as long as they are let: simulated clusters, chaos on real ones, and pipelines under kills.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console
from rich.table import Table

from tests.peers import ROOT

SHORTEST_MINUTES = 3.0
"""Less would show nothing, so a program gets this much even when the time is up."""


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    share: float
    """Of the minutes that the tests leave; 0 for a program that ends by itself."""
    arguments: Callable[[float], list[str]]
    """Of `python -m`, for a number of minutes."""
    finding: re.Pattern[str]
    """The lines of its output that say what it found; the last one is shown."""


PROGRAMS = (
    Program("tests", 0, lambda _: ["pytest", "-m", "proof"], re.compile(r"=+ (.*(?:passed|failed).*?) =+")),
    Program(
        "simulation",
        0.4,
        lambda minutes: ["tests.simulation", "--minutes", f"{minutes:.1f}"],
        re.compile(r"(\d+ runs, .* with anomalies)$"),
    ),
    Program(
        "chaos",
        0.4,
        lambda minutes: ["tests.chaos", "--minutes", f"{minutes:.1f}", "--unrecorded"],
        re.compile(r"(round \d+: \d+ problems)$"),
    ),
    Program(
        "pipelines",
        0.2,
        lambda minutes: ["tests.spark.soak", "--minutes", f"{minutes:.1f}", "--kills", "6"],
        re.compile(r"^(\w+: .*)$"),
    ),
)


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    seconds: float
    code: int
    finding: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description="Run the programs that take long.")
    parser.add_argument("--minutes", type=float, default=60, help="for all of them together (default: 60)")
    parser.add_argument("--only", action="append", choices=[each.name for each in PROGRAMS], help="may be repeated")
    chosen = parser.parse_args()
    programs = [each for each in PROGRAMS if not chosen.only or each.name in chosen.only]
    results = list(run_all(programs, chosen.minutes))
    Console(width=None if sys.stdout.isatty() else 160).print(summary(results))
    failed = [each.name for each in results if each.code]
    print(f"FAILED: {', '.join(failed)}" if failed else f"all {len(results)} programs found nothing wrong")
    return bool(failed)


def run_all(programs: list[Program], minutes: float) -> Iterator[Result]:
    """Those that end by themselves first; the others share the time that is left."""
    ends = time.monotonic() + minutes * 60
    going_on = [each for each in programs if each.share]
    for program in (each for each in programs if not each.share):
        yield run(program, 0)
    left, shares = max(0.0, ends - time.monotonic()) / 60, sum(each.share for each in going_on)
    for program in going_on:
        yield run(program, max(SHORTEST_MINUTES, left * program.share / shares))


def run(program: Program, minutes: float) -> Result:
    command = [sys.executable, "-m", *program.arguments(minutes)]
    print(f"\n{program.name}: {' '.join(command)}", flush=True)
    began = time.monotonic()
    finding = "ended without a result"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                if found := program.finding.search(line.rstrip()):
                    finding = found[1]
        except BaseException:
            process.terminate()
            raise
    return Result(program.name, time.monotonic() - began, process.returncode, finding)


def summary(results: list[Result]) -> Table:
    table = Table(title="Proof", title_justify="left")
    table.add_column("program")
    table.add_column("time", justify="right")
    table.add_column("found")
    table.add_column("")
    for each in results:
        verdict = "ok" if each.code == 0 else f"exit {each.code}"
        table.add_row(each.name, str(timedelta(seconds=int(each.seconds))), each.finding, verdict)
    return table


if __name__ == "__main__":
    sys.exit(main())
