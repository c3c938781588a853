"""Batch writes: at least once; with `transactionalIdPrefix` all rows or none; with `writeId` too, once for good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from barnabas.client.options import WrongOption
from barnabas.spark.cluster import open_client, run
from barnabas.spark.decisions import Work
from barnabas.spark.row_batches import check_columns
from barnabas.spark.task_writer import Written, write_at_least_once, write_exactly_once, write_nothing
from barnabas.spark.two_phases import abort, commit, recover

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from barnabas.client.produce.open_transaction import OpenTransaction
    from barnabas.spark.kafka_options import KafkaOptions
    from barnabas.spark.write_options import WriteOptions


_FIND_MS = 10_000


def batch_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    if overwrite:
        raise WrongOption('a topic cannot be overwritten; use mode("append")')
    check_columns(schema, options.topic)
    if options.topic is not None:
        run(_find(options.kafka, options.topic))
    return PlainWriter(options) if options.prefix is None else ExactWriter(options)


async def _find(kafka: KafkaOptions, topic: str) -> None:
    """A topic that is not there, and that the cluster does not make, is better told before the tasks wait for it."""
    async with open_client(kafka) as client:
        await client.retrying(lambda: client.metadata.topic(topic, create=True), timeout_ms=_FIND_MS)


class PlainWriter(DataSourceArrowWriter):
    """At least once: rows are visible as soon as they are written."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        return write_at_least_once(self._options, iterator)


class ExactWriter(DataSourceArrowWriter):
    """All rows become visible together. Made by the driver, before the tasks; pickled for them and for the end."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._work = Work(options.write_id or str(uuid4()), is_remembered=options.write_id is not None)
        last = run(recover(options))
        self._is_done = last is not None and last.covers(self._work)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        if self._is_done:
            return write_nothing(iterator, self._work)
        return write_exactly_once(self._options, iterator, self._work)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        run(commit(self._options, self._work, transactions_of(messages)))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        run(abort(self._options))


def transactions_of(messages: list[WriterCommitMessage | None]) -> tuple[OpenTransaction, ...]:
    written = [message for message in messages if isinstance(message, Written)]
    return tuple(message.transaction for message in written if message.transaction is not None)
