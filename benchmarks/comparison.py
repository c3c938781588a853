"""Barnabas and Apache Kafka measured in turn: what the benchmarks of a running broker have in common.

Every round starts each broker afresh, on an empty directory and with the other one stopped; the order changes from
round to round.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from benchmarks import report
from benchmarks.report import BARNABAS, KAFKA, Figure
from tests.peers import KAFKA_JARS, ROOT, BarnabasServer, Broker, KafkaServer

Sizes = TypeVar("Sizes")
BUSY_LOAD = 0.5  # both brokers share the cores with their clients, so others must leave them alone


@contextmanager
def running(name: str, settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """A broker on an empty directory."""
    directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    starter: Callable[[Path, Mapping[str, str] | None], Broker] = BarnabasServer if name == BARNABAS else KafkaServer
    try:
        os.sync()  # what the last broker left to be written is not this one's burden
        with starter(directory / "broker", settings) as server:
            yield server
    finally:
        shutil.rmtree(directory)


def compare(
    name: str,
    figures: Sequence[Figure],
    measure: Callable[[str, Sizes], dict[str, float]],
    full: Sizes,
    quick: Sizes,
) -> None:
    """Measure both brokers as the command line asks, show the figures and keep them."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description="Barnabas against Apache Kafka")
    parser.add_argument("--rounds", type=int, default=3, help="how often both are measured (default: 3)")
    parser.add_argument("--quick", action="store_true", help="a fifth of the work, one round: to see that all runs")
    options = parser.parse_args()
    if not KAFKA_JARS.is_dir() or shutil.which("java") is None:
        sys.exit(f"the comparison needs java and Apache Kafka's jars in {KAFKA_JARS}: run `make peers`")

    machine = report.machine()
    if os.getloadavg()[0] > BUSY_LOAD:
        print(
            f"this machine is busy (load {machine['load before']}): the ratios will not be worth much", file=sys.stderr
        )
    work, sizes = ("quick", quick) if options.quick else ("full", full)
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(1 if options.quick else options.rounds):
        measured: dict[str, dict[str, float]] = {}
        for broker in (KAFKA, BARNABAS) if number % 2 == 0 else (BARNABAS, KAFKA):
            print(f"{name}, round {number + 1}: {broker}", file=sys.stderr)
            measured[broker] = measure(broker, sizes)
        rounds.append(measured)
    report.show(figures, rounds, machine, work)
    print(f"written to {report.save(name, figures, rounds, machine, work, ROOT / '.benchmarks')}")
