"""A database that a sink writes to: how driver and tasks reach it, and how its errors are told.

A URL is `mysql://user@host:port/name`, `postgresql://...`, `sqlite:///path`, or just a path, which is a SQLite file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from barnabas.spark.database.columns import TableColumn, nearest
from barnabas.spark.database.dialects import DIALECTS, SQLITE, Connection, Dialect
from barnabas.spark.pipeline.errors import SinkError


@dataclass(frozen=True, slots=True)
class TableName:
    """`name`, or `schema.name`."""

    schema: str | None
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        schema, _, name = text.rpartition(".")
        return cls(schema or None, name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True)
class Database:
    """Where it is. Sent to tasks as it is, so it holds no connection."""

    url: str
    password: str | None = field(default=None, repr=False)

    @classmethod
    def at(cls, url: str, password: str | None = None) -> Database:
        """A ValueError tells what is wrong with a URL; the path of a file is made absolute."""
        scheme, found, rest = url.partition("://")
        if not found:
            return cls(f"sqlite://{Path(url).absolute()}")
        if scheme not in DIALECTS:
            raise ValueError(f"'{scheme}' is no database that is known here{nearest(scheme, DIALECTS)}")
        if DIALECTS[scheme] is SQLITE:
            return cls(f"sqlite://{Path(rest).absolute()}")
        place = urlsplit(url)
        if not place.hostname or not place.path.strip("/"):
            raise ValueError(f"a URL of a database is {scheme}://user@host:port/name")
        return cls(url, password)

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.url.partition("://")[0]]

    @property
    def label(self) -> str:
        """What errors call it: never with a password."""
        place = urlsplit(self.url)
        return place.path if self.dialect is SQLITE else f"{place.hostname}:{place.port or 'default port'}{place.path}"

    @property
    def is_there(self) -> bool:
        """Whether to connect is no more than that: SQLite makes a file that is not there."""
        return self.dialect is not SQLITE or Path(self.url.removeprefix("sqlite://")).exists()

    @contextmanager
    def connected(self, *, for_loading: bool = False) -> Iterator[Session]:
        """A connection of its own; whatever the database complains about becomes a SinkError."""
        try:
            driver = import_module(self.dialect.driver)
        except ImportError:
            raise SinkError(f"{self.dialect.name} is reached with {self.dialect.driver}: install it") from None
        try:
            with closing(self.dialect.connect(self.url, self.password, for_loading)) as connection:
                yield Session(self.dialect, connection)
        except driver.Error as error:
            raise SinkError(f"database {self.label}: {self.dialect.explained(error)}") from error


@dataclass(frozen=True, slots=True)
class Session:
    """Statements on one connection; a value is marked as the dialect does it."""

    dialect: Dialect
    connection: Connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """The number of rows that the statement has touched."""
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(statement, tuple(values))
            return int(cursor.rowcount)

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with closing(self.connection.cursor()) as cursor:
            cursor.executemany(statement, rows)

    def execute_text(self, statement: bytes) -> None:
        """A statement that holds its values, and in which a percent sign is nothing but itself."""
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(statement)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(statement, tuple(values))
            return [tuple(row) for row in cursor.fetchall()]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; an exception takes it back."""
        self.execute(self.dialect.begin)
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            with suppress(Exception):  # of a broken connection: the first error is the one to tell
                self.execute("ROLLBACK")
            raise

    def limit_lock_wait(self) -> None:
        if self.dialect.limit_lock_wait:
            self.execute(self.dialect.limit_lock_wait)

    def tables(self, prefix: str) -> list[TableName]:
        """Those whose names begin so."""
        return [TableName(None, name) for (name,) in self._catalog(self.dialect.tables, {"prefix": prefix})]

    def columns(self, table: TableName) -> list[TableColumn]:
        """None at all if the table is not there."""
        return [
            TableColumn(name, declared, bool(is_required), self.dialect.accepts(declared))
            for name, declared, is_required in self._catalog(self.dialect.columns, _named(table))
        ]

    def unique_keys(self, table: TableName) -> list[frozenset[str]]:
        """The columns of each index that lets a key in once."""
        keys: dict[str, set[str]] = {}
        for index, column in self._catalog(self.dialect.unique_columns, _named(table)):
            keys.setdefault(index, set()).add(column)
        return [frozenset(columns) for columns in keys.values()]

    def quoted(self, table: TableName) -> str:
        parts = [table.schema, table.name] if table.schema else [table.name]
        return ".".join(map(self.dialect.quoted, parts))

    def _catalog(self, statement: str, values: Mapping[str, str | None]) -> list[tuple[Any, ...]]:
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())


def _named(table: TableName) -> dict[str, str | None]:
    return {"schema": table.schema, "table": table.name}
