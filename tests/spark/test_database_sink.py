"""The sink `database` in Spark, on SQLite: what it does with rows, and what it says when it cannot."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark.database.sink import DatabaseSettings, DatabaseSink, WriteMode
from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.sinks import Batch, SinkContext, sink_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def open_sink(spark: SparkSession, shop: Path) -> Callable[..., DatabaseSink]:
    """A sink that is ready for the table `orders`."""

    def prepared(**settings: Any) -> DatabaseSink:
        chosen = {"url": str(shop), "table": "orders", **settings}
        sink = DatabaseSink(DatabaseSettings(**chosen), SinkContext("shop", "orders", {}))
        sink.prepare(spark)
        return sink

    return prepared


def execute(shop: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(shop, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def numbered(spark: SparkSession, begin: int, end: int) -> DataFrame:
    return spark.range(begin, end, numPartitions=2).selectExpr("id", "id % 3 AS status", "'t' AS _topic")


def by_offsets(number: int, start: int, end: int) -> Batch:
    return Batch(number, "query", {("orders", 0): start}, {("orders", 0): end})


def test_a_pipeline_finds_the_kind_by_its_name() -> None:
    kind = sink_kind("database")
    assert (kind.settings, kind.open) == (DatabaseSettings, DatabaseSink)


def test_batches_arrive_once_with_their_offsets_and_leave_nothing_staged(
    spark: SparkSession, open_sink: Callable[..., DatabaseSink], shop: Path
) -> None:
    sink = open_sink(create=True)
    assert sink.done_offsets() is None
    assert sink.write(numbered(spark, 0, 10), by_offsets(0, 0, 10)).rows == 10
    assert sink.write(numbered(spark, 0, 10), by_offsets(0, 0, 10)).rows == 0
    again = open_sink(create=True)
    assert again.done_offsets() == {("orders", 0): 10}
    assert again.write(numbered(spark, 10, 15), by_offsets(1, 10, 15)).rows == 5
    assert again.write(numbered(spark, 0, 0), by_offsets(2, 15, 20)).rows == 0
    assert again.done_offsets() == {("orders", 0): 20}
    assert execute(shop, "SELECT * FROM orders ORDER BY id") == [(number, number % 3) for number in range(15)]
    assert execute(shop, "SELECT name FROM sqlite_master WHERE name LIKE 'barnabas_staging%'") == []


def test_an_upsert_makes_its_table_with_the_key(
    spark: SparkSession, open_sink: Callable[..., DatabaseSink], shop: Path
) -> None:
    sink = open_sink(create=True, mode=WriteMode.UPSERT, key=("status",))
    sink.write(numbered(spark, 0, 10), by_offsets(0, 0, 10))
    sink.write(numbered(spark, 10, 12), by_offsets(1, 10, 12))
    assert execute(shop, "SELECT id, status FROM orders ORDER BY status") == [(9, 0), (10, 1), (11, 2)]


def test_rows_of_another_form_than_before_are_staged_anew(
    spark: SparkSession, open_sink: Callable[..., DatabaseSink], shop: Path
) -> None:
    sink = open_sink(create=True)
    sink.write(numbered(spark, 0, 1), by_offsets(0, 0, 1))
    execute(shop, "ALTER TABLE orders ADD COLUMN note TEXT")
    sink.write(numbered(spark, 1, 2).selectExpr("*", "'late' AS note"), by_offsets(1, 1, 2))
    assert execute(shop, "SELECT id, note FROM orders ORDER BY id") == [(0, None), (1, "late")]


def test_where_a_record_came_from_is_kept_only_if_the_table_asks_for_it(
    spark: SparkSession, open_sink: Callable[..., DatabaseSink], shop: Path
) -> None:
    execute(shop, "CREATE TABLE orders (id INTEGER, status INTEGER, _topic TEXT)")
    open_sink().write(numbered(spark, 0, 1), by_offsets(0, 0, 1))
    assert execute(shop, "SELECT * FROM orders") == [(0, 0, "t")]


def test_a_task_that_dies_in_the_middle_is_repeated_and_its_half_is_dropped(
    spark: SparkSession, open_sink: Callable[..., DatabaseSink], shop: Path
) -> None:
    from pyspark.sql.functions import udf

    def stumble(number: int) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if number == 250 and context.attemptNumber() == 0:
            raise RuntimeError("stumbled")
        return number

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        frame = spark.range(0, 1000, numPartitions=2).select(udf(stumble, "bigint", useArrow=False)("id").alias("id"))
        assert open_sink(create=True).write(frame, by_offsets(0, 0, 1000)).rows == 1000
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert execute(shop, "SELECT id FROM orders ORDER BY id") == [(number,) for number in range(1000)]


def test_a_table_that_is_not_there_is_an_error_unless_it_may_be_made(
    open_sink: Callable[..., DatabaseSink], shop: Path
) -> None:
    with pytest.raises(SinkError, match=rf"no table 'orders' in {shop}: create it, or say `create: true`"):
        open_sink()


def test_an_upsert_needs_an_index_on_its_key(open_sink: Callable[..., DatabaseSink], shop: Path) -> None:
    execute(shop, "CREATE TABLE orders (id INTEGER, status INTEGER)")
    with pytest.raises(SinkError, match=r"neither a primary key nor a unique index on \(id\)"):
        open_sink(mode=WriteMode.UPSERT, key=("id",))
    with pytest.raises(SinkError, match=r"no column 'ids', which `key` names \(nearest: 'id'\)"):
        open_sink(mode=WriteMode.UPSERT, key=("ids",))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("id INTEGER, state INTEGER", r"no column 'status' \(nearest: 'state'\)"),
        ("id TEXT, status INTEGER", "'id' of table 'orders' is TEXT, and the rows have bigint"),
    ],
)
def test_rows_that_do_not_fit_are_told_by_column_and_nothing_moves(
    spark: SparkSession, open_sink: Callable[..., DatabaseSink], shop: Path, table: str, told: str
) -> None:
    execute(shop, f"CREATE TABLE orders ({table})")
    sink = open_sink()
    with pytest.raises(SinkError, match=told):
        sink.write(numbered(spark, 0, 3), by_offsets(0, 0, 3))
    assert sink.done_offsets() is None


def test_a_key_that_the_rows_lack_is_told(spark: SparkSession, open_sink: Callable[..., DatabaseSink]) -> None:
    sink = open_sink(create=True, mode=WriteMode.UPSERT, key=("number",))
    with pytest.raises(SinkError, match="the rows have no column 'number'"):
        sink.write(numbered(spark, 0, 3), by_offsets(0, 0, 3))


def test_what_a_task_complains_about_is_told_without_a_stack(
    spark: SparkSession, open_sink: Callable[..., DatabaseSink]
) -> None:
    sink = open_sink(create=True, mode=WriteMode.UPSERT, key=("id",))
    rows = spark.createDataFrame([(1, "new"), (None, "lost")], "id int, status string")
    with pytest.raises(SinkError, match=r"^table 'orders': a row has no 'id', which is part of the key$"):
        sink.write(rows, by_offsets(0, 0, 2))


def test_a_database_that_is_full_says_so_and_goes_on_when_there_is_room(
    spark: SparkSession, open_sink: Callable[..., DatabaseSink], shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merge finds no room: the tasks run in other processes, where the limit does not hold."""
    sink = open_sink(create=True)
    sink.write(numbered(spark, 0, 10), by_offsets(0, 0, 10))
    connect = sqlite3.connect

    def connect_to_a_full_one(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 1")  # SQLite makes of it: as many as there are
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", connect_to_a_full_one)
        with pytest.raises(SinkError, match=r"shop\.db: database or disk is full \(free some space"):
            sink.write(numbered(spark, 10, 50_000), by_offsets(1, 10, 50_000))
    assert sink.done_offsets() == {("orders", 0): 10}
    again = open_sink()
    assert again.write(numbered(spark, 10, 20), by_offsets(1, 10, 20)).rows == 10
    assert execute(shop, "SELECT count(*), count(DISTINCT id) FROM orders") == [(20, 20)]


def test_a_database_that_is_read_only_says_so_before_anything_is_read(
    spark: SparkSession, open_sink: Callable[..., DatabaseSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_sink(create=True)
    connect = sqlite3.connect

    def connect_read_only(path: str, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(f"file:{path}?mode=ro", uri=True, **options)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_read_only)
    with pytest.raises(SinkError, match=r"attempt to write a readonly database \(the file or its directory"):
        open_sink(create=True)


@pytest.mark.parametrize(
    ("content", "told"), [(b"no database " * 100, "not a database"), (None, "its directory must exist")]
)
def test_a_file_that_is_no_database_is_told(
    open_sink: Callable[..., DatabaseSink], tmp_path: Path, content: bytes | None, told: str
) -> None:
    path = tmp_path / ("other" if content else "nowhere/other")
    if content:
        path.write_bytes(content)
    with pytest.raises(SinkError, match=told):
        open_sink(url=str(path), create=True)


def test_a_server_that_does_not_answer_is_told(open_sink: Callable[..., DatabaseSink]) -> None:
    for scheme in ("mysql", "postgresql"):
        with pytest.raises(SinkError, match="is the server running there"):
            open_sink(url=f"{scheme}://root@127.0.0.1:9/shop")


def test_a_password_that_the_environment_lacks_is_asked_for(open_sink: Callable[..., DatabaseSink]) -> None:
    with pytest.raises(SinkError, match="the environment has no NO_SUCH_PASSWORD"):
        open_sink(url="mysql://root@127.0.0.1:9/shop", password_env="NO_SUCH_PASSWORD")
