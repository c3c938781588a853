"""Rows that are loaded in bulk are those that the database's driver would have inserted, whatever they are like."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pymysql.err import OperationalError

from barnabas.spark.database.columns import Kind, RowColumn, row_columns
from barnabas.spark.database.connections import Database, Session, TableName
from barnabas.spark.database.staging import ATTEMPT, POSITION, create_staging, drop_staging
from barnabas.spark.database.staging_task import Staging
from barnabas.spark.pipeline.errors import SinkError
from tests.peers import MariaDbServer

LOADED, INSERTED = TableName(None, "loaded"), TableName(None, "inserted")
COLUMNS = row_columns(
    [
        *(("%d `" + name, name) for name in ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double")),
        *((name, name) for name in ("decimal(38,10)", "decimal(5,0)", "string", "binary", "date", "timestamp")),
        ("timestamp_ntz", "timestamp_ntz"),
    ]
)
TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(38,10)": pa.decimal128(38, 10),
    "decimal(5,0)": pa.decimal128(5, 0),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "Asia/Tokyo"),
    "timestamp_ntz": pa.timestamp("us"),
}
FRAGMENTS = (
    *("\\", "\\N", "\\.", "\t", "\n", "\r", "\b", "\x1a", "'", '"', "`", "%s", "%", ",", ")", "(", ";", "NULL", "\\x"),
    *("", " ", "a", "é", "🐦", "\u2028", "\x7f", "0", "--", "/*", "\\t", "\\\\"),
)


@pytest.fixture(params=["sqlite", "mariadb", "mariadb-by-insert", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        yield Database.at(str(tmp_path / "shop.db"))
    elif request.param == "postgresql":
        yield Database.at(request.getfixturevalue("postgresql").url)
    else:
        server: MariaDbServer = request.getfixturevalue("mariadb")
        found = Database.at(server.url)
        with found.connected() as session:
            session.execute(f"SET GLOBAL local_infile = {int(request.param == 'mariadb')}")
        yield found
        with found.connected() as session:
            session.execute("SET GLOBAL local_infile = 1")


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with database.connected() as session:
        for table in (LOADED, INSERTED):
            session.execute(f"DROP TABLE IF EXISTS {session.quoted(table)}")
        yield session


def random_text(random: Random) -> str:
    return "".join(random.choice(FRAGMENTS) for _ in range(random.randrange(6)))


def random_moment(random: Random) -> datetime:
    micros = random.choice((random.randrange(10**6), 0, 10))
    return datetime(1000, 1, 1, tzinfo=UTC) + timedelta(
        days=random.randrange(3_000_000), seconds=random.randrange(86_400), microseconds=micros
    )


def random_value(random: Random, kind: str) -> Any:
    if random.random() < 0.1:
        return None
    match kind:
        case "boolean":
            return random.random() < 0.5
        case "tinyint" | "smallint" | "int" | "bigint":
            bits = TYPES[kind].bit_width - 1
            return random.choice((0, -(2**bits), 2**bits - 1, random.randrange(-(2**bits), 2**bits)))
        case "float":
            value = random.choice((0.0, -0.0, 0.1, 1e-30, 3.4e38, random.uniform(-1e6, 1e6)))
            return pa.scalar(value, pa.float32()).as_py()
        case "double":
            return random.choice((0.0, 0.1, 1e-300, 1.7e308, 5.0, random.uniform(-1, 1), random.uniform(-1e18, 1e18)))
        case "decimal(38,10)":
            return Decimal(random.randrange(-(10 ** random.randrange(1, 38)), 10**37)).scaleb(-10)
        case "decimal(5,0)":
            return Decimal(random.randrange(-99_999, 100_000))
        case "string":
            return random_text(random)
        case "binary":
            return random.randbytes(random.randrange(6))
        case "date":
            return random_moment(random).date()
        case _:
            moment = random_moment(random)
            return moment if kind == "timestamp" else moment.replace(tzinfo=None)


def batch_of(rows: Sequence[Sequence[Any]], columns: Sequence[RowColumn] = COLUMNS) -> pa.RecordBatch:
    schema = pa.schema([(column.name, TYPES[column.type]) for column in columns])
    arrays = [pa.array(values, field.type) for values, field in zip(zip(*rows), schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def load(
    database: Database, batches: Sequence[pa.RecordBatch], columns: Sequence[RowColumn] = COLUMNS, key: str = ""
) -> None:
    with Staging(database, LOADED, tuple(columns), (key,) if key else ()).writer(attempt=7, task=3) as writer:
        for batch in batches:
            writer.add(batch)


def insert(session: Session, rows: Sequence[Sequence[Any]]) -> None:
    """As the sink did before it loaded in bulk: values of Python by the driver's `executemany`."""
    names = [ATTEMPT, *POSITION, *(column.name for column in COLUMNS)]
    statement = (
        f"INSERT INTO {session.quoted(INSERTED)} ({session.dialect.quoted_all(names)})"
        f" VALUES ({session.dialect.marks(len(names))})"
    )
    adapted = [[adapt(session.dialect.name, column.kind, value) for column, value in zip(COLUMNS, row)] for row in rows]
    with session.transaction():
        session.execute_many(statement, [(7, 3, 0, number, *row) for number, row in enumerate(adapted)])


