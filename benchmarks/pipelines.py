"""Pipelines against hand-written PySpark on Spark's own connector, both from topics to hourly Parquet, and to tables of
databases, where Spark writes by JDBC: `make bench`.

The two take turns on the same topic: the whole command from a cold start, then two jobs in one session, of which the
second is warm. Spark's connector reads from our broker and from Apache Kafka, and the faster one counts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from confluent_kafka import Producer

from benchmarks import loads, report
from benchmarks.report import BARNABAS, Figure, Round
from tests.peers import ROOT, BarnabasServer, KafkaServer, MariaDbServer, PostgresServer, barnabas_command

BY_HAND = "hand-written"
PARTITIONS = 6
FIRST_SECOND = 1_794_960_000
TIMEOUT_S = 1800
SMALL_SCHEMA = "id BIGINT, user STRING, amount DOUBLE, at TIMESTAMP"
WIDE_SCHEMA = (
    "id BIGINT, at TIMESTAMP, user STRUCT<id: BIGINT, name: STRING, tags: ARRAY<STRING>>, "
    "items ARRAY<STRUCT<sku: STRING, count: INT, price: DECIMAL(10,2)>>, attributes MAP<STRING, STRING>, note STRING"
)
PIPELINE = """
name: benchmark-${{JOB}}
cluster: {{bootstrap_servers: "{address}"}}
mode: batch
sources:
  - name: clicks
    topics: ["{topic}"]
    schema: "{schema}"
{transforms}
sinks:
  - name: sink
    from: {view}
{sink}
"""
LAKE = """
    kind: lake
    path: ${PLACE}/lake
    time: at
"""
TABLE = """
    kind: database
    url: "{url}"
    table: "by_pipeline_${{JOB}}"
    mode: upsert
    key: [id]
    create: true
