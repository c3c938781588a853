"""Queries with state: windows go on over runs, and a batch that comes twice counts once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.metadata import TopicPartition
from barnabas.spark.database.sink import DatabaseSink
from barnabas.spark.pipeline.errors import PipelineError, SinkError
from barnabas.spark.pipeline.failures import UnreadableRecord
from barnabas.spark.pipeline.stopping import StopRequest
from barnabas.sync import Admin
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


def test_in_one_load_windows_that_overlap_see_all_of_its_records(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic = spark_topic()
    bench.send(topic, [click(10), click(11), click(11, "/cart")])
    sliding = COUNTS.replace("size: 1 minute", "size: 2 minutes, slide: 1 minute").replace(
        "    watermark: {column: at, delay: 1 minute}\n", ""
    )
    with pytest.raises(PipelineError, match="max_records_per_batch would cut groups in two; leave it out"):
        bench.run(sliding + "max_records_per_batch: 2\n", TOPIC=topic, MODE="batch")
    assert bench.run(sliding, TOPIC=topic, MODE="batch").rows == {"table": 5}
    found = bench.rows("counts.db", "SELECT substr(window_start, 12, 5), page, views FROM counts ORDER BY 1, 2")
    assert found == [
        ("10:09", "/", 1),
        ("10:10", "/", 2),
        ("10:10", "/cart", 1),
        ("10:11", "/", 1),
        ("10:11", "/cart", 1),
    ]


JOINED = """
name: joined
cluster: {bootstrap_servers: "${BARNABAS_BOOTSTRAP_SERVER}"}
sources:
  - name: clicks
    topics: ["${CLICKS}"]
    schema: page STRING NOT NULL, at TIMESTAMP
    watermark: {column: at, delay: 1 minute}
  - name: buys
    topics: ["${BUYS}"]
    schema: page STRING NOT NULL, at TIMESTAMP
    watermark: {column: at, delay: 1 minute}
transforms:
  - name: bought
    sql: |
      SELECT clicks.page, clicks.at AS clicked, buys.at AS bought FROM clicks JOIN buys
      ON clicks.page = buys.page AND buys.at BETWEEN clicks.at AND clicks.at + INTERVAL 5 MINUTES
sinks:
  - {name: table, kind: database, from: bought, url: "${PIPELINE_DATA}/bought.db", table: bought, create: true}
"""


@pytest.mark.proof
def test_rows_of_two_streams_meet_over_runs(bench: Bench, spark_topic: Callable[..., str]) -> None:
    clicks, buys = spark_topic(), spark_topic()
    bench.send(clicks, [click(0, "/a"), click(1, "/b")])
    bench.send(buys, [click(1, "/a")])
    assert bench.run(JOINED, CLICKS=clicks, BUYS=buys).rows == {"table": 1}
    bench.send(buys, [click(2, "/b"), click(9, "/a")])
    bench.run(JOINED, CLICKS=clicks, BUYS=buys)
    found = bench.rows("bought.db", "SELECT page, substr(bought, 12, 5) FROM bought ORDER BY page")
    assert found == [("/a", "10:01"), ("/b", "10:02")]


AGAIN = """
  - name: again
    kind: database
    from: counts
    emit: changes
    url: ${PIPELINE_DATA}/again.db
    table: counts
    create: true
"""


def test_changes_are_written_as_they_come_and_a_new_query_begins_with_what_is_there(
    bench: Bench, spark_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    topic = spark_topic()
    for views in (1, 2):
        bench.send(topic, [click(0)])
        bench.run(COUNTS, TOPIC=topic, EMIT="changes")
        assert bench.rows("counts.db", ROWS) == [("/", views)]
    with Admin(bench.address) as admin:
        admin.records.delete({TopicPartition(topic, 0): 1})
    assert bench.run(COUNTS + AGAIN, TOPIC=topic, EMIT="changes").rows == {"again": 1}
    assert bench.rows("again.db", ROWS) == [("/", 1)]
    assert (
        f"sink 'again' is new, and the first records have been removed: it begins {topic}-0 at offset 1" in caplog.text
    )
    assert "sink 'table' is new" not in caplog.text


def test_a_batch_that_was_written_before_a_crash_is_not_written_again(
    bench: Bench, spark_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = spark_topic()
    appending = COUNTS.replace("    mode: upsert\n    key: [window_start, page]\n", "")
    write = DatabaseSink.write

    def write_and_die(*arguments: Any) -> None:
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
