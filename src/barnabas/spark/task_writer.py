"""What a task writes, from Spark's Arrow batches into topics, and what it tells the driver of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from barnabas.client.admin.transactions import Transactions, TransactionState
from barnabas.client.producer import Producer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.spark.cluster import open_client, persevere
from barnabas.spark.row_batches import by_topic
from barnabas.spark.two_phases import task_id
from barnabas.sync.portal import portal

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.client import Client
    from barnabas.client.produce.open_transaction import OpenTransaction
    from barnabas.client.produce.transactions import Transaction
    from barnabas.spark.decisions import Work
    from barnabas.spark.write_options import WriteOptions


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """A task's message to the driver."""

    rows: int
    work: Work | None = None
    """Of a write that is exactly once."""
    transaction: OpenTransaction | None = None
    """Where the rows are; None if there were none."""


class TaskProducer:
    """Sends the rows of one attempt: `with TaskProducer(...) as producer: producer.add(batch)`.

    Without work, what is sent counts. With it, it is in a transaction that is left open for the driver to end; if the
    block is left by an exception, it is aborted. Nothing is opened before there are rows. A batch is on its way, on the
    loop of a thread, while the caller gets the next one.
    """

    def __init__(self, options: WriteOptions, work: Work | None = None) -> None:
        self.rows = 0
        self.transaction: OpenTransaction | None = None
        """What was left open; None if there were no rows."""
        self._options = options
        self._work = work
        self._opened = AsyncExitStack()
        self._producer: Producer | None = None
        self._begun: Transaction | None = None
        self._sending: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def add(self, batch: pyarrow.RecordBatch) -> None:
        """Send rows with the columns that a topic takes; others are left alone."""
        if not batch.num_rows:
            return
        if self._producer is None:
            self._producer = portal().run(self._open())
        if self._sending is not None:
            self._sending.result()
        self._sending = asyncio.run_coroutine_threadsafe(self._send(self._producer, batch), portal().loop)
        self.rows += batch.num_rows

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producer is not None:
            portal().run(self._close() if kind is None else self._abandon(kind, error, trace))

    async def _open(self) -> Producer:
        options = self._options
        client = await persevere(lambda: open_client(options.kafka).__aenter__(), options.max_block_ms)
        self._opened.push_async_callback(client.close)
        try:
            if self._work is None:
                return await self._opened.enter_async_context(Producer(client, **options.kafka.settings))
            settings = {**options.kafka.settings, "transaction_timeout_ms": options.transaction_timeout_ms}
            name = await _free_id(client, options.prefix or "", self._work.batch)
            producer = Producer(client, transactional_id=name, **settings)
            await self._opened.enter_async_context(producer)
            self._begun = await self._opened.enter_async_context(producer.transaction())
        except BaseException:
            await self._opened.aclose()
            raise
        return producer

    async def _send(self, producer: Producer, batch: pyarrow.RecordBatch) -> None:
        for name, part in by_topic(batch, self._options.topic):
            await producer.send_columns(name, part)

    async def _close(self) -> None:
        async with self._opened:
            if self._sending is not None:
                await asyncio.wrap_future(self._sending)
            if self._begun is not None:
                self.transaction = await self._begun.leave_open()

    async def _abandon(
        self, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The caller's error counts, and not what becomes of the batch that is on its way."""
        await self._opened.__aexit__(kind, error, trace)
        if self._sending is not None:
            await asyncio.wait([asyncio.wrap_future(self._sending)])


def write_at_least_once(options: WriteOptions, batches: Iterator[pyarrow.RecordBatch]) -> Written:
    """Send the rows, and wait until all are acknowledged. A task that is tried again sends them again."""
    with TaskProducer(options) as producer:
        for batch in batches:
            producer.add(batch)
    return Written(producer.rows)


def write_exactly_once(options: WriteOptions, batches: Iterator[pyarrow.RecordBatch], work: Work) -> Written:
    """Send the rows in a transaction that is left open for the driver to end; without rows there is none."""
    with TaskProducer(options, work) as producer:
        for batch in batches:
            producer.add(batch)
    return Written(producer.rows, work, producer.transaction)


def write_nothing(batches: Iterator[pyarrow.RecordBatch], work: Work) -> Written:
    """The work was done by a driver that died before it could say so. Spark wants its rows to be taken all the same."""
    for _ in batches:
        pass
    return Written(0, work)


async def _free_id(client: Client, prefix: str, batch: int | None) -> str:
    """A transactional id of this attempt whose transaction is not open.

    Two attempts of a partition have different numbers, but Spark counts them from 0 again when it repeats a stage, and
    does not tell Python that it does. An open transaction under our id may be the one that counts: leave it alone, and
    take the next id.
    """
    task = TaskContext.get()
    assert task is not None
    for number in count():
        name = task_id(prefix, task.partitionId(), number, task.attemptNumber(), batch)
        try:
            found = await Transactions(client).describe(name)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return name
        if found.state is not TransactionState.ONGOING:
            return name
    raise AssertionError("unreachable")