"""


def small(number: int, total: int, random: Random) -> bytes:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(FIRST_SECOND + number * 86_400 // total))
    return b'{"id":%d,"user":"user-%d","amount":%.2f,"at":"%s"}' % (
        number,
        number % 1000,
        random.random() * 100,
        at.encode(),
    )


def wide(number: int, total: int, random: Random) -> bytes:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(FIRST_SECOND + number * 86_400 // total))
    row = {
        "id": number,
        "at": at,
        "user": {"id": number % 1000, "name": f"user-{number % 1000}", "tags": ["new", "paid", "eu"]},
        "items": [{"sku": f"sku-{random.randrange(10_000)}", "count": 2, "price": 19.99} for _ in range(8)],
        "attributes": {f"attribute-{index}": f"value-{random.randrange(100)}" for index in range(8)},
        "note": "x" * 200,
    }
    return json.dumps(row, separators=(",", ":")).encode()


class Work(NamedTuple):
    name: str
    title: str
    records: int
    value: Callable[[int, int, Random], bytes]
    schema: str
    job_goal: float
    command_goal: float | None
    sql: str | None = None
    database: str | None = None
    """The server whose table gets the rows, instead of a lake."""

    @property
    def topic(self) -> str:
        return f"{self.value.__name__}-{self.records}"

    def pipeline(self, address: str, url: str | None) -> str:
        transforms = "" if self.sql is None else f'transforms:\n  - {{name: chosen, sql: "{self.sql}"}}'
        return PIPELINE.format(
            address=address, topic=self.topic, schema=self.schema, transforms=transforms,
            view="clicks" if self.sql is None else "chosen", sink=LAKE if url is None else TABLE.format(url=url),
        )  # fmt: skip


WORKS = (
    Work("small", "JSON of 75 B", 5_000_000, small, SMALL_SCHEMA, 4, 2.5),
    Work("wide", "JSON of 1 KB, nested", 1_000_000, wide, WIDE_SCHEMA, 2.5, None),
    Work(
        "sql", "JSON of 75 B through SQL", 5_000_000, small, SMALL_SCHEMA, 1.8, None,
        "SELECT id, upper(user) AS user, amount * 2 AS twice, at FROM clicks WHERE amount > 50",
    ),
    Work("mariadb", "JSON of 75 B into MariaDB", 1_000_000, small, SMALL_SCHEMA, 1.3, None, None, "mariadb"),
    Work("postgresql", "JSON of 75 B into PostgreSQL", 1_000_000, small, SMALL_SCHEMA, 1.3, None, None, "postgresql"),
)  # fmt: skip


def figures(works: tuple[Work, ...]) -> Iterator[Figure]:
    for work in works:
        yield Figure(f"{work.name}-command", f"{work.title}: whole command", "s", False, _below(work.command_goal))
        yield Figure(f"{work.name}-cold", f"{work.title}: job, cold", "s", False, None)
        yield Figure(f"{work.name}-warm", f"{work.title}: job, warm", "s", False, _below(work.job_goal))


def _below(times_faster: float | None) -> float | None:
    return None if times_faster is None else 1 / times_faster


class Bench:
    def __init__(self, ours: str, kafka: str, databases: Mapping[str, str], scratch: Path) -> None:
        """`databases` are URLs by the names of servers."""
        self._addresses = {"ours": ours, "kafka": kafka}
        self._databases = databases
        self._scratch = scratch
        self._runs = 0

    def fill(self, work: Work) -> None:
        for address in self._addresses.values():
            loads.create_topic(address, work.topic, PARTITIONS)
            produce(address, work)

    def by_pipeline(self, work: Work) -> dict[str, float]:
        text = work.pipeline(self._addresses["ours"], self._url(work))
        place = self._place()
        file = place / "pipeline.yaml"
        file.write_text(text.replace("${PLACE}", str(place)).replace("${JOB}", place.name))
        command = _seconds(barnabas_command("pipeline", "run", str(file)))
        jobs = _measured("benchmarks.by_pipeline", text=text, place=str(self._place()), jobs=2)
        return _named(work, command, jobs)

    def by_hand(self, work: Work) -> dict[str, float]:
        """From the broker on which it is faster."""
        best: dict[str, float] = {}
        for address in self._addresses.values():
            arguments = {"address": address, "topic": work.topic, "schema": work.schema, "sql": work.sql}
            arguments["database"] = self._url(work)
            alone = json.dumps({**arguments, "place": str(self._place() / "rows")})
            command = _seconds([sys.executable, "-m", "benchmarks.by_hand", alone])
            jobs = _measured("benchmarks.by_hand", **arguments, place=str(self._place() / "rows"), jobs=2)
            found = _named(work, command, jobs)
            best = {name: min(seconds, best.get(name, seconds)) for name, seconds in found.items()}
        return best

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


def _named(work: Work, command: float, jobs: dict[str, float]) -> dict[str, float]:
    return {f"{work.name}-command": command, f"{work.name}-cold": jobs["job 0"], f"{work.name}-warm": jobs["job 1"]}


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S, check=True
    )
    return time.perf_counter() - began


def _measured(module: str, **arguments: Any) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def produce(address: str, work: Work) -> None:
    random = Random(1)
    queue = {"queue.buffering.max.messages": 1_000_000, "batch.size": 1_000_000, "linger.ms": 20}
    producer = Producer({"bootstrap.servers": address, **queue})
    for number in range(work.records):
        while True:
            try:
                producer.produce(work.topic, work.value(number, work.records, random), partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(300):
        raise RuntimeError(f"{work.topic} was not filled")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pipelines", description="pipelines and hand-written Spark"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often all are measured (default: 5)")
    parser.add_argument("--only", action="append", choices=[work.name for work in WORKS], help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="little work, one round: to see that all runs")
    options = parser.parse_args()
    works = tuple(work for work in WORKS if not options.only or work.name in options.only)
    if options.quick:
        works = tuple(work._replace(records=60_000) for work in works)
    machine, rounds = report.machine(), list[Round]()
    scratch = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    try:
        with ExitStack() as stack:
            ours = stack.enter_context(BarnabasServer(scratch / "broker"))
            kafka = stack.enter_context(KafkaServer(scratch / "kafka"))
            databases = dict[str, str]()
            for name in {work.database for work in works if work.database}:
                server = _DATABASES[name](scratch)
                stack.enter_context(server)
                databases[name] = server.url
            bench = Bench(ours.address, kafka.address, databases, scratch)
            for topic in {work.topic: work for work in works}.values():
                bench.fill(topic)
            for number in range(1 if options.quick else options.rounds):
                print(f"pipelines, round {number + 1}", file=sys.stderr)
                measured: dict[str, dict[str, float]] = {BARNABAS: {}, BY_HAND: {}}
                sides = [(BARNABAS, bench.by_pipeline), (BY_HAND, bench.by_hand)]
                for side, run in sides[:: -1 if number % 2 else 1]:
                    for work in works:
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
