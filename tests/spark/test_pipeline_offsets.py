"""Pipelines by ranges of offsets: every record once in every sink, whatever happened between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.metadata import TopicPartition
from barnabas.spark.database.sink import DatabaseSink
from barnabas.spark.pipeline.errors import PipelineError, SinkError
from barnabas.spark.pipeline.failures import UnreadableRecord
from barnabas.spark.pipeline.sinks import Written
from barnabas.spark.pipeline.stopping import StopRequest
from barnabas.sync import Admin
from tests.peers import Broker
from tests.spark.pipelines import Bench, Collected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = """
name: orders
cluster: {bootstrap_servers: "${BARNABAS_BOOTSTRAP_SERVER}"}
mode: ${MODE:-available-now}
trigger: 100 ms
max_records_per_batch: ${LIMIT:-1000}
sources:
  - name: orders
    topics: ["${TOPIC}"]
    schema: id INT NOT NULL, amount DOUBLE
    data_loss: ${LOSS:-fail}
transforms:
  - name: large
    sql: SELECT id, amount * 2 AS twice FROM orders WHERE amount > 1
sinks:
  - name: table
    kind: database
    from: large
    url: ${PIPELINE_DATA}/orders.db
    table: orders
    create: true
"""
WITH_LETTERS = ORDERS + "dead_letters: {topic: '${TOPIC}.dead'}\n"


@pytest.fixture
def bench(spark: SparkSession, spark_broker: Broker, tmp_path: Path) -> Bench:
    return Bench(spark, spark_broker.address, tmp_path)


def order(number: int, amount: float = 2.0) -> dict[str, object]:
    return {"id": number, "amount": amount}


def test_records_go_through_sql_into_a_table_once(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic = spark_topic(partitions=2)
    bench.send(topic, [order(number) for number in range(50)] + [order(50, 0.5)])
    told = Collected()
    totals = bench.run(ORDERS, told, TOPIC=topic, LIMIT=20)
    assert (totals.records, totals.rows) == (51, {"table": 50})
    assert [each.records for each in told.told] == [20, 20, 11]
    assert told.told[-1].lag == 0
    bench.send(topic, [order(51)])
    assert bench.run(ORDERS, TOPIC=topic).rows == {"table": 1}
    assert bench.run(ORDERS, TOPIC=topic).rows == {}
    found = bench.rows("orders.db", "SELECT id, twice FROM orders ORDER BY id")
    assert found == [(number, 4.0) for number in [*range(50), 51]]


def test_a_run_leaves_the_callers_session_the_active_one(
    bench: Bench, spark: SparkSession, spark_topic: Callable[..., str]
) -> None:
    """In another one Spark would not find the data sources that the caller has registered."""
    bench.run(ORDERS, TOPIC=spark_topic())
    active: Any = spark.getActiveSession()
    assert active._jsparkSession.equals(spark._jsparkSession)


def test_a_record_that_cannot_be_read_stops_the_run_and_loses_nothing(
    bench: Bench, spark_topic: Callable[..., str]
) -> None:
    topic = spark_topic()
    bench.send(topic, [order(1), b"{not json"])
    with pytest.raises(UnreadableRecord, match=rf"record 1 of {topic}-0 cannot be read: JSONDecodeError"):
        bench.run(ORDERS, TOPIC=topic)
    bench.run(WITH_LETTERS, TOPIC=topic)
    assert bench.rows("orders.db", "SELECT id FROM orders") == [(1,)]


def test_dead_letters_carry_the_record_its_place_cause_and_stack(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic = spark_topic()
    bad = [b"{not json", b'{"amount": 3}', b'{"id": "ten"}']
    bench.send(topic, [order(1), *bad, order(2)], key=b"k")
    told = Collected()
    bench.run(WITH_LETTERS, told, TOPIC=topic)
    bench.run(WITH_LETTERS, TOPIC=topic)
    letters = bench.records(f"{topic}.dead")
    assert [bytes(letter.value) for letter in letters] == bad
    assert [bytes(letter.key) for letter in letters] == [b"k"] * 3
    headers = [{header.key: bytes(header.value).decode() for header in letter.headers} for letter in letters]
    assert [each["barnabas.dead.offset"] for each in headers] == ["1", "2", "3"]
    assert headers[0]["barnabas.dead.topic"] == topic
    assert headers[0]["barnabas.dead.cause"].startswith("JSONDecodeError")
    assert headers[1]["barnabas.dead.cause"] == "ValueError: column 'id' is missing, and the schema says NOT NULL"
    assert headers[2]["barnabas.dead.cause"] == "ValueError: column 'id' is \"ten\", not int"
    assert "Traceback" in headers[2]["barnabas.dead.stack"]
    assert bench.rows("orders.db", "SELECT id FROM orders ORDER BY id") == [(1,), (2,)]
    assert told.told[-1].dead_letters == 3


def test_a_stop_comes_between_two_batches(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic = spark_topic()
    bench.send(topic, [order(number) for number in range(30)])
    stop = StopRequest()
    bench.run(ORDERS, Collected(stop, after=2), stop, TOPIC=topic, LIMIT=10, MODE="micro-batch")
    assert bench.rows("orders.db", "SELECT count(*) FROM orders") == [(20,)]
    bench.run(ORDERS, TOPIC=topic)
    assert bench.rows("orders.db", "SELECT count(DISTINCT id), count(*) FROM orders") == [(30, 30)]


SECOND = """
  - name: second
    kind: database
    from: orders
    url: ${PIPELINE_DATA}/second.db
    table: orders
    create: true
