"""DataFrames written to topics by Spark, as librdkafka reads them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from tests.peers import ROOT, Broker
from tests.spark.written_topics import committed, consumed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "key string, value binary, headers array<struct<key: string, value: binary>>, topic string, partition int"


@pytest.fixture
def save(spark_broker: Broker) -> Callable[..., None]:
    def write(frame: DataFrame, mode: str = "append", **options: str) -> None:
        settings = {"kafka.bootstrap.servers": spark_broker.address, **options}
        frame.write.format("barnabas").mode(mode).options(**settings).save()

    return write


def facts(message: confluent_kafka.Message) -> tuple[Any, ...]:
    return message.topic(), message.partition(), message.key(), message.value(), message.headers()


def test_every_column_arrives_in_the_topic_that_each_row_names(
    spark: SparkSession, spark_broker: Broker, spark_topic: Callable[..., str], save: Callable[..., None]
) -> None:
    one, two = spark_topic(partitions=3), spark_topic(partitions=1)
    rows = [
        ("k", bytearray(b"\x00\xff"), [("h", bytearray(b"1")), ("h", bytearray(b"2"))], one, 2),
        (None, None, None, one, 1),
        ("", bytearray(b""), [], two, None),
    ]
    save(spark.createDataFrame(rows, SCHEMA).selectExpr("*", "1L AS offset"), includeHeaders="false")
    found = [
        facts(message)
        for topic, count in ((one, 2), (two, 1))
        for message in consumed(spark_broker.address, topic, count)
    ]
    assert sorted(found, key=repr) == sorted(
        [
            (one, 2, b"k", b"\x00\xff", [("h", b"1"), ("h", b"2")]),
            (one, 1, None, None, None),
            (two, 0, b"", b"", None),
        ],
        key=repr,
    )


def test_rows_of_a_key_keep_their_order_and_the_partition_of_other_clients(
    spark: SparkSession, spark_broker: Broker, spark_topic: Callable[..., str], save: Callable[..., None]
) -> None:
    topic, elsewhere = spark_topic(partitions=4), "a topic that the option overrides"
    frame = spark.range(3000, numPartitions=1).selectExpr(
        "CAST(id % 10 AS string) AS key", "CAST(id AS string) AS value", f"'{elsewhere}' AS topic"
    )
    save(frame, topic=topic, **{"kafka.compression.type": "lz4"})
    by_key: dict[bytes, list[confluent_kafka.Message]] = {}
    for message in consumed(spark_broker.address, topic, 3000):
        by_key.setdefault(message.key(), []).append(message)
    judge = confluent_kafka.Producer({"bootstrap.servers": spark_broker.address, "partitioner": "murmur2_random"})
    placed: dict[bytes, int] = {}
    for key in by_key:
        judge.produce(
            topic, b"judge", key, on_delivery=lambda _, message: placed.update({message.key(): message.partition()})
        )
    assert judge.flush(20) == 0
    for key, messages in by_key.items():
        assert [int(message.value()) for message in messages] == list(range(int(key), 3000, 10))
        assert {message.partition() for message in messages} == {placed[key]}


def test_a_write_with_an_id_is_visible_once_and_all_at_once(
    spark: SparkSession, spark_broker: Broker, spark_topic: Callable[..., str], save: Callable[..., None]
) -> None:
    topic = spark_topic(partitions=2)
    frame = spark.range(4, numPartitions=2).selectExpr("CAST(id AS string) AS value")
    exact = {"topic": topic, "transactionalIdPrefix": f"of-{topic}"}
    save(frame, **exact, writeId="monday")
    save(frame.repartition(3), **exact, writeId="monday")
    assert committed(spark_broker.address, topic, 4) == [b"0", b"1", b"2", b"3"]
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        save(frame.selectExpr("CAST(1 / IF(value = '3', 0, 1) AS string) AS value"), **exact)
    save(frame, **exact)
    assert committed(spark_broker.address, topic, 8) == sorted([b"0", b"1", b"2", b"3"] * 2)


@pytest.mark.parametrize(
    ("columns", "mode", "options", "message"),
    [
        ("id", "append", {"topic": "t"}, "there is no column 'value', but 'id'"),
        ("CAST(id AS string) AS value", "append", {}, "set the option topic"),
        ("CAST(id AS string) AS value", "overwrite", {"topic": "t"}, "a topic cannot be overwritten"),
        ("CAST(id AS string) AS value", "append", {"topik": "t"}, "no option 'topik'; did you mean 'topic'"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    spark: SparkSession, save: Callable[..., None], columns: str, mode: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        save(spark.range(1).selectExpr(columns), mode, **options)


def test_the_examples_of_the_guide_write(
    spark: SparkSession, spark_broker: Broker, spark_topic: Callable[..., str], tmp_path: Path
) -> None:
    guide = (ROOT / "docs" / "guide" / "spark.md").read_text().partition("\n## Writing\n")[2].partition("\n## ")[0]
    orders, totals = spark_topic(), spark_topic()
    found: dict[str, Any] = {
        "orders": spark.createDataFrame([("ann", 2)], "customer string, apples int"),
        "frame": spark.createDataFrame([("5",)], "value string"),
        "results": spark.readStream.text(str(tmp_path)),
    }
    for example in re.findall(r"```python\n(.*?)```", guide, re.DOTALL):
        program = example.replace("localhost:9092", spark_broker.address).replace("/data", str(tmp_path / "data"))
        exec(program.replace('"orders"', repr(orders)).replace('"totals"', repr(totals)), found)
        for query in spark.streams.active:
            query.stop()
    assert committed(spark_broker.address, orders, 1) == [b'{"customer":"ann","apples":2}']
    assert committed(spark_broker.address, totals, 1) == [b"5"]