def adapt(database: str, kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if database == "MySQL" and kind is Kind.TIMESTAMP:
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if database == "SQLite" and kind is Kind.DECIMAL:
        return str(value)
    if database == "SQLite" and kind is Kind.TIMESTAMP:
        utc = value.astimezone(UTC) if value.tzinfo else value
        return utc.isoformat(sep=" ", timespec="microseconds")
    return value.isoformat() if database == "SQLite" and isinstance(value, date) else value


def rows_of(session: Session, table: TableName) -> list[tuple[Any, ...]]:
    names = [ATTEMPT, *POSITION, *(column.name for column in COLUMNS)]
    found = session.rows(
        f"SELECT {session.dialect.quoted_all(names)} FROM {session.quoted(table)} ORDER BY {POSITION[-1]}"
    )
    return [tuple(bytes(value) if isinstance(value, memoryview) else value for value in row) for row in found]


@pytest.mark.parametrize("seed", range(3))
def test_rows_loaded_in_bulk_are_those_of_the_driver(database: Database, session: Session, seed: int) -> None:
    random = Random(seed)
    whole = batch_of([[random_value(random, column.type) for column in COLUMNS] for _ in range(400)])
    for table in (LOADED, INSERTED):
        create_staging(session, table, COLUMNS, [])
    load(database, [whole.slice(0, 1), whole.slice(1, 150), whole.slice(151, 0), whole.slice(151)])
    insert(session, [list(row.values()) for row in whole.to_pylist()])
    for loaded, inserted in zip(rows_of(session, LOADED), rows_of(session, INSERTED), strict=True):
        assert loaded == inserted


def test_texts_come_back_as_they_were(database: Database, session: Session) -> None:
    columns = row_columns([("string", "string"), ("binary", "binary")])
    create_staging(session, LOADED, columns, [])
    nul = [] if session.dialect.name == "PostgreSQL" else ["a\0b", "\0", "\\0"]
    texts = [*FRAGMENTS, *nul, *(chr(code) for code in range(1, 256)), "x" * 3_000_000, "\\" * 1_500_000]
    load(database, [batch_of([(text, text.encode()) for text in texts], columns)], columns)
    found = session.rows(f"SELECT string, {session.dialect.quoted('binary')} FROM loaded ORDER BY {POSITION[-1]}")
    assert [(text, bytes(binary)) for text, binary in found] == [(text, text.encode()) for text in texts]


def test_a_server_without_backslash_escapes_gets_the_same_texts(mariadb: MariaDbServer) -> None:
    database = Database.at(mariadb.url)
    columns = row_columns([("string", "string")])
    with database.connected() as session:
        session.execute("SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'")
        try:
            for is_allowed in (0, 1):
                session.execute(f"SET GLOBAL local_infile = {is_allowed}")
                session.execute("DROP TABLE IF EXISTS loaded")
                create_staging(session, LOADED, columns, [])
                load(database, [batch_of([(text,) for text in FRAGMENTS], columns)], columns)
                found = session.rows(f"SELECT string FROM loaded ORDER BY {POSITION[-1]}")
                assert [text for (text,) in found] == list(FRAGMENTS)
        finally:
            session.execute("SET GLOBAL local_infile = 1, sql_mode = DEFAULT")


def test_how_rows_are_loaded_is_logged_where_the_server_allows_no_files(
    mariadb: MariaDbServer, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database.at(mariadb.url)
    columns = row_columns([("int", "int")])
    with database.connected() as session, caplog.at_level(logging.INFO):
        session.execute("DROP TABLE IF EXISTS loaded")
        create_staging(session, LOADED, columns, [])
        load(database, [batch_of([(1,)], columns)], columns)
        assert not caplog.messages
        session.execute("SET GLOBAL local_infile = 0")
        try:
            load(database, [batch_of([(1,)], columns)] * 3, columns)
        finally:
            session.execute("SET GLOBAL local_infile = 1")
    assert [message.partition(":")[0] for message in caplog.messages] == ["local_infile is off on the server"]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_text_with_nul_is_refused_by_postgresql_with_its_column(database: Database, session: Session) -> None:
    columns = row_columns([("string", "string")])
    create_staging(session, LOADED, columns, [])
    with pytest.raises(
        SinkError, match=r"column 'string' has text with the character NUL, which PostgreSQL cannot hold"
    ):
        load(database, [batch_of([("fine",), ("a\0b",)], columns)], columns)


@pytest.mark.parametrize("database", ["mariadb", "mariadb-by-insert"], indirect=True)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused_by_mysql_with_its_column(
    database: Database, session: Session, value: float
) -> None:
    columns = row_columns([("double", "double")])
    create_staging(session, LOADED, columns, [])
    with pytest.raises(SinkError, match=r"column 'double' has a value that is not a finite number, which MySQL cannot"):
        load(database, [batch_of([(1.0,), (None,), (value,)], columns)], columns)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
def test_what_is_no_number_is_kept_elsewhere(database: Database, session: Session) -> None:
    columns = row_columns([("double", "double")])
    create_staging(session, LOADED, columns, [])
    load(database, [batch_of([(math.inf,), (-math.inf,), (math.nan,)], columns)], columns)
    found = [value for (value,) in session.rows(f"SELECT {session.dialect.quoted('double')} FROM loaded ORDER BY 1")]
    assert {math.inf, -math.inf} < set(found)


@pytest.mark.parametrize("database", ["mariadb", "mariadb-by-insert", "postgresql"], indirect=True)
def test_text_that_is_not_utf8_is_refused_with_its_column(database: Database, session: Session) -> None:
    columns = row_columns([("string", "string")])
    create_staging(session, LOADED, columns, [])
    raw = pa.array([b"\xff"], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 1, raw.buffers())
    with pytest.raises(SinkError, match="column 'string' has text that is not valid UTF-8"):
        load(database, [pa.RecordBatch.from_arrays([broken], names=["string"])], columns)


@pytest.mark.parametrize("database", ["mariadb", "mariadb-by-insert"], indirect=True)
def test_a_value_that_mysql_would_cut_is_an_error(database: Database, session: Session) -> None:
    """LOAD DATA LOCAL makes it a warning, and loads what is left of the value."""
    columns = row_columns([("string", "string")])
    create_staging(session, LOADED, columns, ["string"])
    with pytest.raises(SinkError, match=r"database .*: Data (too long|truncated) for column 'string'"):
        load(database, [batch_of([("fine",), ("x" * 256,)], columns)], columns, key="string")
    assert session.rows("SELECT count(*) FROM loaded") == [(0,)]


@pytest.mark.parametrize("database", ["mariadb", "mariadb-by-insert", "postgresql"], indirect=True)
def test_an_attempt_that_fails_leaves_no_row(database: Database, session: Session) -> None:
    columns = row_columns([("int", "int")])
    create_staging(session, LOADED, columns, [])

    def stumble() -> None:
        with Staging(database, LOADED, columns).writer(attempt=7, task=3) as writer:
            writer.add(batch_of([(number,) for number in range(20_000)], columns))
            raise RuntimeError("stumbled")

    with pytest.raises(RuntimeError, match="stumbled"):
        stumble()
    assert session.rows("SELECT count(*) FROM loaded") == [(0,)]


@pytest.mark.parametrize("database", ["mariadb", "postgresql"], indirect=True)
def test_a_staging_table_that_is_still_written_is_left_for_the_next_run(
    database: Database, session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits = {"MySQL": "SET SESSION lock_wait_timeout = 0", "PostgreSQL": "SET lock_timeout = 1"}
    monkeypatch.setattr(Session, "limit_lock_wait", lambda self: self.execute(waits[self.dialect.name]))
    columns = row_columns([("int", "int")])
    create_staging(session, LOADED, columns, [])
    with Staging(database, LOADED, columns).writer(attempt=7, task=3) as writer:
        writer.add(batch_of([(1,)], columns))
        drop_staging(database, [LOADED])
    assert session.tables("load") == [LOADED]
    assert "staging table loaded is not dropped before the next run" in caplog.text
    drop_staging(database, [LOADED])
    assert session.tables("load") == []


def test_the_server_gets_no_file_but_the_one_that_is_loaded(mariadb: MariaDbServer, tmp_path: Path) -> None:
    secret, chosen = tmp_path / "secret", tmp_path / "chosen"
    for file in (secret, chosen):
        file.write_text("1\n")
    found = Database.at(mariadb.url)
    with found.connected() as driver:
        driver.execute("CREATE OR REPLACE TABLE barnabas_sent (id INT)")
        statement = "LOAD DATA LOCAL INFILE %s INTO TABLE barnabas_sent"
        with found.connected(for_loading=True) as session, pytest.raises(RuntimeError, match="local_infile"):
            session.execute(statement, [str(secret)])
        asked = pytest.raises(OperationalError, match=r"asked for .*secret")
        with found.connected(for_loading=True) as session, session.connection.sending(str(chosen)), asked:
            session.execute(statement, [str(secret)])
        assert driver.rows("SELECT id FROM barnabas_sent") == []
        with found.connected(for_loading=True) as session, session.connection.sending(str(chosen)):
            session.execute(statement, [str(chosen)])
        assert driver.rows("SELECT id FROM barnabas_sent") == [(1,)]
        driver.execute("DROP TABLE barnabas_sent")