"""


def test_a_sink_that_came_later_or_failed_catches_up_with_the_others(
    bench: Bench, spark_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = spark_topic()
    bench.send(topic, [order(number) for number in range(10)])
    bench.run(ORDERS, TOPIC=topic)
    assert bench.run(ORDERS + SECOND, TOPIC=topic).rows == {"second": 10}
    bench.send(topic, [order(number) for number in range(10, 15)])
    write = DatabaseSink.write

    def fail_in_second(sink: DatabaseSink, *arguments: Any) -> Written:
        if sink.name == "second":
            raise SinkError("the disk is full")
        return write(sink, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(DatabaseSink, "write", fail_in_second)
        with pytest.raises(SinkError, match="the disk is full"):
            bench.run(ORDERS + SECOND, TOPIC=topic)
    bench.send(topic, [order(15)])
    told = Collected()
    bench.run(ORDERS + SECOND, told, TOPIC=topic)
    assert [each.rows for each in told.told] == [{"second": 5}, {"table": 1, "second": 1}]
    for file in ("orders.db", "second.db"):
        assert bench.rows(file, "SELECT count(*), count(DISTINCT id) FROM orders") == [(16, 16)]


LAKE = """
  - {name: lake, kind: lake, from: orders, path: "${PIPELINE_DATA}/lake"}
"""


def test_after_retention_a_new_sink_begins_with_what_is_there_and_an_old_one_stops_unless_told_to_skip(
    bench: Bench, spark_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    topic = spark_topic()

    def remove_before(offset: int) -> None:
        with Admin(bench.address) as admin:
            admin.records.delete({TopicPartition(topic, 0): offset})

    bench.send(topic, [order(number) for number in range(10)])
    bench.run(ORDERS, TOPIC=topic)
    remove_before(6)
    more = ORDERS + SECOND + LAKE + "dead_letters: {topic: '${TOPIC}.dead'}\n"
    assert bench.run(more, TOPIC=topic, MODE="batch").rows == {"dead-letters": 0, "second": 4, "lake": 4}
    for sink in ("dead-letters", "second", "lake"):
        told = f"sink '{sink}' is new, and the first records have been removed: it begins {topic}-0 at offset 6 instead"
        assert told in caplog.text
    assert "sink 'table' is new" not in caplog.text
    bench.send(topic, [order(number) for number in range(10, 20)])
    remove_before(15)
    lost = rf"{topic}-0: offsets 10 to 14 were removed .*give the source `data_loss: skip` to warn of it"
    for mode in ("batch", "available-now"):
        with pytest.raises(PipelineError, match=lost):
            bench.run(more if mode == "batch" else ORDERS + LAKE, TOPIC=topic, MODE=mode)
    skipped = bench.run(more, TOPIC=topic, MODE="batch", LOSS="skip").rows
    assert skipped == {"dead-letters": 0, "table": 5, "second": 5, "lake": 5}
    assert bench.run(more, TOPIC=topic, MODE="batch", LOSS="skip").rows == {}


def test_a_topic_that_was_made_anew_stops_the_run(
    bench: Bench, spark_broker: Broker, spark_topic: Callable[..., str]
) -> None:
    topic = spark_topic()
    bench.send(topic, [order(1)])
    bench.run(ORDERS, TOPIC=topic)
    with Admin(spark_broker.address) as admin:
        admin.topics.delete(topic)
        admin.topics.create(topic, partitions=1)
    bench.send(topic, [order(2), order(3)])
    with pytest.raises(PipelineError, match=f"topic '{topic}' was deleted and made anew since the pipeline began"):
        bench.run(ORDERS, TOPIC=topic)


def test_an_unknown_topic_is_named_with_its_nearest(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic = spark_topic()
    with pytest.raises(PipelineError, match=rf"topic '{topic}s' does not exist; did you mean '{topic}'"):
        bench.run(ORDERS, TOPIC=f"{topic}s")


def test_a_wrong_column_in_sql_is_told_with_the_view(bench: Bench, spark_topic: Callable[..., str]) -> None:
    with pytest.raises(PipelineError, match=r"view 'large': \[UNRESOLVED_COLUMN.*amnt"):
        bench.run(ORDERS.replace("amount > 1", "amnt > 1"), TOPIC=spark_topic())


def test_groups_across_batches_need_a_watermark(bench: Bench, spark_topic: Callable[..., str]) -> None:
    grouped = ORDERS.replace(
        "SELECT id, amount * 2 AS twice FROM orders WHERE amount > 1", "SELECT count(*) FROM orders"
    )
    with pytest.raises(PipelineError, match=r"sink 'table': view 'large' groups or joins rows of several batches"):
        bench.run(grouped, TOPIC=spark_topic())
