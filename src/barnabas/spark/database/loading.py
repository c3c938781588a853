"""How a task's rows get into a staging table, by database: each attempt in one transaction, where that is possible.

PostgreSQL       one COPY, which is a transaction by itself
MySQL, MariaDB   LOAD DATA LOCAL of a temporary file for each batch, or, where the server does not allow it, INSERTs of
                 many rows; all in one transaction
SQLite           INSERTs in transactions of CHUNK_ROWS, because only one task can write at a time, and the others wait
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from barnabas.spark.database.column_text import COPY, INSERT, LOAD_DATA, pieces
from barnabas.spark.database.columns import Kind, RowColumn
from barnabas.spark.database.connections import Session, TableName
from barnabas.spark.database.dialects import MYSQL, POSTGRESQL, SQLITE

log = logging.getLogger(__name__)

CHUNK_ROWS = 5_000
"""Rows of one transaction in SQLite: enough that a commit costs little, few enough that other tasks get their turn."""
FILE_BYTES = 32 << 20
STATEMENT_BYTES = 1 << 20
"""Of one INSERT: far below what servers take (max_allowed_packet, 16 MB or more by default)."""


@dataclass(frozen=True, slots=True)
class LoadColumns:
    """What is loaded: numbers that the sink adds to each row, and the columns of the rows."""

    numbers: Sequence[str]
    columns: Sequence[RowColumn]

    @property
    def names(self) -> list[str]:
        return [*self.numbers, *(column.name for column in self.columns)]

    def of(self, rows: pa.RecordBatch) -> list[tuple[str, Kind, pa.Array]]:
        return [(column.name, column.kind, rows.column(column.name)) for column in self.columns]


AddRows = Callable[[Sequence[pa.Array], pa.RecordBatch], None]
"""Adds rows, each with its numbers."""


def loading(session: Session, table: TableName, what: LoadColumns) -> AbstractContextManager[AddRows]:
    """Rows that are added are there once the context is left; an exception takes them back, in SQLite but for some."""
    return _LOADERS[session.dialect.name](session, table, what)


@contextmanager
def _copy(session: Session, table: TableName, what: LoadColumns) -> Iterator[AddRows]:
    statement = f"COPY {_named(session, table, what)} FROM STDIN"
    with closing(session.connection.cursor()) as cursor, cursor.copy(statement) as copy:

        def add(numbers: Sequence[pa.Array], rows: pa.RecordBatch) -> None:
            for piece in pieces(COPY.rows(numbers, what.of(rows)), FILE_BYTES):
                copy.write(piece)

        yield add


def _named(session: Session, table: TableName, what: LoadColumns) -> str:
    """The table and its columns, for a statement without marks of values: there a percent sign is written once."""
    return f"{session.quoted(table)} ({session.dialect.quoted_all(what.names)})".replace("%%", "%")


@contextmanager
def _into_mysql(session: Session, table: TableName, what: LoadColumns) -> Iterator[AddRows]:
    ((is_allowed,),) = session.rows("SELECT @@local_infile")
    if not is_allowed:
        log.info("local_infile is off on the server: rows are loaded by INSERT, which takes about twice as long")
    with session.transaction(), (_load_data if is_allowed else _insert)(session, table, what) as add:
        yield add


@contextmanager
def _load_data(session: Session, table: TableName, what: LoadColumns) -> Iterator[AddRows]:
    connection, quoted = session.connection, session.dialect.quoted
    # A variable takes the digits of a binary value, and its bytes go to the column.
    variables = {each.name: f"@v{index}" for index, each in enumerate(what.columns) if each.kind is Kind.BINARY}
    names = ", ".join(variables.get(name) or quoted(name) for name in what.names)
    values = ", ".join(f"{quoted(name)} = UNHEX({variable})" for name, variable in variables.items())
    statement = (
        f"LOAD DATA LOCAL INFILE %s INTO TABLE {session.quoted(table)} CHARACTER SET utf8mb4"
        r" FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n'"
        f" ({names}){' SET ' if values else ''}{values}"
    )
    with tempfile.NamedTemporaryFile(prefix="barnabas-") as file:

        def add(numbers: Sequence[pa.Array], rows: pa.RecordBatch) -> None:
            for piece in pieces(LOAD_DATA.rows(numbers, what.of(rows)), FILE_BYTES):
                file.seek(0)
                file.truncate()
                file.write(piece)
                file.flush()
                with connection.sending(file.name):
                    session.execute(statement, [file.name])
                _raise_first_warning(session)

        yield add


def _raise_first_warning(session: Session) -> None:
    """With LOCAL, the server makes a warning of what is an error elsewhere, and changes the value or drops the row."""
    from pymysql.err import DataError

    for level, code, message in session.rows("SHOW WARNINGS"):
        if level != "Note":
            raise DataError(code, message)


@contextmanager
def _insert(session: Session, table: TableName, what: LoadColumns) -> Iterator[AddRows]:
    statement = f"INSERT INTO {_named(session, table, what)} VALUES ".encode()

    def add(numbers: Sequence[pa.Array], rows: pa.RecordBatch) -> None:
        for piece in pieces(INSERT.rows(numbers, what.of(rows)), STATEMENT_BYTES):
            session.execute_text(statement + piece[:-1])

    yield add


@contextmanager
def _into_sqlite(session: Session, table: TableName, what: LoadColumns) -> Iterator[AddRows]:
    names = what.names
    statement = (
        f"INSERT INTO {session.quoted(table)} ({session.dialect.quoted_all(names)})"
        f" VALUES ({session.dialect.marks(len(names))})"
    )

    def add(numbers: Sequence[pa.Array], rows: pa.RecordBatch) -> None:
        for begin in range(0, len(rows), CHUNK_ROWS):
            leading = [each.slice(begin, CHUNK_ROWS).to_pylist() for each in numbers]
            values = [_python_values(kind, each) for _, kind, each in what.of(rows.slice(begin, CHUNK_ROWS))]
            with session.transaction():
                session.execute_many(statement, list(zip(*leading, *values)))

    yield add


def _python_values(kind: Kind, array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist()
    convert = _SQLITE_VALUES.get(kind)
    return [None if value is None else convert(value) for value in values] if convert else values


def _sortable(value: datetime) -> str:
    """Text of one width, in UTC, that SQLite's own functions of time understand."""
    return (value.astimezone(UTC) if value.tzinfo else value).isoformat(sep=" ", timespec="microseconds")


_SQLITE_VALUES: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.DECIMAL: str,
    Kind.DATE: date.isoformat,
    Kind.TIMESTAMP: _sortable,
}
_LOADERS = {POSTGRESQL.name: _copy, MYSQL.name: _into_mysql, SQLITE.name: _into_sqlite}
