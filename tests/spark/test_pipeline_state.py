"""Queries with state: windows go on over runs, and a batch that comes twice counts once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark.database.sink import DatabaseSink
from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.failures import UnreadableRecord
from barnabas.spark.pipeline.stopping import StopRequest
from tests.peers import Broker
from tests.spark.pipelines import Bench, Collected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = """
name: counts
cluster: {bootstrap_servers: "${BARNABAS_BOOTSTRAP_SERVER}"}
mode: ${MODE:-available-now}
trigger: 100 ms
sources:
  - name: clicks
    topics: ["${TOPIC}"]
    schema: page STRING NOT NULL, at TIMESTAMP
    watermark: {column: at, delay: 1 minute}
transforms:
  - name: counts
    from: clicks
    window: {column: at, size: 1 minute, group_by: [page], aggregate: {views: count(*)}}
sinks:
  - name: table
    kind: database
    from: counts
    emit: ${EMIT:-final}
    url: ${PIPELINE_DATA}/counts.db
    table: counts
    create: true
    mode: upsert
    key: [window_start, page]
"""
ROWS = "SELECT page, views FROM counts ORDER BY window_start, page"


@pytest.fixture
def bench(spark: SparkSession, spark_broker: Broker, tmp_path: Path) -> Bench:
    return Bench(spark, spark_broker.address, tmp_path)


def click(minute: int, page: str = "/") -> dict[str, str]:
    return {"page": page, "at": f"2026-11-16T10:{minute:02}:30Z"}


def test_a_window_that_spans_two_runs_is_written_once_when_it_is_complete(
    bench: Bench, spark_topic: Callable[..., str]
) -> None:
    topic = spark_topic()
    bench.send(topic, [click(0), click(0, "/cart"), click(0)])
    told = Collected()
    bench.run(COUNTS, told, TOPIC=topic)
    assert told.told[-1].state_rows == 2
    assert (told.told[-1].lag, told.told[-1].partitions[0].done) == (0, 3)
    bench.send(topic, [click(0), click(30)])
    bench.run(COUNTS, told, TOPIC=topic)
    assert bench.rows("counts.db", ROWS) == [("/", 3), ("/cart", 1)]
    assert told.told[-1].watermark == "2026-11-16T10:29:30.000Z"


def test_changes_are_written_as_they_come(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic = spark_topic()
    for views in (1, 2):
        bench.send(topic, [click(0)])
        bench.run(COUNTS, TOPIC=topic, EMIT="changes")
        assert bench.rows("counts.db", ROWS) == [("/", views)]


def test_a_batch_that_was_written_before_a_crash_is_not_written_again(
    bench: Bench, spark_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = spark_topic()
    appending = COUNTS.replace("    mode: upsert\n    key: [window_start, page]\n", "")
    write = DatabaseSink.write

    def write_and_die(*arguments: Any) -> int:
        write(*arguments)
        raise SinkError("the power failed")

    bench.send(topic, [click(0)])
    with monkeypatch.context() as patch:
        patch.setattr(DatabaseSink, "write", write_and_die)
        with pytest.raises(SinkError, match="the power failed"):
            bench.run(appending, TOPIC=topic, EMIT="changes")
    assert bench.rows("counts.db", ROWS) == [("/", 1)]
    bench.run(appending, TOPIC=topic, EMIT="changes")
    assert bench.rows("counts.db", ROWS) == [("/", 1)]


def test_a_stop_and_a_bad_record_end_a_query(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic = spark_topic()
    bench.send(topic, [click(0)])
    stop = StopRequest()
    bench.run(COUNTS, Collected(stop), stop, TOPIC=topic, EMIT="changes", MODE="micro-batch")
    assert bench.rows("counts.db", ROWS) == [("/", 1)]
    bench.send(topic, [b"torn"])
    with pytest.raises(UnreadableRecord, match=f"record 1 of {topic}-0 cannot be read: JSONDecodeError"):
        bench.run(COUNTS, TOPIC=topic, EMIT="changes")
