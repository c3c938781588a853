"""What it costs where a lake is, and where tasks run: HDFS and a local disk, a cluster and one process.

    python -m benchmarks.places [--rounds N] [--records N] [--only hdfs]

The two sides of a comparison take turns at the same topic, JSON of 75 B by the hour, in a session that is warm; the two
of `cluster` have a session each. HDFS has one data node on this machine, whose work is not that of either side. What
counts is CPU time: a figure that other programs on the machine do not change much.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import by_place, report
from benchmarks.pipeline_works import PIPELINE
from benchmarks.report import BARNABAS, Figure, Round
from benchmarks.topic_filling import fill
from benchmarks.values import SMALL
from tests.peers import ROOT, BarnabasServer
from tests.spark.hdfs import HdfsServer
from tests.spark.standalone import StandaloneCluster

LOCAL_DISK, SPARK, ONE_PROCESS = "local disk", "Spark's writer", "local[2]"
TOPIC, PARTITIONS = "clicks", 6
TIMEOUT_S = 1800
LAKE = """
    kind: lake
    path: {place}/${{JOB}}
    time: at
"""
SPARKS_WRITER = "    options: {parquet.page.size: '1048576'}\n"
SQL = 'transforms:\n  - {name: chosen, sql: "SELECT * FROM clicks"}'
CLOCK_S = 0.01
"""The unit of the system's clock for CPU time: processes without a part in the work took less."""
FIGURES = (
    Figure("workers", "CPU of Python workers", "s", False, None),
    Figure("spark", "CPU of Spark's JVMs", "s", False, None),
    Figure("hdfs", "CPU of HDFS", "s", False, None),
    Figure("seconds", "the job", "s", False, None),
)


class Places(NamedTuple):
    """What is measured on, and with."""

    broker: str
    hdfs: str
    scratch: Path

    def text(self, place: str, *, by_sql: bool = False, by_sparks_writer: bool = False) -> str:
        return PIPELINE.replace("benchmark-${{JOB}}", "benchmark-{name}-${{JOB}}").format(
            address=self.broker, topic=TOPIC, format=SMALL.format, schema=json.dumps(SMALL.schema),
            transforms=SQL if by_sql else "", view="chosen" if by_sql else "clicks", name=place.rpartition("/")[2],
            sink=LAKE.format(place=place) + (SPARKS_WRITER if by_sparks_writer else ""),
        )  # fmt: skip

    def measured(self, texts: Mapping[str, str], rounds: int, **session: Any) -> list[Round]:
        with tempfile.TemporaryDirectory(dir=self.scratch) as scratch:
            arguments = json.dumps({"texts": texts, "scratch": scratch, "rounds": rounds, **session})
            done = subprocess.run(
                [sys.executable, "-m", by_place.__name__, arguments],
                cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=TIMEOUT_S, check=True,
            )  # fmt: skip
        found: list[Round] = json.loads(done.stdout.splitlines()[-1])
        return found


class Contest(NamedTuple):
    name: str
    title: str
    peer: str
    measure: Callable[[Places, int], Iterable[Round]]


def _hdfs(places: Places, rounds: int) -> list[Round]:
    texts = {BARNABAS: places.text(f"{places.hdfs}/direct"), LOCAL_DISK: places.text(f"{places.scratch}/direct")}
    return places.measured(texts, rounds)


def _writer(places: Places, rounds: int) -> list[Round]:
    arrow = places.text(f"{places.hdfs}/arrow", by_sql=True)
    spark = places.text(f"{places.hdfs}/spark", by_sql=True, by_sparks_writer=True)
    return places.measured({BARNABAS: arrow, SPARK: spark}, rounds)


def _cluster(places: Places, rounds: int) -> Iterator[Round]:
    settings = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
    for number in range(rounds):
        text = places.text(f"{places.hdfs}/cluster-{number}")
        alone = places.measured({ONE_PROCESS: text}, 1)[0]
        place = places.scratch / f"cluster-{number}"
        place.mkdir()
        with StandaloneCluster(place, 2) as cluster:
            spread = places.measured(
                {BARNABAS: text.replace("cluster-", "spread-")}, 1, master=cluster.url, settings=settings
            )
        yield {**alone, **spread[0]}


CONTESTS = (
    Contest("hdfs", "A lake on HDFS, and on a local disk", LOCAL_DISK, _hdfs),
    Contest("writer", "A lake on HDFS from SQL, written by Arrow and by Spark", SPARK, _writer),
    Contest("cluster", "A lake on HDFS from two workers of a cluster, and from one process", ONE_PROCESS, _cluster),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.places", description="where a lake is and tasks run")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default: 5)")
    parser.add_argument("--records", type=int, default=1_000_000, help="in the topic (default: 1,000,000)")
    parser.add_argument("--only", action="append", choices=[each.name for each in CONTESTS], help="may be repeated")
    options = parser.parse_args()
    machine = report.machine()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory, ExitStack() as stack:
        scratch = Path(directory)
        broker = stack.enter_context(BarnabasServer(scratch / "broker"))
        hdfs = stack.enter_context(HdfsServer(scratch / "hdfs"))
        fill([broker.address], TOPIC, SMALL, options.records, PARTITIONS)
        places = Places(broker.address, hdfs.url, scratch)
        for contest in CONTESTS:
            if options.only and contest.name not in options.only:
                continue
            rounds = [
                {side: {name: max(CLOCK_S, taken) for name, taken in figures.items()} for side, figures in one.items()}
                for one in contest.measure(places, options.rounds)
            ]
            size = f"{options.records:,} records"
            report.show(FIGURES, rounds, machine, size, title=contest.title, peer=contest.peer)
            name = f"places-{contest.name}"
            saved = report.save(name, FIGURES, rounds, machine, size, ROOT / ".benchmarks", peer=contest.peer)
            print(f"written to {saved}")


if __name__ == "__main__":
    main()
