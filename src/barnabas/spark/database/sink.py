"""The sink `database`: a table of SQLite, MySQL, MariaDB or PostgreSQL, each row exactly once.

    kind: database
    url: mysql://loader@db.example:3306/shop     # or a path: a SQLite file
    password_env: SHOP_PASSWORD
    table: orders
    mode: upsert                                 # or append, the default
    key: [order_id]
    create: true

A batch takes two steps. Tasks write their rows to a staging table (`staging`); then the driver moves them to the table
and notes the offsets behind them, in one transaction (`merge`). Whatever dies before that transaction is committed has
changed nothing; whatever dies after it finds the batch done.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from barnabas.spark.database.columns import RowColumn, check_fit, nearest, row_columns
from barnabas.spark.database.connections import Database, Session, TableName
from barnabas.spark.database.dialects import SQLITE
from barnabas.spark.database.merge import Notes, Target, merge
from barnabas.spark.database.staging import (
    ORIGIN,
    create_staging,
    drop_staging,
    new_staging,
    staging_prefix,
)
from barnabas.spark.direct.rows import DirectRows
from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.sinks import NOTHING, ORIGIN_COLUMNS, Batch, Offsets, SinkContext, SinkKind, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class WriteMode(StrEnum):
    APPEND = "append"
    UPSERT = "upsert"


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """What a pipeline's file says about the sink."""

    url: str
    table: str
    mode: WriteMode = WriteMode.APPEND
    key: tuple[str, ...] = ()
    """Columns by which an upsert finds the row that it replaces."""
    latest_by: str | None = None
    """A column: an upsert replaces a row only by one whose value there is not less."""
    create: bool = False
    """Whether a table that is not there is made from the rows."""
    password_env: str | None = None
    """The environment variable that holds the password, so that no file does."""

    def __post_init__(self) -> None:
        if (self.mode is WriteMode.UPSERT) != bool(self.key):
            raise ValueError("`mode: upsert` and `key` go together: which columns tell that a row is the same?")
        if self.latest_by is not None and self.mode is not WriteMode.UPSERT:
            raise ValueError("`latest_by` decides between rows with one key: it needs `mode: upsert`")
        Database.at(self.url)


class DatabaseSink:
    """See the module. Holds no connection between calls, so nothing has to be kept alive."""

    def __init__(self, settings: DatabaseSettings, context: SinkContext) -> None:
        self.name = context.sink
        self._settings = settings
        self._key = f"{context.pipeline}/{context.sink}"
        self._table = TableName.parse(settings.table)
        self._database = Database.at(settings.url)
        self._spark: SparkSession | None = None

    def prepare(self, spark: SparkSession) -> None:
        self._spark = spark
        self._find_password()
        master = spark.sparkContext.master or ""
        if self._database.dialect is SQLITE and not master.startswith("local"):
            raise SinkError(
                f"sink '{self.name}': a SQLite file is on one machine, and the tasks of {master} are on others:"
                " use MariaDB or PostgreSQL, or a local master"
            )
        with self._database.connected() as session:
            notes = Notes(session, self._key)
            notes.create()
            notes.probe()
            left_behind = session.tables(staging_prefix(self._key))
            existing = session.columns(self._table)
            if existing:
                self._check_key(session, {column.name for column in existing})
            elif not self._settings.create:
                raise SinkError(
                    f"there is no table '{self._table}' in {self._database.label}: create it, or say `create: true`"
                )
        drop_staging(self._database, left_behind)

    def look(self, spark: SparkSession) -> Offsets | None:
        self._find_password()
        if not self._database.is_there:
            return None
        with self._database.connected() as session:
            notes = Notes(session, self._key)
            return notes.offsets() or None if notes.are_there() else None

    def done_offsets(self) -> Offsets | None:
        with self._database.connected() as session:
            return Notes(session, self._key).offsets() or None

    def direct_obstacle(self, spark: SparkSession, columns: Collection[str]) -> str | None:
        if self._settings.key and not set(ORIGIN) <= set(columns):
            return f"an upsert finds the last row of a key by {', '.join(ORIGIN)}, which the rows lack"
        return None

    def write(self, rows: DataFrame | DirectRows, batch: Batch) -> Written:
        from barnabas.spark.database.staging_job import explained, stage, stage_direct
        from barnabas.spark.database.staging_task import Staging

        with self._database.connected() as session:
            with session.transaction():
                if Notes(session, self._key).is_done(batch):
                    return NOTHING
            columns = self._fitting(session, rows.schema)
            table = new_staging(self._key)
            create_staging(session, table, columns, self._settings.key)
        try:
            staging = Staging(self._database, table, columns, self._settings.key, sorted(batch.end))
            unsure = 0
            with explained(self._table):
                if isinstance(rows, DirectRows):
                    filled, unsure = stage_direct(self._prepared(), rows, batch, staging)
                else:
                    filled = stage(rows, staging)
            names = [column.name for column in columns]
            target = Target(self._table, names, self._settings.key, self._settings.latest_by)
            with self._database.connected() as session:
                return Written(merge(Notes(session, self._key), batch, filled, table, target), unsure=unsure)
        finally:
            drop_staging(self._database, [table])

    def close(self) -> None:
        self._spark = None

    def _prepared(self) -> SparkSession:
        assert self._spark is not None, "prepare comes first"
        return self._spark

    def _find_password(self) -> None:
        variable = self._settings.password_env
        if variable is not None:
            if variable not in os.environ:
                raise SinkError(f"sink '{self.name}': the environment has no {variable}, which is to hold the password")
            self._database = Database.at(self._settings.url, os.environ[variable])

    def _check_key(self, session: Session, names: set[str]) -> None:
        """An upsert leans on an index that lets a key in once; without it rows would be doubled, or refused one day."""
        key = frozenset(self._settings.key)
        for name in key - names:
            raise SinkError(f"table '{self._table}' has no column '{name}', which `key` names{nearest(name, names)}")
        if key and key not in session.unique_keys(self._table):
            columns = ", ".join(self._settings.key)
            raise SinkError(
                f"table '{self._table}' has neither a primary key nor a unique index on ({columns}),"
                " which an upsert by this key needs"
            )

    def _fitting(self, session: Session, schema: StructType) -> tuple[RowColumn, ...]:
        """The columns of the rows that go into the table, which is made if it is not there and may be."""
        existing = session.columns(self._table)
        held = {column.name for column in existing}
        columns = row_columns(
            [
                (field.name, field.dataType.simpleString())
                for field in schema
                if field.name not in ORIGIN_COLUMNS or field.name in held
            ]
        )
        names = [column.name for column in columns]
        for name in (*self._settings.key, *filter(None, [self._settings.latest_by])):
            if name not in names:
                raise SinkError(f"the rows have no column '{name}', by which they are told apart{nearest(name, names)}")
        if not existing:
            self._create(session, columns)
        else:
            check_fit(str(self._table), existing, columns)
        return columns

    def _create(self, session: Session, columns: tuple[RowColumn, ...]) -> None:
        key, dialect = self._settings.key, session.dialect
        declared = [dialect.declared(column, is_key=column.name in key) for column in columns]
        if key:
            declared.append(f"PRIMARY KEY ({dialect.quoted_all(key)})")
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {session.quoted(self._table)} ({', '.join(declared)}){dialect.table_options}"
        )


KIND = SinkKind(DatabaseSettings, DatabaseSink, may_be_direct=lambda settings: True)
