"""Rows on their way into a table: tasks fill them in by attempt, and they count only once the driver says so.

A staging table belongs to one sink. It has the columns of the rows, of the types that a new table would give them, and
two more: the *attempt* that wrote the row, and the row's number in it. An attempt is named by the write that it belongs
to, which is new each time, and by Spark's id of the task's attempt. So a task that Spark repeats, one that runs twice
by speculation, and one that outlives its driver each write rows that nobody else's name is on. The driver learns from
the tasks that Spark counts which attempts to merge; the others' rows are swept away, after the merge or when the sink
is next prepared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.spark.database.columns import RowColumn
from barnabas.spark.database.connections import Database, Session, TableName
from barnabas.spark.database.dialects import Dialect
from barnabas.spark.pipeline.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa

ATTEMPT, ROW = "barnabas_attempt", "barnabas_row"
CHUNK_ROWS = 5_000
"""Rows of one transaction: so many that a commit costs little, so few that other tasks get their turn."""


def staging_name(sink_key: str) -> TableName:
    """Readable, unique and short enough for every database."""
    digest = hashlib.sha256(sink_key.encode()).hexdigest()[:8]
    return TableName(None, f"barnabas_staging_{re.sub(r'[^a-z0-9]+', '_', sink_key.lower())[:30]}_{digest}")


def create_staging(session: Session, table: TableName, columns: Sequence[RowColumn], key: Sequence[str]) -> None:
    dialect = session.dialect
    attempt = RowColumn(ATTEMPT, "string"), RowColumn(ROW, "bigint")
    declared = [dialect.declared(column, is_key=True) for column in attempt]
    # Columns of the key are declared as they are in a table of keys, or they would be compared differently here.
    declared += [dialect.declared(column, is_key=column.name in key) for column in columns]
    session.execute(
        f"CREATE TABLE {session.quoted(table)} ({', '.join(declared)},"
        f" PRIMARY KEY ({dialect.quoted_all([ATTEMPT, ROW])})){dialect.table_options}"
    )


@dataclass(frozen=True, slots=True)
class Filled:
    """What a task tells the driver when it is done."""

    task: int
    attempt: str
    rows: int


FILLED_SCHEMA = "task int, attempt string, rows bigint"


@dataclass(frozen=True, slots=True)
class StagingTask:
    """What runs in each task: a function from the task's Arrow batches to one row that tells what it has staged."""

    database: Database
    table: TableName
    columns: tuple[RowColumn, ...]
    key: tuple[str, ...]
    write_id: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        attempt = f"{self.write_id}-{context.taskAttemptId()}"
        rows = self.fill(batches, attempt)
        yield pa.RecordBatch.from_pylist(
            [{"task": context.partitionId(), "attempt": attempt, "rows": rows}],
            pa.schema([("task", pa.int32()), ("attempt", pa.string()), ("rows", pa.int64())]),
        )

    def fill(self, batches: Iterable[pa.RecordBatch], attempt: str) -> int:
        """Stage the rows under the attempt's name, and count them."""
        filled = 0
        with self.database.connected() as session:
            names = [ATTEMPT, ROW, *(column.name for column in self.columns)]
            statement = (
                f"INSERT INTO {session.quoted(self.table)} ({session.dialect.quoted_all(names)})"
                f" VALUES ({session.dialect.marks(len(names))})"
            )
            for batch in batches:
                for begin in range(0, batch.num_rows, CHUNK_ROWS):
                    chunk = batch.slice(begin, CHUNK_ROWS)
                    values = self._values(chunk, session.dialect)
                    numbers = range(filled, filled + chunk.num_rows)
                    with session.transaction():
                        session.execute_many(statement, list(zip([attempt] * chunk.num_rows, numbers, *values)))
                    filled += chunk.num_rows
        return filled

    def _values(self, batch: pa.RecordBatch, dialect: Dialect) -> list[list[Any]]:
        """The values of each column, as the database's driver takes them."""
        found = []
        for column in self.columns:
            array = batch.column(column.name)
            if column.name in self.key and array.null_count:
                raise SinkError(f"a row has no '{column.name}', which is part of the key")
            values = array.to_pylist()
            adapt = dialect.adapt.get(column.kind)
            found.append([None if value is None else adapt(value) for value in values] if adapt else values)
        return found


def sweep(session: Session, table: TableName) -> None:
    """Remove whatever is staged, by whoever."""
    session.execute(f"DELETE FROM {session.quoted(table)}")
