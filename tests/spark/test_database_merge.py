"""Staging and merging, the same on every database; but for one test, without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.spark.database.columns import RowColumn, row_columns
from barnabas.spark.database.connections import Database, Session, TableName
from barnabas.spark.database.merge import Notes, Target, merge
from barnabas.spark.database.sink import DatabaseSettings, DatabaseSink, WriteMode
from barnabas.spark.database.staging import ATTEMPT, POSITION, Filled, create_staging
from barnabas.spark.database.staging_task import Staging
from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.sinks import Batch, SinkContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINK = "shop/orders"
STAGING = TableName(None, "staged")
ORDERS = TableName(None, "orders")
COLUMNS = row_columns([("id", "bigint"), ("status", "string")])


@pytest.fixture(scope="module", params=["sqlite", "mariadb", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    directory = tmp_path_factory.mktemp("databases")
    if request.param == "sqlite":
        yield Database.at(str(directory / "shop.db"))
    else:
        yield Database.at(request.getfixturevalue(request.param).url)


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    """With the tables of the notes, and no others."""
    with database.connected() as session:
        for table in ("staged", "orders", "barnabas_offsets", "barnabas_batches"):
            session.execute(f"DROP TABLE IF EXISTS {table}")
        Notes(session, SINK).create()
        yield session


def create_orders(session: Session, key: str = "") -> None:
    create_staging(session, STAGING, COLUMNS, ["id"] if key else [])
    session.execute(f"CREATE TABLE orders (id BIGINT, status VARCHAR(20) {key})")


def stage(database: Database, attempt: int, rows: Sequence[tuple[Any, ...]], task: int = 0) -> Filled:
    batch = pa.RecordBatch.from_pylist([{"id": number, "status": status} for number, status in rows])
    return fill(Staging(database, STAGING, COLUMNS, ("id",)), [batch], attempt, task)


def fill(staging: Staging, batches: Sequence[pa.RecordBatch], attempt: int = 1, task: int = 0) -> Filled:
    with staging.writer(attempt, task) as writer:
        for batch in batches:
            writer.add(batch)
    return Filled(**writer.written()[0])


def by_offsets(number: int, start: int, end: int) -> Batch:
    return Batch(number, "query", {("orders", 0): start}, {("orders", 0): end})


def orders(session: Session) -> list[tuple[Any, ...]]:
    return session.rows("SELECT id, status FROM orders ORDER BY id, status")


APPEND = Target(ORDERS, ["id", "status"])
UPSERT = Target(ORDERS, ["id", "status"], ["id"])


def test_rows_and_offsets_are_there_together(database: Database, session: Session) -> None:
    create_orders(session)
    notes = Notes(session, SINK)
    filled = [stage(database, 1, [(1, "new"), (1, "new")]), stage(database, 2, [(2, "new")], task=1)]
    assert merge(notes, by_offsets(0, 0, 3), filled, STAGING, APPEND) == 3
    assert orders(session) == [(1, "new"), (1, "new"), (2, "new")]
    assert notes.offsets() == {("orders", 0): 3}


def test_attempts_that_spark_does_not_count_leave_no_trace(database: Database, session: Session) -> None:
    create_orders(session)
    stage(database, 8, [(1, "half")])
    merge(Notes(session, SINK), by_offsets(0, 0, 1), [stage(database, 1, [(1, "whole")])], STAGING, APPEND)
    assert orders(session) == [(1, "whole")]


def test_a_batch_that_is_done_is_not_merged_again(database: Database, session: Session) -> None:
    create_orders(session)
    notes = Notes(session, SINK)
    for number in range(2):
        filled = [stage(database, number, [(1, "new")])]
        merged = merge(notes, by_offsets(0, 0, 1), filled, STAGING, APPEND)
    assert merged == 0
    assert orders(session) == [(1, "new")]


def test_a_batch_of_a_stateful_query_is_known_by_its_number(database: Database, session: Session) -> None:
    create_orders(session)
    notes = Notes(session, SINK)
    merged = [
        merge(notes, Batch(number, query, {}, {}), [stage(database, place, [(1, "new")])], STAGING, APPEND)
        for place, (number, query) in enumerate([(0, "q"), (0, "q"), (1, "q"), (0, "another")])
    ]
    assert merged == [1, 0, 1, 1]
    assert notes.offsets() == {}


def test_a_run_that_was_overtaken_writes_nothing(database: Database, session: Session) -> None:
    create_orders(session)
    notes = Notes(session, SINK)
    merge(notes, by_offsets(0, 0, 10), [stage(database, 1, [(1, "new")])], STAGING, APPEND)
    late = [stage(database, 9, [(2, "new")])]
    with pytest.raises(SinkError, match="the sink has orders-0 up to offset 10, and batch 1 begins at 5: another run"):
        merge(notes, by_offsets(1, 5, 15), late, STAGING, APPEND)
    assert orders(session) == [(1, "new")]


def test_staged_rows_that_were_swept_away_meanwhile_stop_the_merge(database: Database, session: Session) -> None:
    create_orders(session)
    filled = [stage(database, 1, [(1, "new"), (2, "new")])]
    session.execute("DELETE FROM staged WHERE id = 2")
    with pytest.raises(SinkError, match="task 0 has staged 2 rows, and 1 are there"):
        merge(Notes(session, SINK), by_offsets(0, 0, 2), filled, STAGING, APPEND)
    assert orders(session) == []


def test_a_row_that_the_table_refuses_takes_the_whole_batch_back(database: Database, session: Session) -> None:
    create_orders(session, ", PRIMARY KEY (id)")
    filled = [stage(database, 1, [(1, "new"), (1, "again")])]
    with pytest.raises(SinkError, match=r"database .*: "), database.connected() as other:
        merge(Notes(other, SINK), by_offsets(0, 0, 2), filled, STAGING, APPEND)
    assert orders(session) == []
    assert Notes(session, SINK).offsets() == {}


def test_an_upsert_keeps_the_last_row_of_each_key(database: Database, session: Session) -> None:
    create_orders(session, ", PRIMARY KEY (id)")
    notes = Notes(session, SINK)
    merge(notes, by_offsets(0, 0, 2), [stage(database, 1, [(1, "new"), (2, "new")])], STAGING, UPSERT)
    tasks = [
        stage(database, 3, [(1, "shipped")], task=1),
        stage(database, 2, [(1, "paid"), (3, "new"), (3, "paid")]),
    ]
    merge(notes, by_offsets(1, 2, 6), tasks, STAGING, UPSERT)
    assert orders(session) == [(1, "shipped"), (2, "new"), (3, "paid")]


def test_an_upsert_of_nothing_but_the_key_keeps_one_row(database: Database, session: Session) -> None:
    create_orders(session, ", PRIMARY KEY (id)")
    filled = [stage(database, 1, [(1, "new"), (1, "new")])]
    merge(Notes(session, SINK), by_offsets(0, 0, 2), filled, STAGING, Target(ORDERS, ["id"], ["id"]))
    assert session.rows("SELECT id FROM orders") == [(1,)]


def test_an_upsert_by_the_latest_is_not_turned_back_by_a_late_row(database: Database, session: Session) -> None:
    columns = row_columns([("id", "bigint"), ("status", "string"), ("seen", "int")])
    create_staging(session, STAGING, columns, ["id"])
    session.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, status VARCHAR(20), seen INT)")
    notes, target = Notes(session, SINK), Target(ORDERS, ["id", "status", "seen"], ["id"], "seen")
    arriving: list[list[tuple[int, str, int | None]]] = [
        [(1, "paid", 5), (1, "new", 1), (2, "unknown", None)],
        [(1, "sent", 5), (1, "late", 4), (2, "new", 1)],
        [(1, "late", 3), (2, "unknown", None)],
    ]
    for number, rows in enumerate(arriving):
        batch = pa.RecordBatch.from_pylist([dict(zip(("id", "status", "seen"), row)) for row in rows])
        filled = [fill(Staging(database, STAGING, columns, ("id",)), [batch], attempt=number)]
        merge(notes, by_offsets(number, number, number + 1), filled, STAGING, target)
    assert session.rows("SELECT id, status, seen FROM orders ORDER BY id") == [(1, "sent", 5), (2, "new", 1)]


def test_a_row_without_its_key_is_refused(database: Database, session: Session) -> None:
    create_orders(session, ", PRIMARY KEY (id)")
    with pytest.raises(SinkError, match="a row has no 'id', which is part of the key"):
        stage(database, 1, [(None, "new")])


def test_keys_of_a_table_are_found(session: Session) -> None:
    session.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, a INT NOT NULL, b INT NOT NULL, UNIQUE (a, b))")
    assert set(session.unique_keys(ORDERS)) == {frozenset({"id"}), frozenset({"a", "b"})}


def test_columns_that_need_a_value_are_found(session: Session) -> None:
    session.execute("CREATE TABLE orders (a INT NOT NULL, b INT NOT NULL DEFAULT 1, c INT)")
    assert [(column.name, column.is_required) for column in session.columns(ORDERS)] == [
        ("a", True),
        ("b", False),
        ("c", False),
    ]
    assert session.columns(TableName(None, "nowhere")) == []


def test_values_of_every_type_come_back_as_they_were(database: Database, session: Session) -> None:
    types = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(38,10)", "string", "binary")
    columns = row_columns([(f'{name} %`"?', name) for name in (*types, "date", "timestamp", "timestamp_ntz")])
    moment = datetime(2026, 3, 1, 23, 59, 59, 123456, tzinfo=UTC)
    east = moment.astimezone(timezone(timedelta(hours=9)))
    decimal, text = Decimal("-1234567890123456789012345678.0123456789"), "häßlich 🐦 'quoted' \\ %s"
    values = [True, -8, 300, 70_000, 2**62, 0.5, 1e300, decimal, text, b"\0\xff'"]
    row = dict(zip((column.name for column in columns), [*values, date(2026, 3, 1), east, moment.replace(tzinfo=None)]))
    for table in (STAGING, ORDERS):
        create_staging(session, table, columns, [])
    batch = pa.RecordBatch.from_pylist([row, dict.fromkeys(row)], arrow_schema(columns))
    filled = [fill(Staging(database, STAGING, columns), [batch])]
    names = [column.name for column in columns]
    target = Target(ORDERS, [ATTEMPT, *POSITION, *names])
    merge(Notes(session, SINK), by_offsets(0, 0, 2), filled, STAGING, target)
    quoted = session.dialect.quoted_all(names)
    found, nothing = session.rows(f"SELECT {quoted} FROM orders ORDER BY barnabas_row")
    assert nothing == (None,) * len(columns)
    expected = list(row.values())
    if session.dialect.name == "SQLite":
        expected[7] = str(decimal)
        expected[10:] = ["2026-03-01", "2026-03-01 23:59:59.123456+00:00", "2026-03-01 23:59:59.123456"]
    if session.dialect.name == "MySQL":
        expected[11] = moment.replace(tzinfo=None)
    assert [bytes(value) if isinstance(value, memoryview) else value for value in found] == expected


@pytest.mark.parametrize("database", ["mariadb", "postgresql"], indirect=True)
def test_a_user_who_may_not_write_is_told_what_to_grant(database: Database, session: Session) -> None:
    grants = {
        "MySQL": ["CREATE USER IF NOT EXISTS guest@localhost", "GRANT SELECT ON shop.* TO guest@localhost"],
        "PostgreSQL": ["DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN"],
    }
    for statement in grants[session.dialect.name]:
        session.execute(statement)
    guest = Database.at(re.sub("//[a-z]+@", "//guest@", database.url))
    with pytest.raises(SinkError, match=r"denied.*grant the user"), guest.connected() as theirs:
        Notes(theirs, SINK).probe()


def test_rows_of_spark_are_upserted_in_every_database(
    database: Database, session: Session, spark: SparkSession
) -> None:
    settings = DatabaseSettings(database.url, "orders", WriteMode.UPSERT, ("id",), create=True)
    sink = DatabaseSink(settings, SinkContext("shop", "orders", {}))
    sink.prepare(spark)
    rows = spark.range(0, 6, numPartitions=2).selectExpr("id % 4 AS id", "concat('number ', id) AS status")
    assert sink.write(rows, by_offsets(0, 0, 6)).rows == 6
    assert sink.write(rows, by_offsets(0, 0, 6)).rows == 0
    assert orders(session) == [(0, "number 4"), (1, "number 5"), (2, "number 2"), (3, "number 3")]
    assert sink.done_offsets() == {("orders", 0): 6}


def arrow_schema(columns: Sequence[RowColumn]) -> pa.Schema:
    types = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "decimal": pa.decimal128(38, 10),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "Asia/Tokyo"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return pa.schema([(column.name, types[column.word]) for column in columns])
