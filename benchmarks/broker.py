"""Barnabas against Apache Kafka, in one run on one machine: `make bench`.

Every round starts each broker afresh, on an empty directory and with the other one stopped, warms it up and puts it
under the same loads; the order changes from round to round. See `report` for the figures and their goals.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks import loads, report
from benchmarks.report import BARNABAS, KAFKA
from tests.peers import KAFKA_JARS, ROOT, BarnabasServer, Broker, KafkaServer, answers_metadata

CONNECTIONS = 16
LOAD_TIMEOUT = 120.0
BUSY_LOAD = 0.5  # both brokers share the cores with their clients, so others must leave them alone


class Sizes(NamedTuple):
    """How much work a round is."""

    records_1k: int
    records_100b: int
    request_seconds: float


SIZES = {
    "full": Sizes(records_1k=1_000_000, records_100b=3_000_000, request_seconds=5),
    "quick": Sizes(records_1k=200_000, records_100b=500_000, request_seconds=2),
}

STARTERS: dict[str, Callable[[Path], Broker]] = {BARNABAS: BarnabasServer, KAFKA: KafkaServer}


def measure(name: str, sizes: Sizes) -> dict[str, float]:
    """Start a broker, load it, stop it; its figures."""
    directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    try:
        os.sync()  # what the last broker left to be written is not this one's burden
        with STARTERS[name](directory / "broker") as server:
            assert answers_metadata(server.address)
            start = time.monotonic() - server.spawned_at
            return {"start": start, "format": getattr(server, "format_seconds", 0.0)} | _load(server, sizes)
    finally:
        shutil.rmtree(directory)


def _load(server: Broker, sizes: Sizes) -> dict[str, float]:
    address, process = server.address, psutil.Process(server.pid)

    def run(load: str, **arguments: str | float) -> dict[str, float]:
        return loads.run(load, LOAD_TIMEOUT, address=address, **arguments)

    time.sleep(1)
    memory_idle = _memory(process)
    for topic, partitions in (("warm-up", 1), ("records-1k", 1), ("records-100b", 1), ("requests", CONNECTIONS)):
        loads.create_topic(address, topic, partitions)
    one_by_one = {"connections": CONNECTIONS, "value_bytes": 100}
    run("produce", topic="warm-up", count=sizes.records_1k // 4, value_bytes=1024)
    run("consume", topic="warm-up", count=sizes.records_1k // 4, value_bytes=1024)
    run("requests", topic="requests", seconds=sizes.request_seconds / 4, **one_by_one)

    cpu_before = _cpu_seconds(process)
    produced = run("produce", topic="records-1k", count=sizes.records_1k, value_bytes=1024)
    consumed = run("consume", topic="records-1k", count=sizes.records_1k, value_bytes=1024)
    cpu = _cpu_seconds(process) - cpu_before
    small = run("produce", topic="records-100b", count=sizes.records_100b, value_bytes=100)
    answered = run("requests", topic="requests", seconds=sizes.request_seconds, **one_by_one)
    return {
        "produce_1k": produced["mb_per_s"],
        "consume_1k": consumed["mb_per_s"],
        "produce_100b": small["records_per_s"],
        "requests": answered["requests_per_s"],
        "requests_p50": answered["p50_ms"],
        "requests_p99": answered["p99_ms"],
        "cpu": cpu / (sizes.records_1k * 1024 / 1e9),
        "memory_idle": memory_idle,
        "memory_loaded": _memory(process),
    }


def _processes(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _memory(process: psutil.Process) -> float:
    """Megabytes resident in a broker and the processes that it started."""
    return sum(each.memory_info().rss for each in _processes(process)) / 1e6


def _cpu_seconds(process: psutil.Process) -> float:
    times = [each.cpu_times() for each in _processes(process)]
    return sum(each.user + each.system for each in times)


def main() -> None:
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
    work = "quick" if options.quick else "full"
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(1 if options.quick else options.rounds):
        figures: dict[str, dict[str, float]] = {}
        for name in (KAFKA, BARNABAS) if number % 2 == 0 else (BARNABAS, KAFKA):
            print(f"round {number + 1}: {name}", file=sys.stderr)
            figures[name] = measure(name, SIZES[work])
        rounds.append(figures)
    report.show(rounds, machine, work)
    print(f"written to {report.save(rounds, machine, work, ROOT / '.benchmarks')}")


if __name__ == "__main__":
    main()
