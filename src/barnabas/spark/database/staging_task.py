"""What tasks do to stage rows: each attempt numbers its rows and loads them.

The position of a row is that of its record, its partition's number in the batch and its offset, where the rows say
where they come from; else the number of the task. Its number in the attempt decides between rows of one record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.database.columns import RowColumn
from barnabas.spark.database.connections import Database, TableName
from barnabas.spark.database.loading import AddRows, LoadColumns, loading
from barnabas.spark.database.staging import ATTEMPT, ORIGIN, POSITION
from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.sinks import TopicPartition

if TYPE_CHECKING:
    from barnabas.spark.direct.task import Piece

FILLED_FIELDS = pa.schema([("task", pa.int32()), ("attempt", pa.int64()), ("rows", pa.int64())])
"""Of what tasks return to the driver."""
_UNKNOWN = -1


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
        if not self.staging.partitions or not set(ORIGIN) <= set(rows.schema.names):
            return _repeat(self.task, len(rows)), _repeat(0, len(rows))
        known = pa.array([f"{topic}/{partition}" for topic, partition in self.staging.partitions], pa.string())
        topic, partition, offset = (rows.column(name) for name in ORIGIN)
        named = pc.binary_join_element_wise(topic, partition.cast(pa.string()), "/")
        return pc.index_in(named, value_set=known).fill_null(_UNKNOWN), offset.fill_null(_UNKNOWN)


def _repeat(number: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(number, pa.int64()), count)


@dataclass(frozen=True, slots=True)
class StagingTask:
    """What runs in each task of Spark's: stages the task's Arrow batches, and returns one row about them."""

    staging: Staging

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        with self.staging.writer(context.taskAttemptId(), context.partitionId()) as writer:
            for batch in batches:
                writer.add(batch)
        yield pa.RecordBatch.from_pylist([dict(row) for row in writer.written()], FILLED_FIELDS)


@dataclass(frozen=True, slots=True)
class StagingTarget:
    """The same for tasks of the direct path, which read the rows themselves."""

    staging: Staging
    schema: pa.Schema
    fields: ClassVar[pa.Schema] = FILLED_FIELDS
    is_ordered: ClassVar[bool] = False

    def open(self, piece: Piece, attempt: int) -> AbstractContextManager[StagingWriter]:
        return self.staging.writer(attempt, piece.number)
