"""`make fuzz`: every attack at full size, each on a broker of its own; what it cost the broker and its healthy client.

python -m tests.hostile                              all of them (the ten million frames take about an hour)
python -m tests.hostile --frames 1000000 --seed 7    fewer frames, and those of an earlier run
python -m tests.hostile --only crowd --only announce
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.hostile.attacks import ATTACKS, Size, carry_out
from tests.hostile.driver import Outcome
from tests.hostile.trial import MOST_TIMES_P99, MOST_TIMES_RESIDENT, Figures
from tests.peers import ROOT

_LOG_LINES = 30  # of the broker, where something went wrong
_LINE_SECONDS = 60  # between two lines of progress where nobody watches


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description="Attack a broker.")
    parser.add_argument("--frames", type=int, default=Size().frames, help="how many fuzzed frames")
    parser.add_argument("--seed", type=int, default=0, help="repeats the frames of an earlier run")
    parser.add_argument("--only", action="append", choices=ATTACKS, help="this attack; may be given several times")
    chosen = parser.parse_args()
    seed = chosen.seed or int.from_bytes(os.urandom(4), "big")
    size = Size(frames=chosen.frames)
    print(f"seed {seed}", flush=True)
    results = []
    for name in chosen.only or ATTACKS:
        with tempfile.TemporaryDirectory(prefix="barnabas-hostile-") as directory:
            figures = _attempt(name, Path(directory), size, seed)
        results.append(figures)
        for problem in figures.problems:
            print(f"{name}: {problem}", flush=True)
            print(f"  again: python -m tests.hostile --only {name} --frames {size.frames} --seed {seed}", flush=True)
    _show(results)
    print(f"written to {_save(results, seed)}")
    return any(figures.problems for figures in results)


def _attempt(name: str, directory: Path, size: Size, seed: int) -> Figures:
    print(f"{name} ...", flush=True)
    try:
        return carry_out(name, directory, size, seed, _progress(size.frames))
    except (AssertionError, OSError) as error:
        traceback.print_exc()
        print(*(directory / "broker.log").read_text().splitlines()[-_LOG_LINES:], sep="\n", flush=True)
        return Figures(name, "", None, size.p99_floor_ms, problems=[str(error) or repr(error)])


def _progress(frames: int) -> Callable[[Outcome], None]:
    """A line that is written over where somebody watches, a line a minute otherwise."""
    told_at = time.monotonic()

    def tell(so_far: Outcome) -> None:
        nonlocal told_at
        rate = so_far.answered / so_far.seconds
        left = timedelta(seconds=int((frames - so_far.answered) / max(rate, 1)))
        line = (
            f"{so_far.answered:,} of {frames:,} frames, {rate:,.0f}/s, {so_far.closed:,} connections closed, "
            f"{left} to go"
        )
        if sys.stdout.isatty():
            print(f"\r{line}\x1b[K", end="\r", flush=True)
        elif time.monotonic() - told_at > _LINE_SECONDS:
            told_at = time.monotonic()
            print(line, flush=True)

    return tell


def _show(results: list[Figures]) -> None:
    table = Table(title="Attacks on one broker", title_justify="left")
    for heading in _COLUMNS:
        table.add_column(heading, justify="left" if heading in ("attack", "work") else "right")
    for each in results:
        table.add_row(
            each.attack,
            each.work,
            f"{each.seconds:,.0f}",
            f"{each.cold_mib:.0f}",
            f"{each.resident_mib:.0f}",
            f"{each.highest_mib:.0f}",
            f"{each.p99_ms:.1f}",
            f"{each.p99_during_ms:.1f}",
            f"{each.slowest_ms:,.0f}",
            "bad" if each.problems else "ok",
        )
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    console.print(
        f"Resident memory may grow to {MOST_TIMES_RESIDENT:g} times what it was, or by what the attack is allowed, a "
        f"healthy client's p99 to {MOST_TIMES_P99:g} times what it is in calm, or to {Size().p99_floor_ms:g} ms, or to "
        f"what the attack is allowed. Load of the machine: {os.getloadavg()[0]:.1f}.",
        highlight=False,
    )


_COLUMNS = ("attack", "work", "s", "MiB cold", "before", "highest", "p99 ms in calm", "during", "slowest", "")


def _save(results: list[Figures], seed: int) -> Path:
    directory = ROOT / ".benchmarks"
    directory.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = directory / f"hostile-{now:%Y%m%dT%H%M%S}.json"
    machine = {"cores": os.cpu_count(), "load": os.getloadavg()}
    content = {"time": now.isoformat(), "machine": machine, "seed": seed, "attacks": [asdict(each) for each in results]}
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


if __name__ == "__main__":
    sys.exit(main())
