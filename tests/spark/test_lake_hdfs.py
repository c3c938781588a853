"""The same lake on HDFS: a data node that goes away in the middle, a directory that is full, and one that is closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.load import load_topics
from barnabas.spark.lake.reading import read_lake
from barnabas.spark.lake.sink import LakeSettings, LakeSink
from barnabas.spark.lake.tasks import Task
from tests.spark.hdfs import HdfsServer
from tests.spark.lake_topic import Topic, every_offset, offsets_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 12


@pytest.fixture(scope="module")
def hdfs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    context: Any = spark.sparkContext
    for wait in ("retry.window.base", "block.write.locateFollowingBlock.initial.delay.ms"):
        context._jsc.hadoopConfiguration().set(f"dfs.client.{wait}", "200")
    with HdfsServer(tmp_path_factory.mktemp("hdfs") / "nodes") as server:
        yield server


def new_sink(topic: Topic, path: str) -> LakeSink:
    return LakeSink("lake", LakeSettings(path), {}, topic.observe)


def test_a_load_goes_on_where_it_was_when_a_data_node_is_restarted_in_the_middle(
    spark: SparkSession, hdfs: HdfsServer
) -> None:
    topic = Topic(spark, end=RECORDS)
    sink = new_sink(topic, f"{hdfs.url}/lake")
    restarts: list[Task] = []

    def restart_once(task: Task, rows: int) -> None:
        if not restarts:
            restarts.append(task)
            hdfs.restart_data_node()

    while True:
        try:
            load_topics(spark, sink, topic.task, max_records=6, on_done=restart_once)
        except LakeError:  # a task that found no data node; the next run does only what is missing
            continue
        break
    assert len(restarts) == 1
    assert offsets_in(spark.read.parquet(f"{hdfs.url}/lake")) == every_offset(RECORDS)
    assert offsets_in(read_lake(spark, f"{hdfs.url}/lake")) == every_offset(RECORDS)
    assert sorted(sink.lake.state().files) == [
        f"date=2023-11-14/hour={hour}/clicks-{partition}-{start:020}-{start + 6:020}.snappy.parquet"
        for hour, start in ((22, 0), (23, 6))
        for partition in (0, 1)
    ]
    done = sink.compact(spark)
    assert [(row["files_before"], row["files_after"], row["rows"]) for row in done] == [(2, 1, 12), (2, 1, 12)]
    assert offsets_in(spark.read.parquet(f"{hdfs.url}/lake")) == every_offset(RECORDS)


def test_a_directory_that_is_full_or_closed_for_writing_is_an_error_and_the_load_goes_on_later(
    spark: SparkSession, hdfs: HdfsServer
) -> None:
    path = f"{hdfs.url}/small"
    topic = Topic(spark)
    sink = new_sink(topic, path)
    sink.prepare(spark)
    sink.write(topic.rows(0, 3), topic.batch(0, 3))
    jvm: Any = spark._jvm
    where = jvm.org.apache.hadoop.fs.Path(path)
    context: Any = spark.sparkContext
    fs = where.getFileSystem(context._jsc.hadoopConfiguration())
    safe_mode = jvm.org.apache.hadoop.fs.SafeModeAction

    count = fs.getContentSummary(where)
    fs.setQuota(where, count.getFileCount() + count.getDirectoryCount(), -1)
    with pytest.raises(LakeError, match=r"cannot write hdfs://.*quota .* is exceeded"):
        sink.write(topic.rows(3, 6), topic.batch(3, 6))
    fs.setQuota(where, -1, -1)
    fs.setSafeMode(safe_mode.ENTER)
    try:
        with pytest.raises(LakeError, match=r"cannot write hdfs://.*Name node is in safe mode"):
            sink.write(topic.rows(3, 6), topic.batch(3, 6))
        assert offsets_in(spark.read.parquet(path)) == every_offset(3)
    finally:
        fs.setSafeMode(safe_mode.LEAVE)
    assert sink.write(topic.rows(3, 6), topic.batch(3, 6)) == 6
    assert offsets_in(spark.read.parquet(path)) == every_offset(6)
