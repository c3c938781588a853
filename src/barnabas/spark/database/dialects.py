"""What SQLite, MySQL (with MariaDB) and PostgreSQL say differently, as one table.

Everything else is SQL that all three understand. Connections are in autocommit mode, and transactions are begun and
ended by statements, which is the one way that the three drivers share.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from barnabas.spark.database.columns import Kind, RowColumn

Connection = Any
"""A DB-API connection: the drivers share no base class."""

LOCK_WAIT_S = 60
"""How long a task waits for others that write to the same SQLite file."""
CONNECT_TIMEOUT_S = 20
DROP_WAIT_S = 5
"""How long the driver waits for a task that still writes to a table that is to be dropped."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one database is reached and spoken to. `{}` in a type stands for a decimal's parameters."""

    name: str
    driver: str
    """The module of the driver, which is also the package to install."""
    connect: Callable[[str, str | None, bool], Connection]
    """From the sink's URL, a password that is not in it, and whether it is for loading rows."""
    quote: str
    mark: str
    """The placeholder of a value."""
    begin: str
    lock: str
    """What makes a SELECT hold the rows that it found until the transaction ends."""
    limit_lock_wait: str
    """Makes statements of the connection fail that wait for a lock for more than DROP_WAIT_S."""
    types: Mapping[str, str]
    """What a new column is declared as, by Spark's word for its type."""
    key_types: Mapping[str, str]
    """The same for columns of a key, where it differs."""
    table_options: str
    staging_table: str
    """What stands after CREATE for a table that need not survive a crash of the database."""
    accepts: Callable[[str], frozenset[Kind]]
    """The kinds that a column takes without a cast, by its declared type."""
    columns: str
    """Name, declared type, and whether a value is required, of each column of the table `schema`, `table`."""
    tables: str
    """The names of the tables that begin with `prefix`."""
    unique_columns: str
    """Index and column, for each column of each unique index of the table."""
    replace: Callable[[Update], str]
    """What follows an INSERT so that rows replace those with the same key."""
    replaces_in_order: bool
    """Whether an INSERT may do so several times for one key, row by row: else it gets one row of each key."""
    complaints: Mapping[str | int, str]
    """What an error means, by its number, SQLSTATE or a part of its message."""

    def quoted(self, name: str) -> str:
        safe = name.replace(self.quote, self.quote * 2)
        # Where `%s` marks a value, a percent sign in a name is written twice.
        return f"{self.quote}{safe.replace('%', '%%') if self.mark == '%s' else safe}{self.quote}"

    def quoted_all(self, names: Sequence[str]) -> str:
        return ", ".join(map(self.quoted, names))

    def marks(self, count: int) -> str:
        return ", ".join([self.mark] * count)

    def declared(self, column: RowColumn, is_key: bool) -> str:
        """How a new table declares the column."""
        types = {**self.types, **self.key_types} if is_key else self.types
        parameters = column.type[len(column.word) :]
        return f"{self.quoted(column.name)} {types[column.word].format(parameters)}{' NOT NULL' if is_key else ''}"

    def explained(self, error: Exception) -> str:
        """The driver's message, and what it means where that is known."""
        codes = (getattr(error, "sqlstate", None), *error.args[:1])
        message = str(error.args[1] if len(error.args) > 1 else error).strip().partition("\n")[0]
        known = (
            means
            for complaint, means in self.complaints.items()
            if complaint in codes or (isinstance(complaint, str) and complaint in message)
        )
        means = next(known, None)
        return f"{message} ({means})" if means else message


@dataclass(frozen=True, slots=True)
class Update:
    """What a row does to the one with the same key. All names are quoted."""

    table: str
    key: Sequence[str]
    others: Sequence[str]
    latest_by: str | None


def _on_conflict(update: Update) -> str:
    if not update.others:
        return f" ON CONFLICT ({', '.join(update.key)}) DO NOTHING"
    latest, table = update.latest_by, update.table
    guard = f" WHERE {table}.{latest} IS NULL OR excluded.{latest} >= {table}.{latest}" if latest else ""
    changes = ", ".join(f"{name} = excluded.{name}" for name in update.others)
    return f" ON CONFLICT ({', '.join(update.key)}) DO UPDATE SET {changes}{guard}"


def _on_duplicate_key(update: Update) -> str:
    """MySQL has no guard for all columns at once, and assigns from left to right: the guarding column comes last."""
    latest, table = update.latest_by, update.table
    names = sorted(update.others, key=lambda name: name == latest) or list(update.key)
    wins = f"{table}.{latest} IS NULL OR VALUES({latest}) >= {table}.{latest}" if latest else "TRUE"
    changes = ", ".join(f"{name} = IF({wins}, VALUES({name}), {table}.{name})" for name in names)
    return f" ON DUPLICATE KEY UPDATE {changes}"


