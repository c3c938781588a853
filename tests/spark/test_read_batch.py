"""Batch reads through Spark: columns, ranges, schemas, filters, and what a user is told when something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from barnabas.sync import Producer
from tests.peers import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NewTopic = Callable[..., str]
ReadTopic = Callable[..., "DataFrame"]
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None)


@pytest.fixture
def filled(spark_topic: NewTopic, spark_producer: Producer) -> str:
    """Two partitions of ten records; the one at offset n has the value n and the time 1000 + n."""
    topic = spark_topic(partitions=2)
    for partition in (0, 1):
        for number in range(10):
            spark_producer.post(topic, b"%d" % number, partition=partition, timestamp=1000 + number)
    spark_producer.flush()
    return topic


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def test_a_topic_is_a_table_with_every_column(
    spark_topic: NewTopic, spark_producer: Producer, read_topic: ReadTopic
) -> None:
    topic = spark_topic()
    spark_producer.send(topic, b"one", key=b"k", timestamp=1_700_000_000_123, headers=[("h", b"x"), ("n", None)])
    spark_producer.send(topic, None, timestamp=1_700_000_000_456)
    frame = read_topic(topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [
        (b"k", b"one", topic, 0, 0, at(1_700_000_000_123), 0, [("h", b"x"), ("n", None)]),
        (None, None, topic, 0, 1, at(1_700_000_000_456), 0, None),
    ]


def test_a_range_of_offsets_is_read_and_nothing_else(filled: str, read_topic: ReadTopic) -> None:
    frame = read_topic(
        filled,
        startingOffsets=f'{{"{filled}": {{"0": 3, "1": -2}}}}',
        endingOffsets=f'{{"{filled}": {{"0": 7, "1": -1}}}}',
        minPartitions="5",
    )
    assert frame.rdd.getNumPartitions() == 5
    found = sorted((row.partition, row.offset) for row in frame.collect())
    assert found == [(0, n) for n in range(3, 7)] + [(1, n) for n in range(10)]


def test_only_the_columns_that_are_named_are_read(filled: str, read_topic: ReadTopic) -> None:
    frame = read_topic(filled, columns="offset,value").where("offset >= 8")
    assert frame.columns == ["offset", "value"]
    assert sorted(tuple(row) for row in frame.collect()) == [(8, b"8"), (8, b"8"), (9, b"9"), (9, b"9")]
    assert read_topic(filled, columns="topic").count() == 20


def test_a_schema_chooses_columns_as_well(spark: SparkSession, spark_broker: Broker, filled: str) -> None:
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", spark_broker.address)
    frame = reader.option("subscribe", filled).schema("offset LONG, partition INT").load()
    assert sorted(tuple(row) for row in frame.collect())[-1] == (9, 1)


def test_an_empty_topic_is_an_empty_table(spark_topic: NewTopic, read_topic: ReadTopic) -> None:
    frame = read_topic(spark_topic(partitions=2), includeHeaders="true")
    assert frame.collect() == []
    assert frame.count() == 0


def test_a_topic_that_is_not_there_is_told_by_name(read_topic: ReadTopic) -> None:
    with pytest.raises(AnalysisException, match="topic 'no-such-topic' does not exist"):
        read_topic("no-such-topic").collect()


def test_an_option_that_is_wrong_is_told_with_the_right_one(filled: str, read_topic: ReadTopic) -> None:
    with pytest.raises(AnalysisException, match="did you mean 'startingOffsets'"):
        read_topic(filled, startingOffset="earliest").collect()


@pytest.mark.usefixtures("pushdown")
def test_filters_cut_the_ranges_and_spark_checks_every_row(filled: str, read_topic: ReadTopic) -> None:
    frame = read_topic(filled, pushFilters="true").where(
        "partition = 1 and timestamp >= timestamp'1970-01-01 00:00:01.003' and offset < 8 and value <> '5'"
    )
    assert frame.rdd.getNumPartitions() == 1
    assert sorted(row.offset for row in frame.collect()) == [3, 4, 6, 7]
    assert read_topic(filled, pushFilters="true").where("offset > 100").collect() == []
    assert read_topic(filled).where("offset = 4").count() == 2


def test_filters_without_sparks_own_setting_are_told_of(filled: str, read_topic: ReadTopic) -> None:
    with pytest.raises(AnalysisException, match=PUSHDOWN):
        read_topic(filled, pushFilters="true").where("offset > 100").collect()
    assert read_topic(filled, pushFilters="false").where("offset > 8").count() == 2
