"""Streaming queries on a topic: each record once, across restarts, with a lag that every Kafka tool shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import confluent_kafka.admin
import pytest

from barnabas.client.metadata import TopicPartition
from barnabas.sync import Admin, Producer
from tests.peers import ROOT, Broker, eventually, kafka_tool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

NewTopic = Callable[..., str]
TIMEOUT_S = 300


class Run:
    """Queries on one checkpoint that write their rows to one directory."""

    def __init__(self, spark: SparkSession, address: str, directory: Path, source: str = "barnabas") -> None:
        self._spark = spark
        self._address = address
        self._directory = directory
        self.source = source

    def frame(self, **options: str) -> DataFrame:
        reader = self._spark.readStream.format(self.source).option("kafka.bootstrap.servers", self._address)
        return reader.options(**{"startingOffsets": "earliest", **options}).load()

    def writer(self, **options: str) -> DataStreamWriter:
        rows = self.frame(**options).selectExpr("topic", "partition", "offset", "cast(value as string) as value")
        return (
            rows.writeStream.format("json")
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .option("path", str(self._directory / "rows"))
        )

    def until_done(self, **options: str) -> StreamingQuery:
        """All that is there now, and then the query is over."""
        query = self.writer(**options).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(TIMEOUT_S)
        finally:
            query.stop()
        return query

    def offsets(self) -> list[tuple[int, int]]:
        """What was written, by partition and offset; a record that was written twice is there twice."""
        rows = self._spark.read.schema("partition int, offset long").json(str(self._directory / "rows")).collect()
        return sorted((row.partition, row.offset) for row in rows)


@pytest.fixture
def run(spark: SparkSession, spark_broker: Broker, tmp_path: Path) -> Run:
    return Run(spark, spark_broker.address, tmp_path)


def send(producer: Producer, topic: str, count: int, partition: int = 0) -> None:
    for number in range(count):
        producer.post(topic, b"%d" % number, partition=partition)
    producer.flush()


def lag(broker: Broker, group: str, topic: str, partitions: int) -> int:
    """What confluent-kafka's admin says; below 0 while the group has not committed for all partitions."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    wanted = [confluent_kafka.TopicPartition(topic, index) for index in range(partitions)]
    asked = [confluent_kafka.ConsumerGroupTopicPartitions(group, wanted)]
    committed = admin.list_consumer_group_offsets(asked)[group].result(TIMEOUT_S).topic_partitions
    ends = admin.list_offsets({each: confluent_kafka.admin.OffsetSpec.latest() for each in wanted})
    if any(each.offset < 0 for each in committed):
        return -1
    return sum(int(ends[each].result(TIMEOUT_S).offset) for each in wanted) - sum(
        int(each.offset) for each in committed
    )


def test_a_stream_reads_each_record_once_and_its_lag_reaches_zero_on_a_quiet_topic(
    run: Run, spark_topic: NewTopic, spark_producer: Producer, spark_broker: Broker
) -> None:
    topic = spark_topic(partitions=2)
    send(spark_producer, topic, 5)
    query = run.writer(subscribe=topic, **{"kafka.group.id": f"{topic}-group"}).start()
    try:
        eventually(lambda: lag(spark_broker, f"{topic}-group", topic, 2), 0, timeout=TIMEOUT_S)
        send(spark_producer, topic, 5, partition=1)
        with Admin(spark_broker.address) as admin:
            admin.partitions.create(topic, 3)
        with Producer(spark_broker.address) as producer:
            send(producer, topic, 4, partition=2)
        eventually(lambda: lag(spark_broker, f"{topic}-group", topic, 3), 0, timeout=TIMEOUT_S)
    finally:
        query.stop()
    assert run.offsets() == [*((0, n) for n in range(5)), *((1, n) for n in range(5)), *((2, n) for n in range(4))]


def test_available_now_ends_in_batches_of_the_limit_with_a_lag_of_zero_and_the_next_run_goes_on(
    run: Run, spark_topic: NewTopic, spark_producer: Producer, spark_broker: Broker
) -> None:
    topic = spark_topic()
    group = {"kafka.group.id": f"{topic}-group"}
    send(spark_producer, topic, 10)
    columns = "offset,topic,value,partition"
    query = run.until_done(subscribe=topic, maxOffsetsPerTrigger="4", columns=columns, **group)
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [4, 4, 2]
    assert lag(spark_broker, f"{topic}-group", topic, 1) == 0

    send(spark_producer, topic, 3)
    assert lag(spark_broker, f"{topic}-group", topic, 1) == 3
    query = run.until_done(subscribe=topic, **group)
    assert query.lastProgress is not None
    assert json.loads(query.lastProgress.json)["sources"][0]["endOffset"][topic] == {"0": 13}
    assert run.offsets() == [(0, number) for number in range(13)]
    told = kafka_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", spark_broker.address, "--describe", "--group", f"{topic}-group"),
    )
    [line] = [line.split() for line in told.splitlines() if topic in line.split()[1:2]]
    assert line[:6] == [f"{topic}-group", topic, "0", "13", "13", "0"], told


def test_lost_records_stop_a_query_with_an_error_that_names_them(
    run: Run, spark_topic: NewTopic, spark_producer: Producer, spark_broker: Broker
) -> None:
    from pyspark.errors import StreamingQueryException

    topic = spark_topic()
    send(spark_producer, topic, 10)
    with Admin(spark_broker.address) as admin:
        admin.records.delete({TopicPartition(topic, 0): 8})
    reading = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 5}}}}'}

    with pytest.raises(StreamingQueryException, match=f"{topic}-0: offsets 5 to 7 were removed before they were read"):
        run.until_done(**reading)
    run.until_done(failOnDataLoss="false", **reading)
    assert run.offsets() == [(0, 8), (0, 9)]


def test_a_stream_can_go_on_from_a_checkpoint_of_sparks_own_source(
    run: Run, spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic(partitions=2)
    send(spark_producer, topic, 5)
    run.source = "kafka"
    run.until_done(subscribe=topic)

    send(spark_producer, topic, 3, partition=1)
    run.source = "barnabas"
    run.until_done(subscribe=topic)
    assert run.offsets() == [*((0, n) for n in range(5)), *((1, n) for n in range(3))]


def test_the_guides_example_of_a_stream_runs(
    spark: SparkSession, spark_topic: NewTopic, spark_producer: Producer, spark_broker: Broker, tmp_path: Path
) -> None:
    guide = (ROOT / "docs" / "guide" / "spark.md").read_text().partition("\n## Streams\n")[2].partition("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    topic = spark_topic()
    send(spark_producer, topic, 3)
    own = {"localhost:9092": spark_broker.address, '"orders"': f'"{topic}"', "orders-to-lake": topic}
    for shown, here in {**own, "/lake": str(tmp_path)}.items():
        example = example.replace(shown, here)

    exec(example, {"spark": spark})

    assert spark.read.parquet(f"{tmp_path}/orders").count() == 3
    assert lag(spark_broker, topic, topic, 1) == 0