def _sqlite(url: str, _password: str | None, _for_loading: bool) -> Connection:
    connection = sqlite3.connect(url.removeprefix("sqlite://"), timeout=LOCK_WAIT_S, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _mysql(url: str, password: str | None, for_loading: bool) -> Connection:
    import pymysql
    from pymysql.constants import CLIENT

    from barnabas.spark.database.mysql_files import LoadingConnection

    place = urlsplit(url)
    return (LoadingConnection if for_loading else pymysql.connect)(
        **_server(place, password),
        database=place.path.strip("/"),
        charset="utf8mb4",
        autocommit=True,
        client_flag=CLIENT.FOUND_ROWS,
        # Without strict mode a value that does not fit is cut. Texts are escaped by backslashes.
        init_command="SET SESSION sql_mode = CONCAT(REPLACE(@@sql_mode, 'NO_BACKSLASH_ESCAPES', ''),"
        " ',STRICT_ALL_TABLES'), time_zone = '+00:00', max_error_count = 64",
        connect_timeout=CONNECT_TIMEOUT_S,
    )


def _postgresql(url: str, password: str | None, _for_loading: bool) -> Connection:
    import psycopg

    place = urlsplit(url)
    return psycopg.connect(
        **_server(place, password),
        dbname=place.path.strip("/"),
        autocommit=True,
        connect_timeout=CONNECT_TIMEOUT_S,
        options="-c timezone=UTC",
    )


def _server(place: SplitResult, password: str | None) -> dict[str, Any]:
    given = {
        "host": place.hostname,
        "port": place.port,
        "user": unquote(place.username) if place.username else None,
        "password": password or (unquote(place.password) if place.password else None),
    }
    return {name: value for name, value in given.items() if value is not None}


_NUMBERS = frozenset({Kind.INTEGER, Kind.REAL, Kind.DECIMAL})
_TIMES = frozenset({Kind.DATE, Kind.TIMESTAMP})
_ALL = frozenset(Kind)


def _sqlite_accepts(declared: str) -> frozenset[Kind]:
    """By SQLite's rules of affinity; numbers must stay what they are, and decimals and times are kept as text."""
    word = declared.upper()
    if "INT" in word:
        return frozenset({Kind.BOOLEAN, Kind.INTEGER})
    if any(part in word for part in ("CHAR", "CLOB", "TEXT")):
        return frozenset({Kind.TEXT, Kind.DECIMAL, *_TIMES})
    if any(part in word for part in ("REAL", "FLOA", "DOUB")):
        return frozenset({Kind.INTEGER, Kind.REAL})
    if not word or "BLOB" in word:
        return _ALL
    return frozenset({Kind.BOOLEAN, *_NUMBERS, *_TIMES})


_MYSQL_ACCEPTS = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), frozenset({Kind.BOOLEAN, Kind.INTEGER})),
    **dict.fromkeys(("float", "double"), _NUMBERS),
    "decimal": frozenset({Kind.BOOLEAN, Kind.INTEGER, Kind.DECIMAL}),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum"), frozenset({Kind.TEXT})),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), frozenset({Kind.BINARY, Kind.TEXT})
    ),
    "json": frozenset({Kind.TEXT}),
    "date": frozenset({Kind.DATE}),
    **dict.fromkeys(("datetime", "timestamp"), _TIMES),
}
_POSTGRESQL_ACCEPTS = {
    "boolean": frozenset({Kind.BOOLEAN}),
    **dict.fromkeys(("smallint", "integer", "bigint"), frozenset({Kind.INTEGER})),
    **dict.fromkeys(("real", "double precision", "numeric"), _NUMBERS),
    **dict.fromkeys(("text", "character varying", "character"), frozenset({Kind.TEXT})),
    "bytea": frozenset({Kind.BINARY}),
    "date": frozenset({Kind.DATE}),
    **dict.fromkeys(("timestamp without time zone", "timestamp with time zone"), _TIMES),
}


SQLITE = Dialect(
    name="SQLite",
    driver="sqlite3",
    connect=_sqlite,
    quote='"',
    mark="?",
    begin="BEGIN IMMEDIATE",
    lock="",
    limit_lock_wait="",
    types={
        "boolean": "BOOLEAN",
        "tinyint": "INTEGER",
        "smallint": "INTEGER",
        "int": "INTEGER",
        "bigint": "INTEGER",
        "float": "REAL",
        "double": "REAL",
        "decimal": "TEXT",
        "string": "TEXT",
        "binary": "BLOB",
        "date": "TEXT",
        "timestamp": "TEXT",
        "timestamp_ntz": "TEXT",
    },
    key_types={},
    table_options="",
    staging_table="TABLE",
    accepts=_sqlite_accepts,
    columns='SELECT name, type, "notnull" AND dflt_value IS NULL'
    " FROM pragma_table_info(:table, coalesce(:schema, 'main')) ORDER BY cid",
    tables="SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, length(:prefix)) = :prefix",
    unique_columns="SELECT found.name, held.name FROM pragma_index_list(:table) AS found"
    ' JOIN pragma_index_info(found.name) AS held WHERE found."unique" AND NOT found.partial'
    " UNION ALL SELECT '', name FROM pragma_table_info(:table, coalesce(:schema, 'main')) WHERE pk > 0",
    replace=_on_conflict,
    replaces_in_order=False,
    complaints={
        "readonly": "the file or its directory is read-only",
        "is full": "free some space, or move the database",
        "unable to open": "its directory must exist and be writable",
        "is locked": f"another program has kept it locked for {LOCK_WAIT_S} s",
        "not a database": "the file is something else",
        "malformed": "the file is damaged",
    },
)

