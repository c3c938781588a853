"""What the stream reader answers to Spark's calls: offsets, limits, new partitions, losses; without Spark's engine."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from barnabas.client.consume import fetch_answers
from barnabas.client.metadata import TopicPartition
from barnabas.client.options import WrongOption
from barnabas.core.errors import KafkaError
from barnabas.spark import stream_sight
from barnabas.spark.data_loss import Cause, DataLost
from barnabas.spark.options import parse_stream_options
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.stream_reader import StreamReader
from barnabas.sync import Admin, Consumer, Producer
from tests.peers import BarnabasServer, Broker, eventually

NewTopic = Callable[..., str]
Offset = dict[str, Any]
ALL = ReadAllAvailable()


class Stream:
    """Drives a reader as Spark's engine does, batch by batch, and reads what the tasks would read."""

    def __init__(self, address: str, **options: str) -> None:
        given = {"kafka.bootstrap.servers": address, "startingOffsets": "earliest", **options}
        lowered = {name.lower(): value for name, value in given.items()}
        self.reader = StreamReader(parse_stream_options(lowered), ("topic", "partition", "offset", "value"))
        self._place: Offset | None = None

    @property
    def place(self) -> Offset:
        if self._place is None:
            self._place = self.reader.initialOffset()
        return self._place

    @place.setter
    def place(self, written: Offset) -> None:
        self._place = written

    def offsets(self, topic: str) -> dict[str, int]:
        found: dict[str, int] = self.place[topic]
        return found

    def latest(self, limit: ReadLimit | None = None) -> Offset:
        return self.reader.latestOffset(self.place, limit or self.reader.getDefaultReadLimit())

    def plan(self, limit: ReadLimit | None = None) -> list[OffsetRange]:
        """The ranges of the next batch, which counts as done with it."""
        end = self.latest(limit)
        if end == self.place:
            return []
        ranges = [partition.value for partition in self.reader.partitions(self.place, end)]
        self.place = end
        return ranges

    def values(self) -> list[bytes]:
        """The values of the next batch."""
        end = self.latest()
        parts = [self.reader.read(each) for each in self.reader.partitions(self.place, end)]
        self.place = end
        return [value for part in parts for rows in part for value in rows.column("value").to_pylist()]


@pytest.fixture
def stream(spark_broker: Broker) -> Iterator[Callable[..., Stream]]:
    opened: list[Stream] = []

    def begin(**options: str) -> Stream:
        opened.append(Stream(spark_broker.address, **options))
        return opened[-1]

    yield begin
    for each in opened:
        each.reader.stop()


@pytest.fixture(scope="module")
def admin(spark_broker: Broker) -> Iterator[Admin]:
    with Admin(spark_broker.address) as opened:
        yield opened


@pytest.fixture
def quickly_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_sight, "_GONE_S", 0.3)


def send(producer: Producer, topic: str, count: int, partition: int = 0, prefix: str = "") -> None:
    for number in range(count):
        producer.post(topic, f"{prefix}{number}".encode(), partition=partition)
    producer.flush()


def recreate(admin: Admin, topic: str) -> None:
    admin.topics.delete(topic)
    eventually(lambda: topic in {each.name for each in admin.topics.list()}, False)
    admin.topics.create(topic, partitions=1)


