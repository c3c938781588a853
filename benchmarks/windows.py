"""Windowed counts from a topic to a topic: a pipeline, exactly once, against Spark's own Kafka sink, at least once.

    python -m benchmarks.windows

Both count JSON records of 75 B by hour and user, from the whole topic: as a stream (`available-now`), which keeps its
windows in a checkpoint, and as one batch. They have as many shuffle partitions as there are cores. The two take turns:
the whole command from a cold start, then two jobs in one session, of which the second is warm. Spark's connector works
with our broker and with Apache Kafka, and the faster one counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from barnabas.spark.pipeline import class_recorder
from benchmarks import by_hand, process_tree, report
from benchmarks.pipelines import BY_HAND, PARTITIONS
from benchmarks.process_tree import Measured
from benchmarks.report import BARNABAS, Figure, Round
from benchmarks.topic_filling import fill
from benchmarks.values import SMALL, SMALL_SCHEMA
from tests.peers import ROOT, BarnabasServer, KafkaServer, spark_connector_jars

RECORDS = 3_000_000
TOPIC = "clicks"
STREAM, BATCH = "stream", "batch"
MODES = {STREAM: "available-now", BATCH: "batch"}
WATERMARK, WINDOW = "10 minutes", "1 hour"
SHUFFLE = {"spark.sql.shuffle.partitions": str(os.cpu_count() or 1)}
GOAL = 1 / 1.1
TIMEOUT_S = 1800
PIPELINE = """
name: benchmark-${JOB}
cluster: {bootstrap_servers: "%(address)s"}
mode: %(mode)s
spark: %(shuffle)s
sources:
  - name: clicks
    topics: ["%(topic)s"]
    schema: "%(schema)s"
    watermark: {column: at, delay: "%(watermark)s"}
transforms:
  - name: counts
    from: clicks
    window: {column: at, size: "%(window)s", group_by: [user], aggregate: {clicks: count(*)}}
sinks:
  - {name: counts, kind: topic, from: counts, topic: "counts-${JOB}", key: user, create: true}
