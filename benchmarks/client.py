"""Our Python client against confluent-kafka and aiokafka, on one broker of ours in one run: `make bench`.

The clients take turns at each work, each in a process of its own, and every side reads the same topic. At 1 KB all are
near what a broker on one core can do, so the process that limits is told: the one whose CPU time fills the time most.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
from confluent_kafka import Consumer, TopicPartition

from benchmarks import client_aiokafka, client_barnabas, client_confluent, loads, report
from benchmarks.client_load import Figures, Work
from benchmarks.report import BARNABAS, Figure, Round
from tests.peers import ROOT, BarnabasServer

PEER = "the other"
LOAD_TIMEOUT = 120.0
SEND_RATE = 1000
BUSY_SHARE = 0.7
SIZES = {"100 B": 100, "1 KB": 1024}


class Side(NamedTuple):
    """One load of one client; `scale` is its part of the round's records, so that a slow client does not take long."""

    module: str
    load: str
    scale: float = 1.0

    def __str__(self) -> str:
        return f"{self.module.rpartition('_')[2]}'s {self.load}"


class Contest(NamedTuple):
    """What our client does, beside what others do, each with the goal of the ratio at 100 B; at 1 KB it is 1."""

    ours: Side
    others: Sequence[tuple[Side, float]]
    reads: bool = False
    figure: str = "records_per_s"
    turns: int = 1
    """How often the sides take turns in a round: one stall of the machine decides a single p99 of either."""


OURS, CONFLUENT, AIOKAFKA = (each.__name__ for each in (client_barnabas, client_confluent, client_aiokafka))

CONTESTS = (
    Contest(Side(OURS, "send_columns", 2), [(Side(CONFLUENT, "produce"), 5)]),
    Contest(Side(OURS, "post"), [(Side(CONFLUENT, "produce_reported"), 1), (Side(AIOKAFKA, "produce", 0.2), 5)]),
    Contest(Side(OURS, "batches", 2), [(Side(CONFLUENT, "consume"), 5)], reads=True),
    Contest(Side(OURS, "records"), [(Side(CONFLUENT, "poll"), 1), (Side(AIOKAFKA, "consume", 0.2), 5)], reads=True),
    Contest(Side(OURS, "latency"), [(Side(CONFLUENT, "latency"), 1)], figure="p99_ms", turns=5),
)


class Sizes(NamedTuple):
    """How much work a round is: the records of a load by their size, and the seconds of a latency's."""

    records: dict[str, int]
    seconds: int


FULL = Sizes({"100 B": 1_500_000, "1 KB": 300_000}, 4)
QUICK = Sizes({"100 B": 200_000, "1 KB": 40_000}, 1)
WARM_UP = {"100 B": 100_000, "1 KB": 20_000}


def figures(contests: Sequence[Contest]) -> list[Figure]:
    return [
        Figure(
            f"{contest.ours} / {other} / {size}",
            f"{size}: {contest.ours.load}, {other}",
            "records/s" if contest.figure == "records_per_s" else f"p99, ms, at {SEND_RATE}/s",
            contest.figure == "records_per_s",
            goal if size == "100 B" else 1,
        )
        for size in SIZES
        for contest in contests
        for other, goal in contest.others
    ]


