"""`python -m tests.chaos --minutes 30 --seed 7`: real brokers under every fault there is, and a checker that judges.

Everything that will happen comes from the seed. Rounds follow each other, each with a cluster of its own: three brokers
or five, on one metadata store or the other.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import SystemRandom

from tests.chaos import clocks, figures, namespaces
from tests.chaos.network import Network
from tests.chaos.rounds import Round, Verdict, plan_text, run

ROUND_S = 180.0
_SHOWN_PROBLEMS = 5


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    if options.plan:
        print(plan_text(_round(options, options.round or 0), options.plan))
        return 0
    if not namespaces.are_entered():
        if problem := namespaces.missing():
            print(f"chaos cannot run: {problem}", file=sys.stderr)
            return 2
        sys.stdout.flush()
        namespaces.enter(arguments if options.seed_given else [*arguments, "--seed", str(options.seed)])
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    print(f"seed {options.seed}: {_command(options)}", flush=True)
    if clocks.library() is None:
        print("libfaketime is not installed: no clock will be set, and the plan is another one", flush=True)
    began = time.monotonic()
    network = Network()
    directory = Path(tempfile.mkdtemp(prefix="barnabas-chaos-"))
    verdicts: list[Verdict] = []
    """Of all but the last it is known what the checker has found: it is at work during the next round."""
    try:
        while not verdicts or (options.round is None and _goes_on(options, verdicts, began)):
            number = options.round if options.round is not None else len(verdicts)
            verdicts.append(_play(options, number, began, network, directory / f"round-{number}"))
            for judged in verdicts[-2:-1]:
                _conclude(options, judged)
            if any(verdict.problems for verdict in verdicts[-2:]) and not options.go_on:
                break
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    for judged in verdicts[-1:]:
        _conclude(options, judged)
    figures.show(verdicts)
    if not options.unrecorded:
        chosen = {"seed": options.seed, "command": _command(options)}
        print(f"figures in {figures.write_down(chosen, verdicts)}")
    if not verdicts or any(verdict.problems for verdict in verdicts):
        print(f"what was left is in {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def _goes_on(options: argparse.Namespace, verdicts: list[Verdict], began: float) -> bool:
    """There is time for another round, or what is to be reached is not reached yet."""
    done = figures.total([verdict.figures for verdict in verdicts])
    is_short: bool = done["kills"] < options.kills or done["acknowledged records"] < options.records
    has_time: bool = time.monotonic() - began < options.minutes * 60 - ROUND_S / 3
    return is_short or has_time


def _play(options: argparse.Namespace, number: int, began: float, network: Network, place: Path) -> Verdict:
    chosen = _round(options, number)
    left_s = options.minutes * 60 - (time.monotonic() - began)
    seconds = min(ROUND_S, left_s) if left_s > 0 else ROUND_S
    place.mkdir()
    print(f"round {number}: {chosen.shape}", flush=True)

    def show(line: str) -> None:
        print(f"  {time.monotonic() - began:6.1f} s  {line}", flush=True)

    return run(chosen, seconds, network, place, show)


def _conclude(options: argparse.Namespace, verdict: Verdict) -> None:
    verdict.close()
    number, found = verdict.round.number, verdict.problems
    print(f"round {number}: {len(found)} problems", *found[:_SHOWN_PROBLEMS], sep="\n", flush=True)
    if found:
        print(f"again: {_command(options)} --round {number}", flush=True)
    elif not options.keep:
        shutil.rmtree(verdict.directory, ignore_errors=True)


def _round(options: argparse.Namespace, number: int) -> Round:
    return Round(options.seed, number, options.rate, options.longest, tuple(options.only or ()))


def _command(options: argparse.Namespace) -> str:
    told = ("minutes", "kills", "records", "seed", "rate", "longest")
    only = [f"--only {kind!r}" for kind in options.only or ()]
    return " ".join(["python -m tests.chaos", *(f"--{name} {getattr(options, name)}" for name in told), *only])


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long to go on (default: 30)")
    parser.add_argument("--kills", type=int, default=0, help="go on until there were so many kills (default: 0)")
    parser.add_argument("--records", type=int, default=0, help="and so many acknowledged records (default: 0)")
    parser.add_argument("--seed", type=int, help="what everything is drawn from (default: a new one)")
    parser.add_argument("--rate", type=float, default=500, help="records a second of each producer (default: 500)")
    parser.add_argument("--longest", type=float, default=60, help="no fault lasts more seconds than this (default: 60)")
    parser.add_argument("--only", action="append", metavar="KIND", help="only this kind of fault; may be repeated")
    parser.add_argument("--round", type=int, help="only this round of the seed")
    parser.add_argument("--plan", type=int, metavar="SCENES", help="only show what would happen")
    parser.add_argument("--go-on", action="store_true", help="begin the next round even if one has failed")
    parser.add_argument("--keep", action="store_true", help="keep what every round leaves, not only a failed one")
    parser.add_argument("--unrecorded", action="store_true", help="write no figures to .benchmarks/")
    options = parser.parse_args(arguments)
    options.seed_given = options.seed is not None
    if not options.seed_given:
        options.seed = SystemRandom().getrandbits(32)
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
