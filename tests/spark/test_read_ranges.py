"""What a batch read plans, and what its tasks fetch, on a broker and without Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, InputPartition

from barnabas.client.metadata import TopicPartition
from barnabas.client.options import WrongOption
from barnabas.core.errors import KafkaError
from barnabas.spark.cluster import run
from barnabas.spark.data_loss import DataLost
from barnabas.spark.fetching import read_range
from barnabas.spark.options import ReadOptions, parse_batch_options
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.reader import BatchReader, plan_read
from barnabas.sync import Admin, Producer
from tests.peers import BarnabasServer, Broker

NewTopic = Callable[..., str]


@pytest.fixture
def parse(spark_broker: Broker) -> Callable[..., ReadOptions]:
    def parse(**options: str) -> ReadOptions:
        named = {name.lower().replace("__", "."): value for name, value in options.items()}
        return parse_batch_options({"kafka.bootstrap.servers": spark_broker.address, **named})

    return parse


def fill(producer: Producer, topic: str, partitions: int, count: int = 10, **options: Any) -> None:
    """The record at offset n of each partition has the value n and the time 1000 + n."""
    for partition in range(partitions):
        for number in range(count):
            producer.post(topic, b"%d" % number, partition=partition, timestamp=1000 + number, **options)
    producer.flush()


def plan(options: ReadOptions, *filters: Filter) -> list[tuple[str, int, int, int]]:
    ranges = run(plan_read(options, filters)).ranges
    return [(each.topic, each.partition, each.start, each.end) for each in ranges]


def offsets(options: ReadOptions, wanted: OffsetRange) -> list[int]:
    return [offset for batch in read_range(options, ("offset",), wanted) for offset in batch["offset"].to_pylist()]


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    with Admin(broker.address) as admin:
        admin.records.delete({TopicPartition(topic, 0): offset})


def test_everything_that_is_there_is_planned(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    first, second, third = spark_topic(2), spark_topic(1), spark_topic(1)
    fill(spark_producer, first, 2)
    fill(spark_producer, second, 1, 3)
    both = [(first, 0, 0, 10), (first, 1, 0, 10), (second, 0, 0, 3)]
    assert plan(parse(subscribe=f"{second},{first},{third}")) == both
    assert plan(parse(subscribePattern=first[:-1] + ".")) == both
    assert plan(parse(subscribePattern=first[:-1])) == []
    assert plan(parse(assign=f'{{"{first}": [1], "{second}": [0]}}')) == both[1:]


def test_times_are_looked_up_per_partition(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic(2)
    fill(spark_producer, topic, 2)
    assert plan(parse(subscribe=topic, startingTimestamp="1003", endingTimestamp="1007")) == [
        (topic, 0, 3, 7),
        (topic, 1, 3, 7),
    ]
    by_partition = f'{{"{topic}": {{"0": 1002, "1": 1009}}}}'
    assert plan(parse(subscribe=topic, startingOffsetsByTimestamp=by_partition, endingTimestamp="9999")) == [
        (topic, 0, 2, 10),
        (topic, 1, 9, 10),
    ]
    late = {"subscribe": topic, "startingTimestamp": "9999"}
    with pytest.raises(WrongOption, match="has no record at or after 9999"):
        plan(parse(**late))
    assert plan(parse(**late, startingOffsetsByTimestampStrategy="latest")) == []


def test_ranges_are_cut_into_tasks(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic(2)
    fill(spark_producer, topic, 2)
    assert [end - start for *_, start, end in plan(parse(subscribe=topic, minPartitions="4"))] == [5, 5, 5, 5]
    assert [end - start for *_, start, end in plan(parse(subscribe=topic, maxRecordsPerPartition="7"))] == [5, 5, 5, 5]


def test_filters_cut_what_is_planned(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic(2)
    fill(spark_producer, topic, 2)
    time = datetime.fromtimestamp(1.004, UTC)
    options = parse(subscribe=topic)
    assert plan(options, GreaterThanOrEqual(("timestamp",), time), EqualTo(("partition",), 1)) == [(topic, 1, 4, 10)]
    assert plan(options, GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(5, UTC))) == []
    assert plan(options, EqualTo(("offset",), 3)) == [(topic, 0, 3, 4), (topic, 1, 3, 4)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "no-such-topic"}, "topic 'no-such-topic' does not exist"),
        ({"assign": '{"TOPIC": [0, 7]}'}, "assign names TOPIC-7, which does not exist"),
        (
            {"subscribe": "TOPIC", "endingOffsets": '{"TOPIC": {"0": 99}}'},
            "endingOffsets has 99 for TOPIC-0, which ends",
        ),
    ],
)
def test_what_is_not_there_is_told(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, options: dict[str, str], told: str
) -> None:
    topic = spark_topic()
    with pytest.raises((KafkaError, WrongOption), match=told.replace("TOPIC", topic)):
        plan(parse(**{name: value.replace("TOPIC", topic) for name, value in options.items()}))


def test_an_empty_plan_reads_nothing(parse: Callable[..., ReadOptions], spark_topic: NewTopic) -> None:
    reader = BatchReader(parse(subscribe=spark_topic()), ("offset",))
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_another_topic_of_the_same_name_is_not_read(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, spark_producer: Producer, spark_broker: Broker
) -> None:
    topic = spark_topic()
    fill(spark_producer, topic, 1)
    reader = BatchReader(parse(subscribe=topic), ("offset",))
    [planned] = reader.partitions()
    with Admin(spark_broker.address) as admin:
        admin.topics.delete(topic)
        admin.topics.create(topic, partitions=1)
    with Producer(spark_broker.address) as producer:
        fill(producer, topic, 1)
    with pytest.raises(DataLost, match=f"topic '{topic}' was deleted and made anew"):
        list(reader.read(planned))


def test_records_removed_before_the_plan_are_told_of_or_left_out(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, spark_producer: Producer, spark_broker: Broker,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    topic = spark_topic()
    fill(spark_producer, topic, 1)
    delete_before(spark_broker, topic, 4)
    given = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 1}}}}'}
    with pytest.raises(DataLost, match=f"{topic}-0: offsets 1 to 3 were removed"):
        plan(parse(**given))
    assert plan(parse(**given, failOnDataLoss="false")) == [(topic, 0, 4, 10)]
    assert "offsets 1 to 3 were removed" in caplog.text
    ending = f'{{"{topic}": {{"0": 99}}}}'
    assert plan(parse(**given, endingOffsets=ending, failOnDataLoss="false")) == [(topic, 0, 4, 10)]
    assert plan(parse(subscribe=topic)) == [(topic, 0, 4, 10)]


def test_records_removed_after_the_plan_are_told_of_or_passed_over(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, spark_producer: Producer, spark_broker: Broker,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    topic = spark_topic()
    fill(spark_producer, topic, 1)
    delete_before(spark_broker, topic, 4)
    with pytest.raises(DataLost, match=f"{topic}-0: offsets 1 to 3 were removed"):
        offsets(parse(subscribe=topic), OffsetRange(topic, 0, 1, 10))
    tolerant = parse(subscribe=topic, failOnDataLoss="false")
    assert offsets(tolerant, OffsetRange(topic, 0, 1, 10)) == [4, 5, 6, 7, 8, 9]
    assert offsets(tolerant, OffsetRange(topic, 0, 1, 3)) == []
    assert "offsets 1 to 3 were removed" in caplog.text


def test_a_log_that_ends_before_the_range_is_told_of_or_passed_over(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, spark_producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    topic = spark_topic()
    fill(spark_producer, topic, 1)
    with pytest.raises(DataLost, match=f"{topic}-0: the log ends at offset 10, before the place of the stream, 15"):
        offsets(parse(subscribe=topic), OffsetRange(topic, 0, 15, 20))
    assert offsets(parse(subscribe=topic, failOnDataLoss="false"), OffsetRange(topic, 0, 15, 20)) == []
    assert "the log ends at offset 10" in caplog.text


def test_a_range_is_read_to_its_end_and_not_beyond(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic()
    fill(spark_producer, topic, 1, 1000)
    small = parse(subscribe=topic, kafka__max__partition__fetch__bytes="1000")
    assert offsets(small, OffsetRange(topic, 0, 123, 777)) == list(range(123, 777))


def test_transactions_that_were_aborted_are_left_out_of_committed_reads(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, spark_broker: Broker
) -> None:
    topic = spark_topic()
    with Producer(spark_broker.address, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"kept")
        with suppress(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"dropped")
            raise ZeroDivisionError
    every, committed = parse(subscribe=topic), parse(subscribe=topic, kafka__isolation__level="read_committed")
    assert plan(every) == plan(committed) == [(topic, 0, 0, 4)]
    assert offsets(every, OffsetRange(topic, 0, 0, 4)) == [0, 2]
    assert offsets(committed, OffsetRange(topic, 0, 0, 4)) == [0]


def test_a_range_that_never_comes_is_given_up_in_time(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic()
    fill(spark_producer, topic, 1)
    impatient = parse(subscribe=topic, kafkaConsumer__pollTimeoutMs="3000")
    with pytest.raises(KafkaError, match=r"from offset 10 on within 3 s \(kafkaConsumer.pollTimeoutMs\)"):
        offsets(impatient, OffsetRange(topic, 0, 5, 20))


def test_a_reader_that_is_left_early_closes_its_connections(
    parse: Callable[..., ReadOptions], spark_topic: NewTopic, spark_producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    topic = spark_topic()
    fill(spark_producer, topic, 1, 1000)
    small = parse(subscribe=topic, kafka__max__partition__fetch__bytes="1000")
    with caplog.at_level(logging.WARNING):
        reading = read_range(small, ("offset",), OffsetRange(topic, 0, 0, 1000))
        next(reading)
        reading.close()
    assert caplog.messages == []


def test_a_task_waits_for_a_broker_that_comes_back(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "data") as server:
        with Admin(server.address) as admin:
            admin.topics.create("orders", partitions=1)
        with Producer(server.address) as producer:
            fill(producer, "orders", 1)
        server.kill()
        options = parse_batch_options({"kafka.bootstrap.servers": server.address, "subscribe": "orders"})
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(offsets, options, OffsetRange("orders", 0, 2, 10))
            assert not wait([reading], 0.5).done
            with BarnabasServer(tmp_path / "data", port=int(server.address.rsplit(":")[1])):
                assert reading.result(60) == list(range(2, 10))