class Bench:
    """One round: a broker on an empty directory, and what the loads measure on it."""

    def __init__(self, server: BarnabasServer, contests: Sequence[Contest], sizes: Sizes, reverse: bool) -> None:
        self._address = server.address
        self._contests = contests
        self._broker = psutil.Process(server.pid)
        self._sizes = sizes
        self._reverse = reverse
        self.limits: dict[str, str] = {}

    def measure(self) -> Round:
        measured: dict[str, dict[str, float]] = {BARNABAS: {}, PEER: {}}
        for size in SIZES:
            if any(contest.reads for contest in self._contests):
                self._fill(size)
            for contest in self._contests:
                sides = [contest.ours, *(other for other, _ in contest.others)]
                taken: dict[Side, list[float]] = {side: [] for side in sides}
                for turn in range(contest.turns):
                    for side in sides[::-1] if self._reverse else sides:
                        taken[side].append(self._run(contest, side, size, turn)[contest.figure])
                for other, _ in contest.others:
                    name = f"{contest.ours} / {other} / {size}"
                    measured[BARNABAS][name] = median(taken[contest.ours])
                    measured[PEER][name] = median(taken[other])
        return measured

    def _fill(self, size: str) -> None:
        """The topic that all sides read, in the batches of librdkafka."""
        topic, count = f"read-{SIZES[size]}", WARM_UP[size] + 2 * self._sizes.records[size]
        loads.create_topic(self._address, topic)
        loads.run(
            loads.__name__, "produce", LOAD_TIMEOUT, address=self._address, topic=topic, count=count,
            value_bytes=SIZES[size],
        )  # fmt: skip

    def _run(self, contest: Contest, side: Side, size: str, turn: int) -> Figures:
        """Run one side, and check what it has left on the broker."""
        is_latency = contest.figure == "p99_ms"
        count = SEND_RATE * self._sizes.seconds if is_latency else int(self._sizes.records[size] * side.scale)
        topic = f"read-{SIZES[size]}" if contest.reads else f"{side.module}-{side.load}-{SIZES[size]}-{turn}"
        warm_up = SEND_RATE if is_latency else WARM_UP[size]
        if not contest.reads:
            loads.create_topic(self._address, topic)
        taken = self._watch(side, size, Work(self._address, topic, count, warm_up, SIZES[size], SEND_RATE))
        if not contest.reads:
            found = _end_offset(self._address, topic)
            if found != warm_up + count:
                raise RuntimeError(f"{side} has left {found} records of {warm_up + count}")
        return taken

    def _watch(self, side: Side, size: str, work: Work) -> Figures:
        with _started(side, work) as process:
            assert process.stdout is not None
            begun = process.stdout.readline()
            cpu_before = _cpu_seconds(self._broker)
            told = process.stdout.readline()
            cpu = _cpu_seconds(self._broker) - cpu_before
        if begun != "begin\n" or not told:
            raise RuntimeError(f"{side} has failed")
        taken: Figures = json.loads(told)
        limit = _limit(taken["cpu_s"] / taken["seconds"], cpu / taken["seconds"])
        own = taken["cpu_s"] / work.records * 1e6
        self.limits[f"{size}: {side}"] = f"{limit}; {own:.2f} us of the client's CPU for a record"
        return taken


@contextmanager
def _started(side: Side, work: Work) -> Iterator[subprocess.Popen[str]]:
    """Our own client runs in a release, where there is one."""
    python = os.environ.get("BARNABAS_TEST_PYTHON", sys.executable) if side.module == OURS else sys.executable
    command = [python, "-m", side.module, side.load, json.dumps(work._asdict())]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield process


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _limit(client: float, broker: float) -> str:
    """The process that has no time left: more than one core's, for librdkafka's threads."""
    name, share = max(("the client", client), ("the broker", broker), key=lambda pair: pair[1])
    limit = name if share > BUSY_SHARE else "neither, both wait"
    return f"{limit} (client {client:.0%}, broker {broker:.0%} of a core)"


def _end_offset(address: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
    consumer.close()
    return int(end)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description="our client against others")
    parser.add_argument("--rounds", type=int, default=3, help="how often all are measured (default: 3)")
    parser.add_argument("--quick", action="store_true", help="little work, one round: to see that all runs")
    loads = [contest.ours.load for contest in CONTESTS]
    parser.add_argument("--only", action="append", choices=loads, help="one load of ours, and those it is held against")
    options = parser.parse_args()
    contests = [contest for contest in CONTESTS if contest.ours.load in (options.only or loads)]
    work, sizes = ("quick", QUICK) if options.quick else ("full", FULL)
    machine, rounds, limits = report.machine(), list[Round](), dict[str, str]()
    for number in range(1 if options.quick else options.rounds):
        print(f"client, round {number + 1}", file=sys.stderr)
        directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
        try:
            with BarnabasServer(directory / "broker") as server:
                bench = Bench(server, contests, sizes, reverse=number % 2 == 1)
                rounds.append(bench.measure())
                limits = bench.limits
        finally:
            shutil.rmtree(directory)
    report.show(figures(contests), rounds, machine, work, title="Our client and others'", peer=PEER)
    print("what limits, in the last round:")
    for load, limit in limits.items():
        print(f"  {load}: {limit}")
    print(
        f"written to {report.save('client', figures(contests), rounds, machine, work, ROOT / '.benchmarks', peer=PEER)}"
    )


if __name__ == "__main__":
    main()
