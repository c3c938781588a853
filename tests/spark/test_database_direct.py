"""Pipelines on the direct path give the same table as by way of Spark, whatever the records are like."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark.database.connections import Database, Session
from barnabas.spark.database.sink import DatabaseSettings, DatabaseSink, WriteMode
from barnabas.spark.direct import task
from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.failures import UnreadableRecord
from barnabas.spark.pipeline.sinks import Batch, SinkContext
from tests.peers import Broker
from tests.spark.pipelines import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
name: ${NAME}
cluster: {bootstrap_servers: "${BARNABAS_BOOTSTRAP_SERVER}"}
mode: ${MODE:-available-now}
max_records_per_task: 150
sources:
  - name: clicks
    topics: ["${TOPIC}"]
    schema: "id INT NOT NULL, name STRING, amount DOUBLE, price DECIMAL(9,2), day DATE, at TIMESTAMP, ok BOOLEAN"
    key: k
sinks:
  - {name: table, kind: database, from: "${VIEW:-clicks}", url: "${URL}", table: "${TABLE}", create: true}
"""
BY_SPARK = PIPELINE.replace("key: k", 'key: k\n    options: {allowComments: "false"}')
"""With options that change nothing, but belong to Spark's reader."""
UPSERT = PIPELINE.replace("create: true", "create: true, mode: upsert, key: [id]")


@pytest.fixture
def bench(spark: SparkSession, spark_broker: Broker, tmp_path: Path) -> Bench:
    return Bench(spark, spark_broker.address, tmp_path)


@pytest.fixture
def shop(bench: Bench) -> Database:
    """A SQLite file."""
    return Database.at(str(bench.place / "shop.db"))


@pytest.fixture(params=["sqlite", "mariadb", "postgresql"])
def database(request: pytest.FixtureRequest, bench: Bench) -> Database:
    found: Database
    if request.param == "sqlite":
        found = request.getfixturevalue("shop")
    else:
        found = Database.at(request.getfixturevalue(request.param).url)
    with found.connected() as session:
        for table in ("direct", "spark", "barnabas_offsets", "barnabas_batches"):
            session.execute(f"DROP TABLE IF EXISTS {table}")
    return found


@pytest.fixture
def direct_loads(monkeypatch: pytest.MonkeyPatch) -> list[task.Load]:
    """The loads that tasks of the direct path were given, to write somewhere."""
    seen: list[task.Load] = []

    def in_tasks(load: task.Load) -> Any:
        if load.target is not None:
            seen.append(load)
        return task.in_tasks(load)

    monkeypatch.setattr("barnabas.spark.direct.job.in_tasks", in_tasks)
    return seen


def click(number: int, random: Random) -> bytes:
    """Mostly what a task is sure of; some that only Spark can decode."""
    row: dict[str, Any] = {"id": number, "name": f"é\t\\'{number}", "amount": random.choice((0.5, 1.25, 3e3, None))}
    row |= {
        "price": 19.99,
        "day": "2026-11-18",
        "at": f"2026-11-18T09:{random.randrange(60):02}:00.123456Z",
        "ok": True,
    }
    if number % 10 == 7:
        row["name"] = number  # a number as text
    if number % 20 == 9:
        row["at"] = "1969-07-20T20:17:40.123456789Z"
    return json.dumps(row).encode()


def click_of(key: int, name: str, *, is_sure: bool = True) -> bytes:
    """Tasks are not sure of times with nine digits of a second."""
    at = "1969-07-20T20:17:40Z" if is_sure else "1969-07-20T20:17:40.123456789Z"
    return f'{{"id": {key}, "name": "{name}", "at": "{at}"}}'.encode()


