"""Rows on their way into a table: tasks stage them by attempt, and they count only once the driver merges them.

Each write has a staging table of its own, which is dropped after the merge. It has the columns of the rows, of the
types that a new table would give them, and numbers beside them: Spark's id of the task's *attempt*, and the row's
position in the batch. A task that Spark repeats, and one that runs twice by speculation, stage rows under different
attempts. The driver learns from the tasks that Spark counts which attempts to merge. What a task of another write still
stages, after its driver has died, is in another table, which is dropped when the sink is next prepared.

The position of a row is that of its record, its partition's number in the batch and its offset, where the rows say
where they come from; else the number of the task. Its number in the attempt decides between rows of one record.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.spark.database.columns import RowColumn
from barnabas.spark.database.connections import Database, Session, TableName
from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.sinks import OFFSET, PARTITION, TOPIC, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.spark.database.loading import AddRows

log = logging.getLogger(__name__)

ATTEMPT = "barnabas_attempt"
POSITION = ("barnabas_part", "barnabas_offset", "barnabas_row")
"""Rows are in the order of these columns."""
ORIGIN = (TOPIC, PARTITION, OFFSET)
_UNKNOWN = -1


def staging_prefix(sink_key: str) -> str:
    """What the names of a sink's staging tables begin with: readable, unique and short enough for every database."""
    digest = hashlib.sha256(sink_key.encode()).hexdigest()[:8]
    return f"barnabas_staging_{re.sub(r'[^a-z0-9]+', '_', sink_key.lower())[:30]}_{digest}"


def new_staging(sink_key: str) -> TableName:
    """The name of a staging table that no other write uses."""
    return TableName(None, f"{staging_prefix(sink_key)}_{secrets.token_hex(3)}")


def create_staging(session: Session, table: TableName, columns: Sequence[RowColumn], key: Sequence[str]) -> None:
    dialect = session.dialect
    declared = [dialect.declared(RowColumn(name, "bigint"), is_key=True) for name in (ATTEMPT, *POSITION)]
    # Columns of the key are declared as they are in a table of keys, or they would be compared differently here.
    declared += [dialect.declared(column, is_key=column.name in key) for column in columns]
    session.execute(
        f"CREATE {dialect.staging_table} {session.quoted(table)} ({', '.join(declared)}){dialect.table_options}"
    )


def drop_staging(database: Database, tables: Iterable[TableName]) -> None:
    """Drop staging tables; one that a task still writes to is left until the sink is next prepared."""
    for table in tables:
        try:
            with database.connected() as session:
                session.limit_lock_wait()
                session.execute(f"DROP TABLE IF EXISTS {session.quoted(table)}")
        except SinkError as problem:
            log.warning("staging table %s is not dropped before the next run: %s", table, problem)


@dataclass(frozen=True, slots=True)
class Filled:
    """What a task returns to the driver."""

    task: int
    attempt: int
    rows: int


@dataclass(frozen=True, slots=True)
class Staging:
    """Where tasks stage the rows of one write; is pickled for them."""

    database: Database
    table: TableName
    columns: tuple[RowColumn, ...]
    key: tuple[str, ...] = ()
    partitions: Sequence[TopicPartition] = ()
    """Of the batch, in their order."""

    @contextmanager
    def writer(self, attempt: int, task: int) -> Iterator[StagingWriter]:
        """What is written counts once the context is left without an exception."""
        from barnabas.spark.database.loading import LoadColumns, loading

        what = LoadColumns((ATTEMPT, *POSITION), self.columns)
        with self.database.connected(for_loading=True) as session, loading(session, self.table, what) as add:
            yield StagingWriter(self, add, attempt, task)


@dataclass(slots=True)
class StagingWriter:
    """Stages the rows of one attempt."""

    staging: Staging
    load: AddRows
    attempt: int
    task: int
    """Its number, in the order of the batch."""
    rows: int = field(default=0, init=False)

    def add(self, rows: pa.RecordBatch) -> None:
        import pyarrow as pa

        for name in self.staging.key:
            if rows.column(name).null_count:
                raise SinkError(f"a row has no '{name}', which is part of the key")
        count = len(rows)
        if not count:
            return
        part, offset = self._place(rows)
        numbers = pa.array(range(self.rows, self.rows + count), pa.int64())
        self.load([_repeat(self.attempt, count), part, offset, numbers], rows)
        self.rows += count

    def written(self) -> list[Mapping[str, Any]]:
        return [{"task": self.task, "attempt": self.attempt, "rows": self.rows}]

    def _place(self, rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Partition and offset of each row's record, or the task."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.staging.partitions or not set(ORIGIN) <= set(rows.schema.names):
            return _repeat(self.task, len(rows)), _repeat(0, len(rows))
        known = pa.array([f"{topic}/{partition}" for topic, partition in self.staging.partitions], pa.string())
        topic, partition, offset = (rows.column(name) for name in ORIGIN)
        named = pc.binary_join_element_wise(topic, partition.cast(pa.string()), "/")
        return pc.index_in(named, value_set=known).fill_null(_UNKNOWN), offset.fill_null(_UNKNOWN)


def _repeat(number: int, count: int) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(number, pa.int64()), count)


FILLED_SCHEMA = "task int, attempt bigint, rows bigint"


@dataclass(frozen=True, slots=True)
class StagingTask:
    """What runs in each task of Spark's: stages the task's Arrow batches, and returns one row about them."""

    staging: Staging

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        with self.staging.writer(context.taskAttemptId(), context.partitionId()) as writer:
            for batch in batches:
                writer.add(batch)
        schema = pa.schema([("task", pa.int32()), ("attempt", pa.int64()), ("rows", pa.int64())])
        yield pa.RecordBatch.from_pylist([dict(row) for row in writer.written()], schema)
