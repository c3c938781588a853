"""Pipelines and the decoding data source against hand-written PySpark on Spark's own connector: `make bench`.

The two take turns on the same topics: the whole command from a cold start, then two jobs in one session, of which the
second is warm. What is written by hand reads from our broker and from Apache Kafka, and the better of the two counts,
figure by figure; after the first round only from a broker with which the command or the warm job was the faster one.
Both sides must have the same rows in the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from barnabas.spark.pipeline import class_recorder
from benchmarks import process_tree, report
from benchmarks.pipeline_works import QUICK_RECORDS, WORKS, Work, figures, pipeline_text
from benchmarks.process_tree import Measured
from benchmarks.report import BARNABAS, Round
from benchmarks.topic_filling import fill
from tests.peers import ROOT, BarnabasServer, KafkaServer, MariaDbServer, PostgresServer

BY_HAND = "hand-written"
PARTITIONS = 6
TIMEOUT_S = 1800


class Bench:
    """Ours reads from the first of the brokers, what is written by hand from all; `databases` are URLs by name."""

    def __init__(self, brokers: Sequence[str], databases: Mapping[str, str], scratch: Path) -> None:
        self._brokers = brokers
        self._databases = databases
        self._scratch = scratch
        self._runs = 0
        self._rows: dict[str, Any] = {}
        self._faster: dict[str, list[str]] = {}
        """By work: the brokers from which what is written by hand reads after the first round."""

    def fill(self, work: Work) -> None:
        fill(self._brokers, work.topic, work.values, work.records, PARTITIONS)

    def ours(self, work: Work) -> dict[str, float]:
        if work.query is not None:
            asked = {"address": self._brokers[0], "topic": work.topic, "format": work.values.format,
                     "schema": work.values.schema, "columns": work.columns, "query": work.query}  # fmt: skip
            command = self._run(_module("by_source", **asked))
            jobs = self._jobs(work, "by_source", **asked)
        else:
            text = pipeline_text(work, self._brokers[0], self._url(work))
            command = self._run(self._pipeline_command(text))
            jobs = self._jobs(work, "by_pipeline", text=text, place=str(self._place()))
        measured = _named(work, command, jobs)
        return {**measured, **{f"{work.name}-{peer}": measured[f"{work.name}-warm"] for peer in work.peers}}

    def by_hand(self, work: Work) -> dict[str, float]:
        by_broker = {broker: self._by_hand(work, broker) for broker in self._faster.get(work.name, self._brokers)}
        best = {name: min(each[name] for each in by_broker.values()) for name in next(iter(by_broker.values()))}
        decisive = [f"{work.name}-command", f"{work.name}-warm"]
        self._faster.setdefault(
            work.name,
            [broker for broker, each in by_broker.items() if any(each[name] == best[name] for name in decisive)],
        )
        return best

    def _by_hand(self, work: Work, broker: str) -> dict[str, float]:
        asked = {"address": broker, "topic": work.topic, "schema": work.values.schema, "sql": work.sql,
                 "query": work.query, "database": self._url(work)}  # fmt: skip
        first = _module(
            "by_hand", **asked, decoder=work.values.format, place=str(self._place() / "rows"), checked=False
        )
        command = self._run(first)
        jobs = self._jobs(work, "by_hand", **asked, decoder=work.values.format, place=str(self._place() / "rows"))
        measured = _named(work, command, jobs)
        for peer in work.peers:
            jobs = self._jobs(work, "by_hand", **asked, decoder=peer, place=str(self._place() / "rows"))
            measured[f"{work.name}-{peer}"] = jobs["job 1"]
        return measured

    def record_classes(self) -> None:
        """For commands of ours: the first one of a machine would do it in the background, beside what is measured."""
        self._run([sys.executable, "-m", class_recorder.__name__])

    def _pipeline_command(self, text: str) -> list[str]:
        place = self._place()
        file = place / "pipeline.yaml"
        file.write_text(text.replace("${PLACE}", str(place)).replace("${JOB}", place.name))
        return [sys.executable, "-m", "barnabas.cli", "pipeline", "run", str(file)]

    def _jobs(self, work: Work, module: str, **arguments: Any) -> dict[str, float]:
        found: dict[str, Any] = json.loads(self._run(_module(module, **arguments, jobs=2)).lines[-1])
        rows = found.pop("rows")
        if rows != self._rows.setdefault(work.name, rows):
            raise RuntimeError(f"{module} has other rows of {work.name} than the side before: {str(rows)[:300]}")
        return found

    def _run(self, command: Sequence[str]) -> Measured:
        return process_tree.run(command, TIMEOUT_S, {"XDG_CACHE_HOME": str(self._scratch / "cache")})

    def _url(self, work: Work) -> str | None:
        return None if work.database is None else self._databases[work.database]

    def _place(self) -> Path:
        for old in self._scratch.glob("run-*"):
            shutil.rmtree(old)
        self._runs += 1
        place = self._scratch / f"run-{self._runs}"
        place.mkdir()
        return place


_DATABASES: Mapping[str, Callable[[Path], MariaDbServer | PostgresServer]] = {
    "mariadb": lambda scratch: MariaDbServer(scratch / "mariadb"),
    "postgresql": lambda scratch: PostgresServer(),
}


def _module(name: str, **arguments: Any) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.{name}", json.dumps(arguments)]


def _named(work: Work, command: Measured, jobs: Mapping[str, float]) -> dict[str, float]:
    measured = {
        "command": command.seconds,
        "cold": jobs["job 0"],
        "warm": jobs["job 1"],
        "cpu": command.cpu_seconds / (work.records / 1e6),
        "memory": command.peak_bytes / 1e6,
    }
    if work.database is not None:
        measured["staged"] = jobs["staged 1"]
    return {f"{work.name}-{figure}": value for figure, value in measured.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pipelines", description="pipelines and hand-written Spark"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often all are measured (default: 5)")
    parser.add_argument("--only", action="append", choices=[work.name for work in WORKS], help="may be repeated")
    parser.add_argument(
        "--quick", action="store_true", help="little work, one round, without Apache Kafka: to see that all runs"
    )
    options = parser.parse_args()
    works = tuple(work for work in WORKS if not options.only or work.name in options.only)
    if options.quick:
        works = tuple(work._replace(records=QUICK_RECORDS) for work in works)
    machine, rounds = report.machine(), list[Round]()
    scratch = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    try:
        with ExitStack() as stack:
            brokers = [stack.enter_context(BarnabasServer(scratch / "broker")).address]
            if not options.quick:
                brokers.append(stack.enter_context(KafkaServer(scratch / "kafka")).address)
            databases = dict[str, str]()
            for name in {work.database for work in works if work.database}:
                server = _DATABASES[name](scratch)
                stack.enter_context(server)
                databases[name] = server.url
            bench = Bench(brokers, databases, scratch)
            for topic in {work.topic: work for work in works}.values():
                bench.fill(topic)
            bench.record_classes()
            for number in range(1 if options.quick else options.rounds):
                measured: dict[str, dict[str, float]] = {BARNABAS: {}, BY_HAND: {}}
                sides = [(BARNABAS, bench.ours), (BY_HAND, bench.by_hand)]
                for work in works:
                    print(f"pipelines, round {number + 1}: {work.name}", file=sys.stderr)
                    for side, run in sides[:: -1 if number % 2 else 1]:
                        measured[side].update(run(work))
                print(json.dumps(measured), file=sys.stderr)
                rounds.append(measured)
    finally:
        shutil.rmtree(scratch)
    shown = list(figures(works))
    work_name = "quick" if options.quick else "full"
    report.show(shown, rounds, machine, work_name, title="Pipelines and hand-written Spark", peer=BY_HAND)
    saved = report.save("pipelines", shown, rounds, machine, work_name, ROOT / ".benchmarks", peer=BY_HAND)
    print(f"written to {saved}")


if __name__ == "__main__":
    main()
