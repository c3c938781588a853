"""What tests of pipelines share: a file with its broker filled in, records for its topics, one call that runs it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.spark.pipeline.definition_file import parse_pipeline
from barnabas.spark.pipeline.job import Totals
from barnabas.spark.pipeline.progress import Progress
from barnabas.spark.pipeline.runner import run_pipeline
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.stopping import StopRequest
from barnabas.sync import Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


class Collected:
    """A reporter that keeps what it is told, and may ask for a stop after so many batches."""

    def __init__(self, stop: StopRequest | None = None, after: int = 1) -> None:
        self.told: list[Progress] = []
        self._stop = stop
        self._after = after

    def report(self, progress: Progress) -> None:
        self.told.append(progress)
        if self._stop is not None and len(self.told) >= self._after:
            self._stop.set()


@dataclass(frozen=True)
class Bench:
    """One pipeline's surroundings: Spark, a broker, a directory of its own."""

    spark: SparkSession
    address: str
    place: Path

    def run(
        self,
        text: str,
        reporter: Collected | None = None,
        stop: StopRequest | None = None,
        functions_in: Path = HERE,
        **variables: object,
    ) -> Totals:
        environment = {"BARNABAS_BOOTSTRAP_SERVER": self.address, "PIPELINE_DATA": str(self.place)}
        environment |= {name: str(value) for name, value in variables.items()}
        pipeline = parse_pipeline(text, "pipeline.yaml", environment)
        state = State(self.place / "state" / pipeline.name)
        return run_pipeline(
            pipeline, self.spark, state, functions_in=functions_in, reporter=reporter or Collected(), stop=stop
        )

    def send(self, topic: str, values: Iterable[Any], key: bytes | None = None) -> None:
        """Bytes as they are, other values as JSON."""
        with Producer(self.address) as producer:
            for value in values:
                producer.post(topic, value if isinstance(value, bytes) else json.dumps(value).encode(), key=key)

    def records(self, topic: str) -> list[Any]:
        """All that is committed in a topic, headers too, as Spark sees it."""
        options = {"kafka.bootstrap.servers": self.address, "kafka.isolation.level": "read_committed"}
        options |= {"subscribe": topic, "includeHeaders": "true"}
        frame = self.spark.read.format("barnabas").options(**options).load()
        return frame.orderBy("partition", "offset").collect()

    def rows(self, file: str, query: str) -> list[tuple[Any, ...]]:
        """What is in a SQLite file."""
        with closing(sqlite3.connect(self.place / file)) as database:
            return database.execute(query).fetchall()
