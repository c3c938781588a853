"""The same lake on HDFS: a second run; in `make proof` a data node that goes away, a directory full or closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark.lake.errors import LakeError, ManifestMoved
from barnabas.spark.lake.load import load_topics
from barnabas.spark.lake.reading import read_lake
from barnabas.spark.lake.sink import LakeSettings, LakeSink
from barnabas.spark.lake.tasks import Task
from barnabas.spark.pipeline.sinks import Written
from barnabas.sync import Producer
from tests.peers import Broker
from tests.spark.hdfs import HdfsServer
from tests.spark.lake_topic import BEGIN_MS, STEP_MS, Topic, every_offset, offsets_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


@pytest.mark.proof
def test_a_load_of_a_topic_goes_on_where_it_was_when_a_data_node_is_restarted_in_the_middle(
    spark: SparkSession,
    spark_topic: Callable[..., str],
    spark_producer: Producer,
    spark_broker: Broker,
    hdfs: HdfsServer,
) -> None:
    topic = spark_topic(partitions=2)
    for partition, offset in every_offset(RECORDS):
        value, time = b"%d of %d" % (offset, partition), BEGIN_MS + offset * STEP_MS
        spark_producer.post(topic, value, partition=partition, timestamp=time)
    spark_producer.flush()
    path = f"{hdfs.url}/lake"
    options = {"kafka.bootstrap.servers": spark_broker.address, "subscribe": topic}
    sink = LakeSink("lake", LakeSettings(path), options)
    restarts: list[Task] = []

    def restart_once(task: Task, written: Written) -> None:
        if not restarts:
            restarts.append(task)
            hdfs.restart_data_node()

    def rows_of(frame: DataFrame) -> Counter[tuple[int, int, bytes]]:
        return Counter((row._partition, row._offset, bytes(row.value)) for row in frame.collect())

    while True:
        try:
            load_topics(spark, sink, max_records=6, on_done=restart_once)
        except LakeError:  # a task that found no data node; the next run does only what is missing
            continue
        break
    assert len(restarts) == 1
    expected = Counter(
        (partition, offset, b"%d of %d" % (offset, partition)) for partition, offset in every_offset(RECORDS)
    )
    assert rows_of(spark.read.parquet(path)) == expected
    assert rows_of(read_lake(spark, path)) == expected
    assert sorted(sink.lake.state().files) == [
        f"date=2023-11-14/hour={hour}/{topic}-{partition}-{start:020}-{start + 6:020}.snappy.parquet"
        for hour, start in ((22, 0), (23, 6))
        for partition in (0, 1)
    ]
    assert all(row["ok"] for row in sink.audit(spark))
    done = sink.compact(spark)
    assert [(row["files_before"], row["files_after"], row["rows"]) for row in done] == [(2, 1, 12), (2, 1, 12)]
    assert rows_of(spark.read.parquet(path)) == expected


def test_a_run_on_another_machine_takes_the_lake_and_the_commit_of_the_first_is_refused(
    spark: SparkSession, hdfs: HdfsServer
) -> None:
    path = f"{hdfs.url}/shared"
    topic = Topic(spark)
    first, second = new_sink(topic, path), new_sink(topic, path)
    first.prepare(spark)
    first.write(topic.rows(0, 1), topic.batch(0, 1))
    second.prepare(spark)
    with pytest.raises(ManifestMoved, match=r"another run has opened hdfs://.*/shared since this one did"):
        first.write(topic.rows(1, 2), topic.batch(1, 2))
    second.write(topic.rows(1, 3), topic.batch(1, 3))
    assert offsets_in(spark.read.parquet(path)) == every_offset(3)

    # What the refusal stands on when both commit at the same moment: no rename takes the place of a file.
    jvm: Any = spark._jvm
    manifest = jvm.org.apache.hadoop.fs.Path(f"{path}/_manifest")
    context: Any = spark.sparkContext
    fs = manifest.getFileSystem(context._jsc.hadoopConfiguration())
    one, other, *_ = [status.getPath() for status in fs.listStatus(manifest)]
    assert not fs.rename(one, other)
    assert fs.exists(one)


@pytest.mark.proof
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
    assert sink.write(topic.rows(3, 6), topic.batch(3, 6)).rows == 6
    assert offsets_in(spark.read.parquet(path)) == every_offset(6)
