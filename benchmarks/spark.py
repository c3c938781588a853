"""Our Spark data source against Spark's own Kafka connector, on one broker of ours in one session: `make bench`.

The two take turns at each work, on the same topics, in the same warm JVM, and what each has read or written is counted.
A second table tells what ten times the records cost: in time, and in memory of the driver.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from barnabas.spark import register
from benchmarks import driver, loads, report
from benchmarks.report import BARNABAS, Figure, Round
from benchmarks.spark_loads import MICRO_BATCH, VALUE_BYTES, Loads, Source
from tests.peers import HOST, ROOT, BarnabasServer, spark_connector_jars

CONNECTOR, TENTH = "Spark's connector", "a tenth of it"
OURS, THEIRS = "barnabas", "kafka"
PARTITIONS = (1, 6)
LOAD_TIMEOUT = 300.0


class Sizes(NamedTuple):
    """How much work a round is."""

    records: int
    micro_batches: int


FULL = Sizes(6_000_000, 20)  # so many that a rate is measured, and not what any job of Spark's costs
QUICK = Sizes(50_000, 2)
WARM_UP = Sizes(50_000, 2)


class Contest(NamedTuple):
    """One work for both sides; where it has no partitions, it makes its own topic."""

    name: str
    title: str
    goal: float
    work: Callable[[Loads, Source, Sizes, str], float]
    options: Mapping[str, str] = {}
    selected: tuple[str, ...] = ()
    partitions: int | None = None
    is_time: bool = False

    def sides(self) -> dict[str, Source]:
        """Ours takes the columns by an option; Spark prunes them for its own."""
        return {BARNABAS: Source(OURS, self.options), CONNECTOR: Source(THEIRS, {}, self.selected)}


def _to_parquet(of: Loads, source: Source, sizes: Sizes, topic: str) -> float:
    return of.to_parquet(source, topic, sizes.records)


def _count(of: Loads, source: Source, sizes: Sizes, topic: str) -> float:
    return of.count(source, topic, sizes.records)


def _to_topic(of: Loads, source: Source, sizes: Sizes, topic: str) -> float:
    return of.to_topic(source, max(PARTITIONS), sizes.records)


def _micro_batches(of: Loads, source: Source, sizes: Sizes, topic: str) -> float:
    return of.micro_batches(source, sizes.micro_batches)


def _contests() -> Iterator[Contest]:
    some = {"columns": "value,offset"}
    for count in PARTITIONS:
        where = f"{count} partition{'s' if count > 1 else ''}"
        yield Contest(f"parquet-{count}", f"topic to Parquet, {where}", 1.8, _to_parquet, partitions=count)
        yield Contest(
            f"parquet-columns-{count}", f"value and offset to Parquet, {where}", 2.5, _to_parquet, some,
            ("value", "offset"), count,
        )  # fmt: skip
        yield Contest(f"count-{count}", f"count, {where}", 3, _count, partitions=count)
        yield Contest(
            f"count-offset-{count}", f"count of columns=offset, {where}", 5, _count, {"columns": "offset"},
            partitions=count,
        )  # fmt: skip
    yield Contest("write", f"DataFrame to topic, {max(PARTITIONS)} partitions", 1.5, _to_topic)
    yield Contest("micro-batch", f"micro-batch of {MICRO_BATCH:,} records, p50", 1, _micro_batches, is_time=True)


CONTESTS = tuple(_contests())
FIGURES = [
    Figure(each.name, each.title, "ms" if each.is_time else "records/s", not each.is_time, each.goal)
    for each in CONTESTS
]
GROWTH = [
    Figure("time", "topic to Parquet: seconds", "s", False, 10.5),
    Figure("memory", "driver's memory after it", "MB", False, 1.1),
]


class Bench:
    """The broker's topics are filled once; a round only reads them, and writes to topics of its own."""

    def __init__(self, spark: SparkSession, address: str, scratch: Path, sizes: Sizes) -> None:
        self._spark = spark
        self._loads = Loads(spark, address, scratch)
        self._sizes = sizes
        for size in {sizes, WARM_UP}:
            for partitions in PARTITIONS:
                topic = _topic(size, partitions)
                loads.create_topic(address, topic, partitions)
                loads.run(
                    loads.__name__, "produce", LOAD_TIMEOUT, address=address, topic=topic, count=size.records,
                    value_bytes=VALUE_BYTES, partitions=partitions,
                )  # fmt: skip

    def measure(self, reverse: bool) -> Round:
        """Little work comes first each time: Spark ends a Python that is idle for a minute, and starting is no rate."""
        measured: dict[str, dict[str, float]] = {BARNABAS: {}, CONNECTOR: {}}
        for contest in CONTESTS:
            sides = list(contest.sides().items())
            for side, source in sides[::-1] if reverse else sides:
                for sizes in (WARM_UP, self._sizes):
                    taken = contest.work(self._loads, source, sizes, _topic(sizes, contest.partitions))
                measured[side][contest.name] = taken * 1000 if contest.is_time else self._sizes.records / taken
        return measured

    def grow(self) -> Round:
        """A tenth of a topic's records, and then all of them."""
        self._loads.to_parquet(Source(OURS), _topic(WARM_UP, 1), WARM_UP.records)
        topic, records = _topic(self._sizes, 1), self._sizes.records
        measured: dict[str, dict[str, float]] = {}
        for side, end in ((TENTH, records // 10), (BARNABAS, records)):
            source = Source(OURS, {"endingOffsets": json.dumps({topic: {"0": end}})})
            measured[side] = {"time": self._loads.to_parquet(source, topic, end), "memory": driver.kept_mb(self._spark)}
        return measured


def _topic(sizes: Sizes, partitions: int | None) -> str:
    return f"read-{sizes.records}-{partitions}"


@contextmanager
def _session(scratch: Path) -> Iterator[SparkSession]:
    """Our source runs in a release, where there is one."""
    os.environ["PYSPARK_PYTHON"] = os.environ.get("BARNABAS_TEST_PYTHON", sys.executable)
    settings = {
        "spark.jars": ",".join(str(jar) for jar in spark_connector_jars()),
        "spark.driver.memory": "2g",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[*,4]").appName("barnabas benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    try:
        yield session
    finally:
        session.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description="our Spark source against Spark's own")
    parser.add_argument("--rounds", type=int, default=3, help="how often all are measured (default: 3)")
    parser.add_argument("--quick", action="store_true", help="little work, one round: to see that all runs")
    options = parser.parse_args()
    work, sizes = ("quick", QUICK) if options.quick else ("full", FULL)
    machine, rounds, growths = report.machine(), list[Round](), list[Round]()
    scratch = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    try:
        with BarnabasServer(scratch / "broker") as server, _session(scratch) as spark:
            bench = Bench(spark, server.address, scratch, sizes)
            for number in range(1 if options.quick else options.rounds):
                print(f"spark, round {number + 1}", file=sys.stderr)
                rounds.append(bench.measure(reverse=number % 2 == 1))
                growths.append(bench.grow())
    finally:
        shutil.rmtree(scratch)
    for name, figures, measured, title, peer in (
        ("spark", FIGURES, rounds, "Our Spark source and Spark's own, records of 100 B", CONNECTOR),
        ("spark-growth", GROWTH, growths, f"{sizes.records:,} records and a tenth of them", TENTH),
    ):
        report.show(figures, measured, machine, work, title=title, peer=peer)
        print(f"written to {report.save(name, figures, measured, machine, work, ROOT / '.benchmarks', peer=peer)}")


if __name__ == "__main__":
    main()
