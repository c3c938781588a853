"""The one transaction that makes a batch visible: staged rows into the table, and the note that the batch is done.

The note is a row of `barnabas_offsets` for each partition that the batch has read, or, for a batch of a stateful query,
the batch's number in `barnabas_batches`. Its rows are read first and stay locked, so that of two drivers with the same
batch one waits, and then finds that the batch is done, or that somebody else has moved on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.spark.database.connections import Session, TableName
from barnabas.spark.database.dialects import Update
from barnabas.spark.database.staging import ATTEMPT, POSITION, Filled
from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.place import Place
from barnabas.spark.pipeline.sinks import Batch, Offsets

_NAME = "VARCHAR(255) NOT NULL"
_NOTES = (
    f"CREATE TABLE IF NOT EXISTS barnabas_offsets (sink {_NAME}, topic {_NAME}, part INTEGER NOT NULL,"
    " next_offset BIGINT NOT NULL, PRIMARY KEY (sink, topic, part))",
    f"CREATE TABLE IF NOT EXISTS barnabas_batches (sink {_NAME}, query_id {_NAME}, batch BIGINT NOT NULL,"
    " PRIMARY KEY (sink, query_id))",
)


@dataclass(frozen=True, slots=True)
class Notes:
    """How far a sink is, kept beside its rows."""

    session: Session
    sink: str

    def are_there(self) -> bool:
        return bool(self.session.columns(TableName(None, "barnabas_offsets")))

    def create(self) -> None:
        for statement in _NOTES:
            self.session.execute(statement + self.session.dialect.table_options)

    def probe(self) -> None:
        """Fail here, with nothing lost, if the database cannot be written."""
        probe = f"probe of {self.sink}"
        with self.session.transaction():
            self._insert("barnabas_batches", probe, "", 0)
            self._delete("barnabas_batches", sink=probe)

    def offsets(self, *, lock: bool = False) -> Offsets:
        dialect = self.session.dialect
        statement = f"SELECT topic, part, next_offset FROM barnabas_offsets WHERE sink = {dialect.mark}"
        found = self.session.rows(statement + (dialect.lock if lock else ""), [self.sink])
        return {(topic, part): next_offset for topic, part, next_offset in found}

    def last_batch(self, query_id: str) -> int:
        """-1 if there is none."""
        dialect = self.session.dialect
        statement = f"SELECT batch FROM barnabas_batches WHERE sink = {dialect.mark} AND query_id = {dialect.mark}"
        found = self.session.rows(statement + dialect.lock, [self.sink, query_id])
        return next((int(batch) for (batch,) in found), -1)

    def is_done(self, batch: Batch) -> bool:
        """Locks what it looks at."""
        if batch.is_by_offsets:
            return Place(self.offsets(lock=True)).has(batch)
        return Place(batches={batch.query_id: self.last_batch(batch.query_id)}).has(batch)

    def set_done(self, batch: Batch) -> None:
        if not batch.is_by_offsets:
            self._delete("barnabas_batches", sink=self.sink, query_id=batch.query_id)
            self._insert("barnabas_batches", self.sink, batch.query_id, batch.number)
        for (topic, partition), end in batch.end.items():
            self._delete("barnabas_offsets", sink=self.sink, topic=topic, part=partition)
            self._insert("barnabas_offsets", self.sink, topic, partition, end)

    def _insert(self, table: str, *values: str | int) -> None:
        self.session.execute(f"INSERT INTO {table} VALUES ({self.session.dialect.marks(len(values))})", values)

    def _delete(self, table: str, **where: str | int) -> None:
        condition = " AND ".join(f"{name} = {self.session.dialect.mark}" for name in where)
        self.session.execute(f"DELETE FROM {table} WHERE {condition}", [*where.values()])


@dataclass(frozen=True, slots=True)
class Target:
    """The table that rows end up in. Without a key they are appended."""

    table: TableName
    columns: Sequence[str]
    key: Sequence[str] = ()
    latest_by: str | None = None


def merge(notes: Notes, batch: Batch, filled: Sequence[Filled], staging: TableName, target: Target) -> int:
    """Make what these attempts have staged, and the end of the batch, visible together; the rows of the batch."""
    session = notes.session
    attempts = [one for one in filled if one.rows]
    chosen = f"{session.quoted(staging)} WHERE {ATTEMPT} IN ({', '.join(str(one.attempt) for one in attempts)})"
    with session.transaction():
        if notes.is_done(batch):
            return 0
        if attempts:
            counts = dict(session.rows(f"SELECT {ATTEMPT}, count(*) FROM {chosen} GROUP BY {ATTEMPT}"))
            for one in attempts:
                staged = counts.get(one.attempt, 0)
                if staged != one.rows:
                    raise SinkError(
                        f"task {one.task} has staged {one.rows} rows, and {staged} are there: is another run at work?"
                        " Nothing was written"
                    )
            session.execute(_insert(session, target, chosen))
        notes.set_done(batch)
    return sum(one.rows for one in attempts)


def _insert(session: Session, target: Target, chosen: str) -> str:
    """The statement that moves the chosen rows. Of several rows with one key the last one of the topic stays."""
    dialect = session.dialect
    table, names = session.quoted(target.table), dialect.quoted_all(target.columns)
    insert, in_order = f"INSERT INTO {table} ({names}) SELECT {names} FROM", f"{chosen} ORDER BY {', '.join(POSITION)}"
    if not target.key:
        return f"{insert} {in_order}"
    latest = dialect.quoted(target.latest_by) if target.latest_by else None
    others = [name for name in target.columns if name not in target.key]
    update = Update(table, [*map(dialect.quoted, target.key)], [*map(dialect.quoted, others)], latest)
    if dialect.replaces_in_order:
        return f"{insert} {in_order}{dialect.replace(update)}"
    order = [*([f"{latest} IS NULL", f"{latest} DESC"] if latest else []), *(f"{name} DESC" for name in POSITION)]
    ranked = (
        f"SELECT {names}, row_number() OVER (PARTITION BY {dialect.quoted_all(target.key)} ORDER BY {', '.join(order)})"
        f" AS barnabas_rank FROM {chosen}"
    )
    return f"{insert} ({ranked}) AS ranked WHERE barnabas_rank = 1{dialect.replace(update)}"
