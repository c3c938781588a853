"""Runs the tasks that send the rows of a topic sink: on Spark's path from a DataFrame, on the direct path from offsets.

Every task leaves its transaction open and returns what ends it, so that the rows of both paths are committed by one
decision. The rows of a partition keep their order as far as one task has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from barnabas.client.produce.open_transaction import OpenTransaction
from barnabas.spark.decisions import Work
from barnabas.spark.row_batches import SENT
from barnabas.spark.task_writer import TaskProducer
from barnabas.spark.write_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from barnabas.spark.direct.rows import DirectRows
    from barnabas.spark.direct.task import Piece
    from barnabas.spark.pipeline.sinks import Batch

SENT_FIELDS = pa.schema(
    [
        ("rows", pa.int64()),
        ("transactional_id", pa.string()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
    ]
)
"""Of what tasks return to the driver."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What one task has sent."""

    rows: int
    transaction: OpenTransaction


@dataclass(frozen=True, slots=True)
class Sending:
    """What tasks need to know to send the rows of one write; is pickled for them."""

    options: WriteOptions
    work: Work

    @contextmanager
    def writer(self) -> Iterator[TopicWriter]:
        with TaskProducer(self.options, self.work) as producer:
            yield TopicWriter(producer)


@dataclass(frozen=True, slots=True)
class TopicWriter:
    """Sends the rows of one attempt."""

    producer: TaskProducer

    def add(self, rows: pa.RecordBatch) -> None:
        self.producer.add(rows)

    def written(self) -> list[Mapping[str, Any]]:
        left = self.producer.transaction
        if left is None:
            return []
        return [
            {
                "rows": self.producer.rows,
                "transactional_id": left.transactional_id,
                "producer_id": left.producer_id,
                "producer_epoch": left.producer_epoch,
            }
        ]


@dataclass(frozen=True, slots=True)
class SendTask:
    """What runs in each task of Spark's: sends the task's Arrow batches, and returns a row if there were any."""

    sending: Sending

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self.sending.writer() as writer:
            for batch in batches:
                writer.add(batch)
        yield pa.RecordBatch.from_pylist([dict(row) for row in writer.written()], SENT_FIELDS)


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """The same for tasks of the direct path, which read the rows themselves."""

    sending: Sending
    schema: pa.Schema
    fields: ClassVar[pa.Schema] = SENT_FIELDS
    is_ordered: ClassVar[bool] = True

    def open(self, piece: Piece, attempt: int) -> AbstractContextManager[TopicWriter]:
        """The transaction has an id that no other attempt has open."""
        return self.sending.writer()


def send(frame: DataFrame, sending: Sending) -> list[Sent]:
    """Send the rows of a frame, which has the columns of records; what the tasks that Spark counts have sent."""
    from pyspark.sql.pandas.types import from_arrow_schema

    sent = frame.select(*_sent(frame.columns)).mapInArrow(SendTask(sending), from_arrow_schema(SENT_FIELDS))
    return [_sent_by(row) for row in sent.collect()]


def send_direct(spark: SparkSession, rows: DirectRows, batch: Batch, sending: Sending) -> tuple[list[Sent], int]:
    """Send the rows of a batch from the tasks that read it; returns the number of records that were left to Spark, too.

    From the first record of which a task is unsure, Spark decodes the rest of its piece, which is sent after what the
    task has sent.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from barnabas.spark.direct.job import loaded

    needed = StructType([rows.schema[name] for name in _sent(rows.schema.fieldNames())])
    target = TopicTarget(sending, to_arrow_schema(needed, timezone="UTC"))
    with loaded(spark, rows, batch.ranges, batch.ranges, target) as found:
        sent = [_sent_by(row) for row in found.written]
        if found.unsure:
            sent += send(rows.decode(found.records), sending)
        return sent, found.unsure


def _sent(columns: Iterable[str]) -> list[str]:
    return [name for name in columns if name in SENT]


def _sent_by(row: Row) -> Sent:
    return Sent(row.rows, OpenTransaction(row.transactional_id, row.producer_id, row.producer_epoch))