def rows_of(session: Session, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return sorted(session.rows(f"SELECT {columns} FROM {table}"), key=repr)


def test_a_table_is_the_same_on_both_paths(
    bench: Bench, database: Database, spark_topic: Callable[..., str], direct_loads: list[task.Load]
) -> None:
    topic, random = spark_topic(partitions=3), Random(1)
    bench.send(topic, [click(number, random) for number in range(700)], key=b"a key")
    for name, text in (("direct", PIPELINE), ("spark", BY_SPARK)):
        assert bench.run(text, TOPIC=topic, NAME=name, TABLE=name, URL=database.url).rows == {"table": 700}
        assert len(direct_loads) == 1
    with database.connected() as session:
        rows = rows_of(session, "direct")
        assert rows == rows_of(session, "spark")
        assert len(rows) == 700
        assert session.tables("barnabas_staging") == []


def test_the_last_record_of_a_key_stays_whoever_decodes_it(
    bench: Bench, database: Database, spark_topic: Callable[..., str], direct_loads: list[task.Load]
) -> None:
    """Tasks are sure of some records, and Spark decodes the others: they are staged by different attempts."""
    topic = spark_topic(partitions=1)
    values = []
    for key, (first, then) in enumerate([(True, False), (False, True), (True, True), (False, False)]):
        values += [click_of(key, "first", is_sure=first), click_of(key, "then", is_sure=then)]
    values += [click_of(9, str(number), is_sure=number % 3 != 0) for number in range(400)]
    bench.send(topic, values)
    bench.run(UPSERT, TOPIC=topic, NAME="p", TABLE="direct", URL=database.url)
    assert len(direct_loads) == 1
    with database.connected() as session:
        assert rows_of(session, "direct", "id, name") == [*((key, "then") for key in range(4)), (9, "399")]


def test_records_of_later_batches_replace_earlier_ones(
    bench: Bench, shop: Database, spark_topic: Callable[..., str], direct_loads: list[task.Load]
) -> None:
    topic = spark_topic(partitions=1)
    for name, is_sure in (("first", True), ("second", False), ("third", True)):
        bench.send(topic, [click_of(1, name, is_sure=is_sure)])
        bench.run(UPSERT, TOPIC=topic, NAME="p", TABLE="direct", URL=shop.url)
        with shop.connected() as session:
            assert rows_of(session, "direct", "id, name") == [(1, name)]
    assert len(direct_loads) == 3


@pytest.mark.parametrize("is_sure", [True, False])
def test_of_the_rows_of_one_record_the_last_stays(
    bench: Bench, shop: Database, spark_topic: Callable[..., str], direct_loads: list[task.Load], is_sure: bool
) -> None:
    topic = spark_topic()
    bench.send(topic, [click_of(1, "a", is_sure=True), click_of(1, "b", is_sure=is_sure)])
    twice = UPSERT + "transforms:\n  - {name: doubled, arrow: tests.spark.arrow_functions.twice, from: clicks}\n"
    bench.run(twice, TOPIC=topic, NAME="p", TABLE="direct", URL=shop.url, VIEW="doubled")
    assert len(direct_loads) == 1
    with shop.connected() as session:
        assert rows_of(session, "direct", "id, name") == [(1, "b again")]


@pytest.mark.parametrize(("text", "loads"), [(PIPELINE, 1), (UPSERT, 0)], ids=["append", "upsert"])
def test_rows_without_their_origin_are_appended_directly_and_upserted_by_spark(
    bench: Bench,
    shop: Database,
    spark_topic: Callable[..., str],
    direct_loads: list[task.Load],
    text: str,
    loads: int,
) -> None:
    topic = spark_topic()
    bench.send(topic, [click_of(number, "a", is_sure=number % 2 == 0) for number in range(6)])
    bare = text + "transforms:\n  - {name: bare, arrow: tests.spark.arrow_functions.without_origin, from: clicks}\n"
    bench.run(bare, TOPIC=topic, NAME="p", TABLE="direct", URL=shop.url, VIEW="bare")
    assert len(direct_loads) == loads
    with shop.connected() as session:
        assert rows_of(session, "direct", "id") == [(number,) for number in range(6)]


def test_columns_of_the_origin_are_written_if_the_table_has_them(
    bench: Bench, shop: Database, spark_topic: Callable[..., str]
) -> None:
    topic = spark_topic()
    with shop.connected() as session:
        session.execute(
            "CREATE TABLE direct (k TEXT, id INT, name TEXT, amount REAL, price TEXT, day TEXT, at TEXT, ok BOOLEAN,"
            " _offset INT)"
        )
    bench.send(topic, [click_of(number, "a", is_sure=number != 1) for number in range(3)])
    bench.run(PIPELINE, TOPIC=topic, NAME="p", TABLE="direct", URL=shop.url)
    with shop.connected() as session:
        assert rows_of(session, "direct", "id, _offset") == [(0, 0), (1, 1), (2, 2)]


def test_a_row_without_its_key_stops_a_direct_load(
    bench: Bench, shop: Database, spark_topic: Callable[..., str], direct_loads: list[task.Load]
) -> None:
    topic = spark_topic()
    bench.send(topic, [b'{"id": 1, "name": "a"}', b'{"id": 2, "name": null}'])
    with pytest.raises(SinkError, match=r"^table 'direct': a row has no 'name', which is part of the key$"):
        bench.run(UPSERT.replace("[id]", "[name]"), TOPIC=topic, NAME="p", TABLE="direct", URL=shop.url)
    assert len(direct_loads) == 1
    with shop.connected() as session:
        assert rows_of(session, "direct") == rows_of(session, "barnabas_offsets") == []
        assert session.tables("barnabas_staging") == []


def test_a_record_that_cannot_be_read_stops_a_direct_load_by_name(
    bench: Bench, shop: Database, spark_topic: Callable[..., str]
) -> None:
    topic = spark_topic()
    bench.send(topic, [click_of(1, "a"), b'{"id": null}', click_of(2, "b")])
    with pytest.raises(UnreadableRecord, match="record 1 of "):
        bench.run(PIPELINE, TOPIC=topic, NAME="p", TABLE="direct", URL=shop.url)
    with shop.connected() as session:
        assert rows_of(session, "direct") == rows_of(session, "barnabas_offsets") == []


def test_what_a_dead_attempt_stages_is_never_merged(
    bench: Bench, database: Database, spark_topic: Callable[..., str], direct_loads: list[task.Load]
) -> None:
    """An attempt that Spark took for dead goes on after the batch was merged, and finds no table."""
    topic = spark_topic()
    bench.send(topic, [click_of(number, "a") for number in range(100)])
    bench.run(PIPELINE, TOPIC=topic, NAME="p", TABLE="direct", URL=database.url)
    (load,) = direct_loads
    with pytest.raises(SinkError, match="staging"):
        list(load.run(0, attempt=99))
    bench.send(topic, [click_of(number, "a") for number in range(100, 150)])
    bench.run(PIPELINE, TOPIC=topic, NAME="p", TABLE="direct", URL=database.url)
    with database.connected() as session:
        assert sorted(session.rows("SELECT id FROM direct")) == [(number,) for number in range(150)]


def test_rows_that_spark_has_shuffled_keep_the_order_of_the_topic(spark: SparkSession, shop: Database) -> None:
    settings = DatabaseSettings(shop.url, "orders", WriteMode.UPSERT, ("id",), create=True)
    sink = DatabaseSink(settings, SinkContext("shop", "orders", {}))
    sink.prepare(spark)
    rows = spark.range(100).selectExpr(
        "id % 3 AS id", "id AS number", "'t' AS _topic", "id DIV 50 AS _partition", "id % 50 AS _offset"
    )
    starts, ends = ({("t", 0): offset, ("t", 1): offset} for offset in (0, 50))
    sink.write(
        rows.repartition(4, "number").sortWithinPartitions("number", ascending=False), Batch(0, "q", starts, ends)
    )
    with shop.connected() as session:
        assert rows_of(session, "orders", "id, number") == [(0, 99), (1, 97), (2, 98)]
