"""The sink `topic` in Spark: records once, with the offsets that they come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.sinks import Batch, SinkContext, sink_kind
from barnabas.spark.pipeline.topic_sink import TopicSettings, TopicSink, ValueFormat
from tests.peers import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def open_sink(spark: SparkSession, spark_broker: Broker, topic_name: str) -> Callable[..., TopicSink]:
    """A sink that is ready for a topic of the test's own name."""
    cluster = {"kafka.bootstrap.servers": spark_broker.address, "kafka.fetch.max.bytes": "1000000", "subscribe": "any"}

    def prepared(**settings: Any) -> TopicSink:
        sink = TopicSink(TopicSettings(**{"topic": topic_name, **settings}), SinkContext(topic_name, "out", cluster))
        sink.prepare(spark)
        return sink

    return prepared


def by_offsets(number: int, start: int, end: int) -> Batch:
    return Batch(number, "query", {("orders", 0): start}, {("orders", 0): end})


def committed(read_topic: Callable[..., DataFrame], topic: str) -> list[tuple[Any, Any]]:
    rows = read_topic(topic, columns="key,value", **{"kafka.isolation.level": "read_committed"}).collect()
    return sorted((row["key"], row["value"]) for row in rows)


def test_a_pipeline_finds_the_kind_by_its_name() -> None:
    kind = sink_kind("topic")
    assert (kind.settings, kind.open) == (TopicSettings, TopicSink)


def test_rows_become_records_once_and_the_offsets_go_with_them(
    spark: SparkSession,
    open_sink: Callable[..., TopicSink],
    read_topic: Callable[..., DataFrame],
    topic_name: str,
) -> None:
    sink = open_sink(create=True, partitions=2, key="id")
    assert sink.done_offsets() is None
    rows = spark.range(0, 5, numPartitions=2).selectExpr("id", "nullif(id, 3) AS size", "id AS _offset")
    assert sink.write(rows, by_offsets(0, 0, 5)).rows == 5
    assert sink.write(rows, by_offsets(0, 0, 5)).rows == 0
    again = open_sink(key="id")
    assert again.done_offsets() == {("orders", 0): 5}
    assert again.write(rows.where("id < 0"), Batch(1, "query", {("orders", 1): 0}, {("orders", 1): 7})).rows == 0
    assert again.done_offsets() == {("orders", 0): 5, ("orders", 1): 7}
    with pytest.raises(SinkError, match="another run has moved on"):
        again.write(rows, by_offsets(2, 3, 8))
    expected = [{"id": number, "size": None if number == 3 else number} for number in range(5)]
    found = [(key, json.loads(value)) for key, value in committed(read_topic, topic_name)]
    assert found == [(str(row["id"]).encode(), row) for row in expected]


def test_rows_that_are_records_already_are_sent_as_they_are(
    spark: SparkSession, open_sink: Callable[..., TopicSink], read_topic: Callable[..., DataFrame], topic_name: str
) -> None:
    sink = open_sink(create=True, format=ValueFormat.COLUMNS)
    rows = spark.sql("SELECT 'k' AS key, X'00FF' AS value")
    assert [sink.write(rows, Batch(number, "stateful", {}, {})).rows for number in (0, 0, 1)] == [1, 0, 1]
    assert sink.done_offsets() is None
    assert committed(read_topic, topic_name) == [(b"k", b"\0\xff")] * 2


def test_a_topic_that_is_not_there_is_an_error_unless_it_may_be_made(
    open_sink: Callable[..., TopicSink], topic_name: str
) -> None:
    with pytest.raises(SinkError, match=rf"topic '{topic_name}' is not in the cluster: create it, or say"):
        open_sink()


def test_a_key_that_the_rows_lack_is_told(spark: SparkSession, open_sink: Callable[..., TopicSink]) -> None:
    with pytest.raises(SinkError, match=r"no column 'customer', which is to be the key \(there are: id\)"):
        open_sink(create=True, key="customer").write(spark.range(1), by_offsets(0, 0, 1))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"format": ValueFormat.COLUMNS, "key": "id"}, "the rows' own column `key`"),
        ({"partitions": 0}, "at least one"),
        ({"options": {"kafka.linger": "5"}}, "kafka.linger"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        TopicSettings(topic="t", **settings)
