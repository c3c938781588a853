"""Spark's own Kafka connector beside our source, on our broker and on Apache Kafka: the same rows in every column."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.sync import Admin, Consumer, Producer
from tests.peers import Broker, spark_connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SOURCES = ("barnabas", "kafka")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
ORDER = ("partition", "offset")


@pytest.fixture
def either_broker(request: pytest.FixtureRequest) -> Broker:
    names = {"our broker": "spark_broker", "apache kafka": "apache_kafka"}
    broker: Broker = request.getfixturevalue(names[request.param])
    return broker


def pairs(second: str, *every_day: tuple[str, Any], in_proof: tuple[tuple[str, Any], ...]) -> pytest.MarkDecorator:
    """A test for pairs of a broker and something more, of which some are left to `make proof`."""
    chosen = [*every_day, *(pytest.param(*pair, marks=pytest.mark.proof) for pair in in_proof)]
    return pytest.mark.parametrize(("either_broker", second), chosen, indirect=["either_broker"])


@pytest.fixture(autouse=True)
def connector() -> None:
    spark_connector_jars()


def read(spark: SparkSession, source: str, broker: Broker, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", broker.address).option("subscribe", topic)
    return reader.options(**options).load()


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.orderBy(*ORDER).collect()]


def make_topic(broker: Broker, topic: str, **configs: str) -> str:
    """A topic that keeps records of long ago."""
    with Admin(broker.address) as admin:
        admin.topics.create(topic, partitions=PARTITIONS, configs={"retention.ms": "-1", **configs})
    return topic


def run_to_its_end(writer: DataStreamWriter) -> None:
    """Run a stream of what is available now."""
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(300)
    finally:
        query.stop()


def fill(broker: Broker, topic: str) -> int:
    """Records of every kind: keys, values and headers that are absent, empty or not text, in every compression."""
    written = 0
    for compression in COMPRESSIONS:
        with Producer(broker.address, compression_type=compression) as producer:
            for number in range(20):
                producer.post(
                    topic,
                    None if number % 7 == 3 else b"" if number % 7 == 5 else b"value %d \xff" % number,
                    key=None if number % 2 else b"key %d" % number,
                    headers=[("é", b"\x00"), ("absent", None), ("é", b"")][: number % 4],
                    partition=number % PARTITIONS,
                    timestamp=1_700_000_000_123 + number,
                )
                written += 1
    return written


class _ChangedMind(Exception):
    """Aborts a transaction."""


def fill_in_transactions(broker: Broker, topic: str) -> None:
    """One that is committed between two that are not, and records of no transaction."""
    with Producer(broker.address, transactional_id=f"{topic}-writer") as producer:
        for value, is_committed in ((b"lost", False), (b"kept", True), (b"lost too", False)):
            with suppress(_ChangedMind), producer.transaction():
                for partition in range(PARTITIONS):
                    producer.send(topic, value, partition=partition)
                if not is_committed:
                    raise _ChangedMind
    with Producer(broker.address) as producer:
        for partition in range(PARTITIONS):
            producer.send(topic, b"plain", partition=partition)


BY_BROKER = {"message.timestamp.type": "LogAppendTime"}


@pairs(
    "configs",
    ("our broker", BY_BROKER),
    ("apache kafka", {}),
    in_proof=(("our broker", {}), ("apache kafka", BY_BROKER)),
)
def test_both_sources_give_the_same_rows(
    spark: SparkSession, either_broker: Broker, topic_name: str, configs: dict[str, str]
) -> None:
    written = fill(either_broker, make_topic(either_broker, topic_name, **configs))
    ours, theirs = (read(spark, source, either_broker, topic_name, includeHeaders="true") for source in SOURCES)
    assert ours.schema == theirs.schema
    found = rows(ours)
    assert len(found) == written
    assert found == rows(theirs)


@pairs(
    "isolation",
    ("our broker", "read_committed"),
    ("apache kafka", "read_committed"),
    in_proof=(("our broker", "read_uncommitted"), ("apache kafka", "read_uncommitted")),
)
def test_both_sources_see_the_same_of_transactions(
    spark: SparkSession, either_broker: Broker, topic_name: str, isolation: str
) -> None:
    fill_in_transactions(either_broker, make_topic(either_broker, topic_name))
    options = {"kafka.isolation.level": isolation}
    ours, theirs = (rows(read(spark, source, either_broker, topic_name, **options)) for source in SOURCES)
    assert ours == theirs
    kinds = {b"kept", b"plain"} if isolation == "read_committed" else {b"lost", b"kept", b"lost too", b"plain"}
    assert {row[1] for row in ours} == kinds


RANGES: dict[str, Callable[[str], dict[str, str]]] = {
    "offsets": lambda topic: {
        "startingOffsets": f'{{"{topic}": {{"0": 3, "1": -2, "2": 5}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 7, "1": -1, "2": 9}}}}',
    },
    "times": lambda topic: {"startingTimestamp": "1700000000130", "endingTimestamp": "1700000000135"},
    "times by partition": lambda topic: {
        "startingOffsetsByTimestamp": f'{{"{topic}": {{"0": 1700000000125, "1": 1700000000135, "2": 0}}}}',
        "endingOffsetsByTimestamp": f'{{"{topic}": {{"0": 1700000000138, "1": 1700000000140, "2": 1700000000126}}}}',
    },
    "more tasks than partitions": lambda topic: {"minPartitions": "7"},
}


@pytest.mark.parametrize("options", RANGES.values(), ids=RANGES)
def test_both_sources_cut_the_same_ranges(
    spark: SparkSession, spark_broker: Broker, topic_name: str, options: Callable[[str], dict[str, str]]
) -> None:
    fill(spark_broker, make_topic(spark_broker, topic_name))
    ours, theirs = (read(spark, source, spark_broker, topic_name, **options(topic_name)) for source in SOURCES)
    assert rows(ours) == rows(theirs)
    assert ours.rdd.getNumPartitions() >= theirs.rdd.getNumPartitions()


def test_sparks_connector_streams_from_our_broker_and_goes_on_where_it_was(
    spark: SparkSession, spark_broker: Broker, topic_name: str, tmp_path: Path, checkpoint: str
) -> None:
    make_topic(spark_broker, topic_name)
    seen = []
    for _ in range(2):
        written = fill(spark_broker, topic_name)
        stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", spark_broker.address)
        frame = stream.option("subscribe", topic_name).option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "table"))
        run_to_its_end(writer.option("checkpointLocation", checkpoint))
        seen.append(spark.read.parquet(str(tmp_path / "table")).count())
    assert seen == [written, 2 * written]
    both = spark.read.parquet(str(tmp_path / "table")), read(spark, "barnabas", spark_broker, topic_name)
    assert rows(both[0]) == rows(both[1])


@pytest.mark.parametrize(
    ("source", "on"),
    [("kafka", "spark_broker"), ("barnabas", "spark_broker"), ("barnabas", "apache_kafka")],
    ids=["its own on our broker", "ours on our broker", "ours on apache kafka"],
)
def test_both_sources_write_the_same_records(
    spark: SparkSession, request: pytest.FixtureRequest, topic_name: str, source: str, on: str
) -> None:
    broker: Broker = request.getfixturevalue(on)
    make_topic(broker, topic_name)
    assert rows_written_by(spark, source, broker, topic_name) == expected_rows(topic_name)


def test_our_source_streams_through_apache_kafka_exactly_once(
    spark: SparkSession, apache_kafka: Broker, topic_name: str, checkpoint: str
) -> None:
    copy = make_topic(apache_kafka, f"{topic_name}-copy")
    make_topic(apache_kafka, topic_name)
    for _ in range(2):
        fill(apache_kafka, topic_name)
        stream = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", apache_kafka.address)
        frame = stream.option("subscribe", topic_name).option("startingOffsets", "earliest").load()
        writer = frame.select("key", "value", "partition").writeStream.format("barnabas")
        writer = writer.option("kafka.bootstrap.servers", apache_kafka.address).option("topic", copy)
        run_to_its_end(writer.option("transactionalIdPrefix", copy).option("checkpointLocation", checkpoint))
    committed = {"kafka.isolation.level": "read_committed"}
    frames = (read(spark, "kafka", apache_kafka, topic, **committed) for topic in (topic_name, copy))
    originals, copies = ([row[:2] for row in rows(frame.select("key", "value", *ORDER))] for frame in frames)
    assert copies == originals


def rows_written_by(spark: SparkSession, source: str, broker: Broker, topic: str) -> list[tuple[Any, ...]]:
    """Write a frame with every column that is taken, and read it with a consumer that knows no Spark."""
    frame = spark.sql(
        f"""SELECT key, value, '{topic}' AS topic, partition, IF(id % 2 = 0, NULL, array(header)) AS headers
            FROM (SELECT id, cast(id AS STRING) AS key, IF(id % 3 = 0, NULL, concat('value ', id)) AS value,
                         cast(id % {PARTITIONS} AS INT) AS partition,
                         struct('h' AS key, encode(cast(id AS STRING), 'UTF-8') AS value) AS header
                  FROM range(30))"""
    )
    writer = frame.repartition(2).write.format(source).option("kafka.bootstrap.servers", broker.address)
    writer.mode("append").save()
    found = []
    with Consumer(broker.address, topics=[topic], auto_offset_reset="earliest") as consumer:
        for record in consumer:
            found.append((record.key, record.value, record.topic, record.partition, list(record.headers)))
            if len(found) == 30:
                return sorted(found)
    raise AssertionError(f"only {len(found)} of 30 records came")


def expected_rows(topic: str) -> list[tuple[Any, ...]]:
    keys = [(number, b"%d" % number) for number in range(30)]
    return sorted(
        (
            key,
            b"value %d" % number if number % 3 else None,
            topic,
            number % PARTITIONS,
            [("h", key)] if number % 2 else [],
        )
        for number, key in keys
    )
