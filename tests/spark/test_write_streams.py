"""Streams written to topics by Spark, through restarts and a driver that dies in the middle of a commit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.sync import Admin
from tests.peers import Broker
from tests.spark.written_topics import committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., None]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Files of lines; each is a micro-batch."""
    directory = tmp_path / "lines"
    directory.mkdir()
    return directory


@pytest.fixture
def run(spark: SparkSession, spark_broker: Broker, lines: Path, checkpoint: str) -> Run:
    """Write what is there and not written yet, and stop."""

    def write(topic: str, format: str = "barnabas", mode: str = "append", count: bool = False, **options: str) -> None:
        frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines))
        if count:
            frame = frame.groupBy("value").count().selectExpr("CONCAT(value, '=', count) AS value")
        settings = {"kafka.bootstrap.servers": spark_broker.address, "topic": topic, "checkpointLocation": checkpoint}
        query = (
            frame.writeStream.format(format).outputMode(mode).options(**settings, **options).trigger(availableNow=True)
        ).start()
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()

    return write


def test_a_stream_is_written_on_from_where_it_stopped(
    spark_broker: Broker, spark_topic: Callable[..., str], lines: Path, run: Run
) -> None:
    topic = spark_topic(partitions=2)
    (lines / "1").write_text("a\nb\n")
    run(topic)
    (lines / "2").write_text("c\n")
    run(topic)
    assert committed(spark_broker.address, topic, 3) == [b"a", b"b", b"c"]


def test_complete_results_are_appended_batch_by_batch(
    spark_broker: Broker, spark_topic: Callable[..., str], lines: Path, run: Run
) -> None:
    topic = spark_topic()
    (lines / "1").write_text("a\na\n")
    run(topic, mode="complete", count=True, transactionalIdPrefix=f"of-{topic}")
    assert committed(spark_broker.address, topic, 1) == [b"a=2"]


def test_a_driver_that_dies_inside_a_commit_has_its_batch_finished_and_not_written_again(
    spark: SparkSession, spark_broker: Broker, spark_topic: Callable[..., str], lines: Path, run: Run, tmp_path: Path
) -> None:
    topic = spark_topic(partitions=2)
    exact = {"transactionalIdPrefix": f"of-{topic}"}
    spark.dataSource.register(dying_source(str(tmp_path / "died")))
    (lines / "1").write_text("a\n")
    run(topic, **exact)
    (lines / "2").write_text("b\nc\n")
    with pytest.raises(Exception, match="Writing job failed"):
        run(topic, format="barnabas-dying", **exact)
    assert committed(spark_broker.address, topic, 1) == [b"a"]
    (lines / "3").write_text("d\n")
    run(topic, **exact)
    assert committed(spark_broker.address, topic, 4) == [b"a", b"b", b"c", b"d"]


def test_a_decided_batch_that_nobody_finished_in_time_stops_the_query_and_is_named(
    spark: SparkSession, spark_broker: Broker, spark_topic: Callable[..., str], lines: Path, run: Run, tmp_path: Path
) -> None:
    topic = spark_topic()
    exact = {"transactionalIdPrefix": f"of-{topic}"}
    spark.dataSource.register(dying_source(str(tmp_path / "died")))
    (lines / "1").write_text("a\n")
    with pytest.raises(Exception, match="Writing job failed"):
        run(topic, format="barnabas-dying", **exact)
    with Admin(spark_broker.address) as admin:
        admin.transactions.fence(f"of-{topic}-0-0-0-0")  # as its time-out does
    with pytest.raises(Exception, match=f"batch 0 of query .* was decided, but transaction 'of-{topic}-0-0-0-0'"):
        run(topic, **exact)
    assert committed(spark_broker.address, topic, 0) == []


def dying_source(mark: str) -> type[Any]:
    """The sink, but for a driver that dies between the decision and the first end; Spark's abort never comes to it."""
    from barnabas.spark.source import BarnabasSource

    class DyingSource(BarnabasSource):
        @classmethod
        def name(cls) -> str:
            return "barnabas-dying"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            from barnabas.client.admin.transactions import Transactions
            from barnabas.spark.stream_writer import ExactStreamWriter
            from barnabas.spark.write_options import parse_stream_write_options

            if Path(mark).exists():
                raise RuntimeError("the driver is dead")

            class DyingWriter(ExactStreamWriter):
                def commit(self, messages: Any, batchId: int) -> None:
                    async def dies(*_: Any, **__: Any) -> None:
                        os.mkdir(mark)
                        raise RuntimeError("the driver died")

                    real = Transactions.end_many
                    Transactions.end_many = dies  # type: ignore[method-assign]
                    try:
                        super().commit(messages, batchId)
                    finally:
                        Transactions.end_many = real  # type: ignore[method-assign]

            return DyingWriter(parse_stream_write_options(self.options))

    return DyingSource
