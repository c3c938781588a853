"""A job as users write it, for a Python of its own: it reads, writes and streams a topic, and runs a pipeline.

It takes the address of a broker, a topic, a directory of its own, Spark's settings as JSON and the steps to take, and
prints as JSON how many rows each step has found.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import barnabas.spark  # noqa: F401  # before the session: its workers are to run in this environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIPELINE = """
name: smoke
cluster: {{bootstrap_servers: "{address}"}}
mode: available-now
sources:
  - {{name: orders, topics: ["{topic}"], format: text}}
sinks:
  - {{name: table, kind: database, from: orders, url: "{place}/smoke.db", table: orders, create: true}}
"""


class Smoke:
    def __init__(self, spark: SparkSession, address: str, topic: str, place: Path) -> None:
        self._spark, self._address, self._topic, self._place = spark, address, topic, place
        self._server = {"kafka.bootstrap.servers": address}

    def _read(self, topic: str) -> DataFrame:
        return self._spark.read.format("barnabas").options(**self._server, subscribe=topic).load()

    def read(self) -> int:
        return self._read(self._topic).count()

    def write(self) -> int:
        written = f"{self._topic}-written"
        self._read(self._topic).select("value").write.format("barnabas").mode("append").options(
            **self._server, topic=written
        ).save()
        return self._read(written).count()

    def stream(self) -> int:
        stream = self._spark.readStream.format("barnabas").options(**self._server, subscribe=self._topic)
        rows = stream.option("startingOffsets", "earliest").load().select("value")
        copy = f"{self._topic}-streamed"
        writer = rows.writeStream.format("barnabas").options(**self._server, topic=copy, transactionalIdPrefix=copy)
        query = writer.option("checkpointLocation", str(self._place / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return self._read(copy).count()

    def pipeline(self) -> int:
        from barnabas.spark.pipeline.definition_file import parse_pipeline
        from barnabas.spark.pipeline.runner import run_pipeline
        from barnabas.spark.pipeline.state import State

        text = PIPELINE.format(address=self._address, topic=self._topic, place=self._place)
        pipeline = parse_pipeline(text, "smoke.yaml", {})
        run_pipeline(pipeline, self._spark, State(self._place / "state"), functions_in=self._place)
        with closing(sqlite3.connect(self._place / "smoke.db")) as database:
            (count,) = database.execute("SELECT count(*) FROM orders").fetchone()
        return int(count)


def main(address: str, topic: str, place: str, settings: str, *steps: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,4]")
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        smoke = Smoke(spark, address, topic, Path(place))
        found = {step: getattr(smoke, step)() for step in steps}
    finally:
        spark.stop()
    print(json.dumps({"pyspark": version("pyspark"), "pandas": version("pandas"), "rows": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