MYSQL = Dialect(
    name="MySQL",
    driver="pymysql",
    connect=_mysql,
    quote="`",
    mark="%s",
    begin="START TRANSACTION",
    lock=" FOR UPDATE",
    limit_lock_wait=f"SET SESSION lock_wait_timeout = {DROP_WAIT_S}",
    types={
        "boolean": "BOOLEAN",
        "tinyint": "TINYINT",
        "smallint": "SMALLINT",
        "int": "INT",
        "bigint": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "decimal": "DECIMAL{}",
        "string": "LONGTEXT",
        "binary": "LONGBLOB",
        "date": "DATE",
        "timestamp": "DATETIME(6)",
        "timestamp_ntz": "DATETIME(6)",
    },
    key_types={"string": "VARCHAR(255)", "binary": "VARBINARY(255)"},
    # Keys that differ in case alone are two keys, as they are in Spark.
    table_options=" ENGINE InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    staging_table="TABLE",
    accepts=lambda declared: _MYSQL_ACCEPTS.get(declared.lower(), _ALL),
    columns="SELECT column_name, data_type,"
    " is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%%auto_increment%%'"
    " FROM information_schema.columns WHERE table_name = %(table)s"
    " AND table_schema = coalesce(%(schema)s, database()) ORDER BY ordinal_position",
    tables="SELECT table_name FROM information_schema.tables WHERE table_schema = database()"
    " AND substr(table_name, 1, length(%(prefix)s)) = %(prefix)s",
    unique_columns="SELECT index_name, column_name FROM information_schema.statistics WHERE non_unique = 0"
    " AND table_name = %(table)s AND table_schema = coalesce(%(schema)s, database())",
    replace=_on_duplicate_key,
    # MariaDB merges 150,000 rows in 2.1 s so, and in 3.6 s if they are ranked before.
    replaces_in_order=True,
    complaints={
        1021: "free some space on the server",
        1114: "free some space on the server",
        1044: "grant the user the right to this database",
        1045: "check user and password",
        1142: "grant the user the right to this table",
        1290: "the server is read-only",
        1792: "the server is read-only",
        1836: "the server is read-only",
        2003: "is the server running there?",
    },
)

POSTGRESQL = Dialect(
    name="PostgreSQL",
    driver="psycopg",
    connect=_postgresql,
    quote='"',
    mark="%s",
    begin="BEGIN",
    lock=" FOR UPDATE",
    limit_lock_wait=f"SET lock_timeout = '{DROP_WAIT_S}s'",
    types={
        "boolean": "BOOLEAN",
        "tinyint": "SMALLINT",
        "smallint": "SMALLINT",
        "int": "INTEGER",
        "bigint": "BIGINT",
        "float": "REAL",
        "double": "DOUBLE PRECISION",
        "decimal": "NUMERIC{}",
        "string": "TEXT",
        "binary": "BYTEA",
        "date": "DATE",
        "timestamp": "TIMESTAMPTZ",
        "timestamp_ntz": "TIMESTAMP",
    },
    key_types={},
    table_options="",
    staging_table="UNLOGGED TABLE",
    accepts=lambda declared: _POSTGRESQL_ACCEPTS.get(declared.lower(), _ALL),
    columns="SELECT column_name, data_type,"
    " is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO' AND is_generated = 'NEVER'"
    " FROM information_schema.columns WHERE table_name = %(table)s"
    " AND table_schema = coalesce(%(schema)s, current_schema()) ORDER BY ordinal_position",
    tables="SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND starts_with(tablename, %(prefix)s)",
    unique_columns="SELECT found.indexrelid::text, held.attname FROM pg_index found"
    " JOIN pg_class c ON c.oid = found.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
    " JOIN pg_attribute held ON held.attrelid = c.oid AND held.attnum = ANY(found.indkey)"
    " WHERE found.indisunique AND found.indpred IS NULL AND c.relname = %(table)s"
    " AND n.nspname = coalesce(%(schema)s, current_schema())",
    replace=_on_conflict,
    replaces_in_order=False,
    complaints={
        "53100": "free some space on the server",
        "25006": "the server is read-only",
        "42501": "grant the user the right to it",
        "28P01": "check user and password",
        "3D000": "create the database",
        "Connection refused": "is the server running there?",
    },
)

DIALECTS: Mapping[str, Dialect] = {
    "sqlite": SQLITE,
    "mysql": MYSQL,
    "mariadb": MYSQL,
    "postgresql": POSTGRESQL,
    "postgres": POSTGRESQL,
}
"""By the scheme of the URL."""