"""


def pipeline(address: str, way: str) -> str:
    """With ${JOB} for a name."""
    given = {"address": address, "mode": MODES[way], "shuffle": json.dumps(SHUFFLE), "topic": TOPIC}
    return PIPELINE % {**given, "schema": SMALL_SCHEMA, "watermark": WATERMARK, "window": WINDOW}


def count_by_hand(address: str, way: str, place: str, jobs: int = 1) -> dict[str, float]:
    """What a data engineer would write instead, several times in one session: the seconds of each job."""
    spark = by_hand.session(spark_connector_jars())
    for name, value in SHUFFLE.items():
        spark.conf.set(name, value)
    seconds = {}
    for number in range(jobs):
        began = time.perf_counter()
        if way == STREAM:
            reader: Any = spark.readStream
        else:
            reader = spark.read.option("endingOffsets", "latest")
        options = {
            "kafka.bootstrap.servers": address,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "kafka.max.poll.records": "10000",
            "kafka.max.partition.fetch.bytes": str(8 << 20),
        }
        records = reader.format("kafka").options(**options).load()
        counts = _counts(records.select(f.from_json(f.col("value").cast("string"), SMALL_SCHEMA).alias("row")))
        into = {"kafka.bootstrap.servers": address, "topic": f"counts-{Path(place).name}-{number}"}
        if way == STREAM:
            writer = counts.writeStream.format("kafka").options(**into).outputMode("append")
            writer = writer.option("checkpointLocation", f"{place}/checkpoint-{number}").trigger(availableNow=True)
            writer.start().awaitTermination()
        else:
            counts.write.format("kafka").options(**into).save()
        seconds[f"job {number}"] = time.perf_counter() - began
    spark.stop()
    return seconds


def _counts(parsed: DataFrame) -> DataFrame:
    """Key and value of the records to be written."""
    timed = parsed.select("row.*").withWatermark("at", WATERMARK)
    grouped = timed.groupBy(f.window("at", WINDOW).alias("window"), "user").agg(f.count("*").alias("clicks"))
    row = f.struct("window.start", "window.end", "user", "clicks")
    return grouped.select(f.col("user").alias("key"), f.to_json(row).alias("value"))


class Bench:
    def __init__(self, ours: str, kafka: str, scratch: Path) -> None:
        self._addresses = {"ours": ours, "kafka": kafka}
        self._scratch = scratch
        self._runs = 0

    def fill(self, records: int) -> None:
        fill([*self._addresses.values()], TOPIC, SMALL, records, PARTITIONS)

    def by_pipeline(self, way: str) -> dict[str, float]:
        text = pipeline(self._addresses["ours"], way)
        place = self._place()
        file = place / "pipeline.yaml"
        file.write_text(text.replace("${JOB}", place.name))
        command = _run("barnabas.cli", "pipeline", "run", str(file))
        arguments = json.dumps({"text": text, "place": str(self._place()), "jobs": 2})
        return _named(way, command, _run("benchmarks.by_pipeline", arguments))

    def by_hand(self, way: str) -> dict[str, float]:
        """With the broker on which it is faster."""
        best: dict[str, float] = {}
        for address in self._addresses.values():
            command = self._run_by_hand(address, way, jobs=1)
            found = _named(way, command, self._run_by_hand(address, way, jobs=2))
            best = {name: min(seconds, best.get(name, seconds)) for name, seconds in found.items()}
        return best

    def _run_by_hand(self, address: str, way: str, jobs: int) -> Measured:
        arguments = {"address": address, "way": way, "place": str(self._place()), "jobs": jobs}
        return _run("benchmarks.windows", "--by-hand", json.dumps(arguments))

    def _place(self) -> Path:
        for old in self._scratch.glob("run-*"):
            shutil.rmtree(old)
        self._runs += 1
        place = self._scratch / f"run-{self._runs}"
        place.mkdir()
        return place


def _named(way: str, command: Measured, session: Measured) -> dict[str, float]:
    jobs = json.loads(session.lines[-1])
    return {f"{way}-command": command.seconds, f"{way}-cold": jobs["job 0"], f"{way}-warm": jobs["job 1"]}


def _run(module: str, *arguments: str) -> Measured:
    return process_tree.run([sys.executable, "-m", module, *arguments], TIMEOUT_S)


def figures() -> Iterator[Figure]:
    for way in MODES:
        for name, title in (("command", "whole command"), ("cold", "job, cold"), ("warm", "job, warm")):
            yield Figure(f"{way}-{name}", f"windowed counts, {way}: {title}", "s", False, GOAL)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.windows", description="windowed counts to a topic")
    parser.add_argument("--rounds", type=int, default=5, help="how often all are measured (default: 5)")
    parser.add_argument("--quick", action="store_true", help="little work, one round: to see that all runs")
    parser.add_argument("--by-hand", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.by_hand:
        print(json.dumps(count_by_hand(**options.by_hand)))
        return
    machine, rounds = report.machine(), list[Round]()
    scratch = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    try:
        with BarnabasServer(scratch / "broker") as ours, KafkaServer(scratch / "kafka") as kafka:
            bench = Bench(ours.address, kafka.address, scratch)
            _run(class_recorder.__name__)  # the first command of a machine would do it beside what is measured
            bench.fill(60_000 if options.quick else RECORDS)
            for number in range(1 if options.quick else options.rounds):
                print(f"windows, round {number + 1}", file=sys.stderr)
                measured: dict[str, dict[str, float]] = {BARNABAS: {}, BY_HAND: {}}
                sides = [(BARNABAS, bench.by_pipeline), (BY_HAND, bench.by_hand)]
                for side, run in sides[:: -1 if number % 2 else 1]:
                    for way in MODES:
                        measured[side].update(run(way))
                print(json.dumps(measured), file=sys.stderr)
                rounds.append(measured)
    finally:
        shutil.rmtree(scratch)
    shown, work = list(figures()), "quick" if options.quick else "full"
    title = "Windowed counts to a topic: a pipeline, and hand-written Spark"
    report.show(shown, rounds, machine, work, title=title, peer=BY_HAND)
    saved = report.save("windows", shown, rounds, machine, work, ROOT / ".benchmarks", peer=BY_HAND)
    print(f"written to {saved}")


if __name__ == "__main__":
    main()
