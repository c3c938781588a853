"""Writes of a stream: at least once, or with `transactionalIdPrefix` every micro-batch exactly once.

Spark makes the writer on the driver before the tasks of a batch, and again before its commit. Making it finishes what a
driver that died had decided; the tasks then know whether their batch is written already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.spark.cluster import run
from barnabas.spark.decisions import Work
from barnabas.spark.row_batches import check_columns
from barnabas.spark.task_writer import Written, write_at_least_once, write_exactly_once, write_nothing
from barnabas.spark.two_phases import abort, commit, recover
from barnabas.spark.writer import transactions_of

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from barnabas.spark.write_options import WriteOptions

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Where Spark tells tasks whose they are; not documented, so a test sees to it that it stays so."""


def stream_writer(options: WriteOptions, schema: StructType) -> DataSourceStreamArrowWriter:
    """What is written complete is appended too: a topic is not emptied between batches."""
    check_columns(schema, options.topic)
    return PlainStreamWriter(options) if options.prefix is None else ExactStreamWriter(options)


class PlainStreamWriter(DataSourceStreamArrowWriter):
    """At least once: a batch that is tried again is written again."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        return write_at_least_once(self._options, iterator)


class ExactStreamWriter(DataSourceStreamArrowWriter):
    """Every batch once. Pickled for the tasks, to which it carries what was decided last."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._last = run(recover(options))

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        work = work_of_task()
        if self._last is not None and self._last.covers(work):
            return write_nothing(iterator, work)
        return write_exactly_once(self._options, iterator, work)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Spark tells the number of the batch, the tasks tell the query; without tasks there is nothing to commit."""
        works = {message.work for message in messages if isinstance(message, Written) and message.work is not None}
        if works:
            [work] = works
            run(commit(self._options, work, transactions_of(messages)))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        run(abort(self._options))


def work_of_task() -> Work:
    task = TaskContext.get()
    query = task and task.getLocalProperty(QUERY_ID)
    batch = task and task.getLocalProperty(BATCH_ID)
    if not query or not batch:
        raise RuntimeError(
            f"Spark does not tell this task its query and batch ({QUERY_ID}, {BATCH_ID}); exactly-once writes need "
            "Spark 4.2, or leave out transactionalIdPrefix"
        )
    return Work(query, int(batch))