def test_a_quiet_topic_gives_the_very_offset_back(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic(partitions=2)
    send(spark_producer, topic, 5)
    reading = stream(subscribe=topic)

    assert reading.plan() == [OffsetRange(topic, 0, 0, 5)]
    assert reading.offsets(topic) == {"0": 5, "1": 0}
    assert reading.latest() is reading.place
    assert reading.reader.reportLatestOffset() == {topic: {"0": 5, "1": 0}}


def test_a_stream_begins_at_the_end_unless_told_otherwise(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic(partitions=2)
    send(spark_producer, topic, 5)
    assert stream(subscribe=topic, startingOffsets="latest").offsets(topic) == {"0": 5, "1": 0}
    given = f'{{"{topic}": {{"0": 3, "1": -1}}}}'
    assert stream(subscribe=topic, startingOffsets=given).offsets(topic) == {"0": 3, "1": 0}


def test_a_stream_begins_at_a_time_or_where_no_record_is_that_young_as_the_strategy_says(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic(partitions=2)
    for number in range(5):
        spark_producer.send(topic, b"", partition=0, timestamp=1_700_000_000_000 + number)

    by_time = {"subscribe": topic, "startingTimestamp": "1700000000003"}
    assert stream(startingOffsetsByTimestampStrategy="latest", **by_time).offsets(topic) == {"0": 3, "1": 0}
    with pytest.raises(WrongOption, match=f"{topic}-1 has no record at or after 1700000000003"):
        _ = stream(**by_time).place


def test_partitions_that_are_added_while_it_runs_are_read_from_their_beginning(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer, admin: Admin, spark_broker: Broker
) -> None:
    topic = spark_topic()
    reading = stream(subscribe=topic, startingOffsets="latest")
    assert reading.plan() == []

    admin.partitions.create(topic, 3)
    with Producer(spark_broker.address) as producer:
        send(producer, topic, 4, partition=2)

    assert reading.plan() == [OffsetRange(topic, 2, 0, 4)]
    assert reading.offsets(topic) == {"0": 0, "1": 0, "2": 4}


def test_topics_that_come_to_match_a_pattern_are_read_from_their_beginning(
    stream: Callable[..., Stream], spark_producer: Producer, admin: Admin
) -> None:
    prefix = f"p{uuid.uuid4().hex[:8]}"
    admin.topics.create(f"{prefix}-a", partitions=1)
    admin.topics.create(f"{prefix}-other", partitions=1)
    reading = stream(subscribePattern=f"{prefix}-[a-c]|__consumer.*")
    send(spark_producer, f"{prefix}-a", 2)
    assert reading.plan() == [OffsetRange(f"{prefix}-a", 0, 0, 2)]

    admin.topics.create(f"{prefix}-b", partitions=1)
    send(spark_producer, f"{prefix}-b", 3)

    assert reading.plan() == [OffsetRange(f"{prefix}-b", 0, 0, 3)]
    assert {topic for topic in reading.place if topic != "#"} == {f"{prefix}-a", f"{prefix}-b"}


def test_only_assigned_partitions_are_read(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic(partitions=3)
    for partition in range(3):
        send(spark_producer, topic, 2, partition)
    reading = stream(assign=f'{{"{topic}": [0, 2]}}')

    assert reading.plan() == [OffsetRange(topic, 0, 0, 2), OffsetRange(topic, 2, 0, 2)]


def test_a_batch_has_at_most_as_many_offsets_as_the_option_says_unless_spark_wants_all(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic(partitions=2)
    send(spark_producer, topic, 30)
    send(spark_producer, topic, 10, partition=1)
    reading = stream(subscribe=topic, maxOffsetsPerTrigger="8")

    first = {part.partition: part.size for part in reading.plan()}
    assert sum(first.values()) == 8
    assert first[0] > first[1] > 0
    assert sum(part.size for part in reading.plan()) == 8
    assert sum(part.size for part in reading.plan(ALL)) == 24


def test_ranges_are_cut_as_the_options_say(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic()
    send(spark_producer, topic, 10)

    assert stream(subscribe=topic, maxRecordsPerPartition="5").plan() == [
        OffsetRange(topic, 0, 0, 5),
        OffsetRange(topic, 0, 5, 10),
    ]
    assert len(stream(subscribe=topic, minPartitions="5").plan()) == 5


def test_few_offsets_wait_for_more_of_them(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic()
    reading = stream(subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="10m")
    send(spark_producer, topic, 1)
    assert len(reading.plan()) == 1, "the first batch of a run does not wait"

    send(spark_producer, topic, 9)
    assert reading.plan() == []
    send(spark_producer, topic, 1)
    assert reading.plan() == [OffsetRange(topic, 0, 1, 11)]


def test_few_offsets_do_not_wait_for_longer_than_the_delay(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic()
    reading = stream(subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="200ms")
    send(spark_producer, topic, 1)
    assert len(reading.plan()) == 1

    send(spark_producer, topic, 1)
    eventually(reading.plan, [OffsetRange(topic, 0, 1, 2)])


def test_available_now_reads_what_is_there_and_comes_to_an_end(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic(partitions=2)
    send(spark_producer, topic, 7)
    reading = stream(subscribe=topic, maxOffsetsPerTrigger="5", minOffsetsPerTrigger="4")
    reading.reader.prepareForTriggerAvailableNow()
    send(spark_producer, topic, 20)
    send(spark_producer, topic, 20, partition=1)

    assert reading.plan() == [OffsetRange(topic, 0, 0, 5)]
    assert reading.plan() == [OffsetRange(topic, 0, 5, 7)], "a minimum does not hold up the end"
    assert reading.plan() == []


def test_read_committed_goes_no_further_than_open_transactions(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer, spark_broker: Broker
) -> None:
    topic = spark_topic()
    reading = stream(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    send(spark_producer, topic, 1, prefix="before ")
    with Producer(spark_broker.address, transactional_id=topic) as writer:
        with suppress(ZeroDivisionError), writer.transaction():
            send(writer, topic, 2, prefix="aborted ")
            assert reading.values() == [b"before 0"]
            raise ZeroDivisionError  # which aborts it
        with writer.transaction():
            send(writer, topic, 1, prefix="committed ")
            assert reading.values() == []
    assert reading.values() == [b"committed 0"]
    assert reading.latest() is reading.place


def test_records_that_retention_took_stop_the_stream_and_are_named(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer, admin: Admin
) -> None:
    topic = spark_topic()
    send(spark_producer, topic, 10)
    reading = stream(subscribe=topic)
    assert reading.offsets(topic) == {"0": 0}
    admin.records.delete({TopicPartition(topic, 0): 4})

    with pytest.raises(DataLost, match=f"{topic}-0: offsets 0 to 3 were removed.*retention.*failOnDataLoss=false"):
        reading.plan()


def test_records_that_retention_took_are_warned_of_and_the_rest_is_read(
    stream: Callable[..., Stream],
    spark_topic: NewTopic,
    spark_producer: Producer,
    admin: Admin,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = spark_topic()
    send(spark_producer, topic, 10)
    reading = stream(subscribe=topic, failOnDataLoss="false")
    assert reading.offsets(topic) == {"0": 0}
    admin.records.delete({TopicPartition(topic, 0): 4})

    with caplog.at_level(logging.WARNING):
        assert reading.plan() == [OffsetRange(topic, 0, 4, 10)]
    assert f"{topic}-0: offsets 0 to 3 were removed" in caplog.text


def test_a_topic_that_was_made_anew_is_told_from_one_that_grew(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer, admin: Admin, spark_broker: Broker
) -> None:
    topic = spark_topic(partitions=2)
    send(spark_producer, topic, 3)
    strict, lenient = stream(subscribe=topic), stream(subscribe=topic, failOnDataLoss="false")
    assert len(strict.plan()) == len(lenient.plan()) == 1
    recreate(admin, topic)
    with Producer(spark_broker.address) as producer:
        send(producer, topic, 5, prefix="new ")  # more than there was: its offsets alone look like growth

    with pytest.raises(DataLost) as caught:
        strict.plan()
    assert {loss.cause for loss in caught.value.losses} == {Cause.RECREATED}
    assert lenient.values() == [b"new %d" % number for number in range(5)]
    assert lenient.offsets(topic) == {"0": 5}
    assert lenient.plan() == []


@pytest.mark.parametrize("is_made_anew", [True, False], ids=["made anew", "gone"])
def test_a_topic_that_goes_between_plan_and_read_is_not_taken_for_the_one_that_was_planned(
    stream: Callable[..., Stream],
    spark_topic: NewTopic,
    spark_producer: Producer,
    admin: Admin,
    spark_broker: Broker,
    is_made_anew: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_answers, "_GONE_SECONDS", 0.3)
    topic = spark_topic()
    send(spark_producer, topic, 3)
    strict, lenient = stream(subscribe=topic), stream(subscribe=topic, failOnDataLoss="false")
    [planned] = strict.reader.partitions(strict.place, strict.latest())
    admin.topics.delete(topic)
    if is_made_anew:
        eventually(lambda: topic in {each.name for each in admin.topics.list()}, False)
        admin.topics.create(topic, partitions=1)
        with Producer(spark_broker.address) as producer:
            send(producer, topic, 5, prefix="new ")

    with pytest.raises(DataLost, match="was deleted and made anew" if is_made_anew else "is gone"):
        list(strict.reader.read(planned))
    assert list(lenient.reader.read(planned)) == []


def test_a_topic_that_is_gone_stops_the_stream_or_is_left_out_until_it_comes_back(
    stream: Callable[..., Stream],
    spark_topic: NewTopic,
    spark_producer: Producer,
    admin: Admin,
    spark_broker: Broker,
    quickly_gone: None,
) -> None:
    stays, goes = spark_topic(), spark_topic()
    for topic in (stays, goes):
        send(spark_producer, topic, 2)
    both = f"{stays},{goes}"
    strict, lenient = stream(subscribe=both), stream(subscribe=both, failOnDataLoss="false")
    assert len(strict.plan()) == len(lenient.plan()) == 2
    admin.topics.delete(goes)
    send(spark_producer, stays, 1)

    with pytest.raises(DataLost, match=f"topic '{goes}' is gone; what was in it from offset 2 on is lost"):
        strict.plan()
    assert lenient.plan() == [OffsetRange(stays, 0, 2, 3)]
    assert lenient.plan() == []

    admin.topics.create(goes, partitions=1)
    with Producer(spark_broker.address) as producer:
        send(producer, goes, 3, prefix="again ")
    assert lenient.values() == [b"again 0", b"again 1", b"again 2"]


def test_a_topic_of_the_checkpoint_that_is_no_longer_subscribed_is_named(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    kept, dropped = spark_topic(), spark_topic()
    both = stream(subscribe=f"{kept},{dropped}")
    both.plan()
    send(spark_producer, kept, 1)
    strict, lenient = stream(subscribe=kept), stream(subscribe=kept, failOnDataLoss="false")
    strict.place = lenient.place = both.place

    with pytest.raises(DataLost, match=f"{dropped}-0: it is in the checkpoint, and no longer among what is read"):
        strict.plan()
    assert lenient.plan() == [OffsetRange(kept, 0, 0, 1)]
    assert set(lenient.place) == {kept, "#"}


def test_a_name_that_is_added_to_the_subscription_must_be_that_of_a_topic(
    stream: Callable[..., Stream], spark_topic: NewTopic, quickly_gone: None
) -> None:
    topic = spark_topic()
    before = stream(subscribe=topic).place
    reading = stream(subscribe=f"{topic},{topic}-typo")
    reading.place = before

    with pytest.raises(KafkaError, match=f"topic '{topic}-typo' does not exist"):
        reading.plan()


def test_a_partition_that_is_added_to_the_assignment_must_be_there(
    stream: Callable[..., Stream], spark_topic: NewTopic
) -> None:
    topic = spark_topic()
    before = stream(assign=f'{{"{topic}": [0]}}').place
    reading = stream(assign=f'{{"{topic}": [0, 7]}}')
    reading.place = before

    with pytest.raises(KafkaError, match=f"partition {topic}-7 does not exist"):
        reading.plan()


def test_a_batch_that_was_planned_by_a_driver_that_died_is_planned_again_alike(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer, admin: Admin
) -> None:
    topic = spark_topic(partitions=2)
    send(spark_producer, topic, 5)
    before = stream(subscribe=topic)
    start, end = before.place, before.latest()
    send(spark_producer, topic, 5)
    admin.partitions.create(topic, 3)

    found = stream(subscribe=topic).reader.partitions(start, end)

    assert [each.value for each in found] == [OffsetRange(topic, 0, 0, 5)]


def test_a_log_that_was_cut_off_is_told_by_its_leader_epoch_and_read_from_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BarnabasServer(tmp_path / "data") as server:
        address = server.address
        with Admin(address) as admin, Producer(address) as producer:
            admin.topics.create("orders", partitions=1)
            for prefix in ("a", "b"):
                send(producer, "orders", 5, prefix=prefix)
        strict = Stream(address, subscribe="orders")
        lenient = Stream(address, subscribe="orders", failOnDataLoss="false")
        assert strict.values() == lenient.values() == [b"%c%d" % (prefix, n) for prefix in b"ab" for n in range(5)]
        server.kill()
    [segment] = (tmp_path / "data").rglob("orders-0/*.log")
    whole = segment.read_bytes()
    first_batch = 12 + int.from_bytes(whole[8:12], "big")
    assert first_batch < len(whole)
    segment.write_bytes(whole[:first_batch])  # what a disk does that loses power before it has synced

    with BarnabasServer(tmp_path / "data", port=int(address.rsplit(":", 1)[1])):
        with Producer(address) as producer:
            send(producer, "orders", 8, prefix="c")
        try:
            with pytest.raises(
                DataLost, match=r"orders-0: the log was cut off at offset 5 .* without the records up to 9"
            ):
                strict.plan()
            with caplog.at_level(logging.WARNING):
                assert lenient.values() == [b"c%d" % number for number in range(8)]
            assert "was cut off at offset 5" in caplog.text
            assert lenient.offsets("orders") == {"0": 13}
            assert lenient.plan() == []
        finally:
            strict.reader.stop()
            lenient.reader.stop()


def test_a_broker_that_restarts_is_waited_for_and_nothing_counts_as_lost(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "data") as server:
        address = server.address
        with Admin(address) as admin, Producer(address) as producer:
            admin.topics.create("orders", partitions=1)
            send(producer, "orders", 3)
        reading = Stream(address, subscribe="orders")
        assert len(reading.values()) == 3
    with BarnabasServer(tmp_path / "data", port=int(address.rsplit(":", 1)[1])):
        try:
            assert reading.latest() == reading.place
            with Producer(address) as producer:
                send(producer, "orders", 2, prefix="later ")
            assert reading.values() == [b"later 0", b"later 1"]
        finally:
            reading.reader.stop()


def test_a_place_of_sparks_own_source_is_gone_on_from(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer
) -> None:
    topic = spark_topic()
    send(spark_producer, topic, 5)
    reading = stream(subscribe=topic)
    reading.place = {topic: {"0": 3}}

    assert reading.plan() == [OffsetRange(topic, 0, 3, 5)]
    assert reading.place["#"]["ids"][topic]


def test_what_is_done_is_committed_to_the_group_and_a_group_of_its_own_keeps_its_name(
    stream: Callable[..., Stream], spark_topic: NewTopic, spark_producer: Producer, admin: Admin
) -> None:
    topic = spark_topic()
    send(spark_producer, topic, 5)
    reading = stream(subscribe=topic, groupIdPrefix=topic)
    group = reading.place["#"]["group"]
    assert group.startswith(f"{topic}-")

    reading.plan()
    assert lag(admin, group) == 5, "a batch that is planned is not done"
    reading.plan()
    assert lag(admin, group) == 0

    send(spark_producer, topic, 3)
    again = stream(subscribe=topic, groupIdPrefix=topic)
    again.place = reading.place
    again.plan()
    again.plan()
    assert again.place["#"]["group"] == group
    assert lag(admin, group) == 0


def lag(admin: Admin, group: str) -> int:
    return sum(found.lag for found in admin.offsets.lag(group).values())


def test_a_group_that_does_not_take_the_offsets_is_warned_of_and_the_stream_goes_on(
    stream: Callable[..., Stream],
    spark_topic: NewTopic,
    spark_producer: Producer,
    spark_broker: Broker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = spark_topic()
    send(spark_producer, topic, 5)
    with Consumer(spark_broker.address, topics=[topic], group=topic, auto_offset_reset="earliest") as member:
        assert next(iter(member)).offset == 0
        reading = stream(subscribe=topic, **{"kafka.group.id": topic})
        with caplog.at_level(logging.WARNING):
            assert len(reading.values()) == 5
            assert reading.plan() == []
    warnings = [record.getMessage() for record in caplog.records if "lag" in record.getMessage()]
    assert len(warnings) == 1, "told once"
    assert "the group has members" in warnings[0]


def test_an_option_that_is_for_batches_is_refused() -> None:
    with pytest.raises(WrongOption, match="endingOffsets is for batch reads"):
        Stream("localhost:9092", subscribe="orders", endingOffsets="latest")
