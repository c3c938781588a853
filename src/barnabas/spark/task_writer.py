"""What a task writes, from Spark's Arrow batches into topics, and what it tells the driver of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from barnabas.client.admin.transactions import Transactions, TransactionState
from barnabas.client.producer import Producer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.spark.cluster import open_client, persevere, run
from barnabas.spark.row_batches import by_topic
from barnabas.spark.two_phases import task_id

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.client import Client
    from barnabas.client.produce.open_transaction import OpenTransaction
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


def write_at_least_once(options: WriteOptions, batches: Iterator[pyarrow.RecordBatch]) -> Written:
    """Send the rows, and wait until all are acknowledged. A task that is tried again sends them again."""

    async def work() -> int:
        async with _reached(options) as client, Producer(client, **options.kafka.settings) as producer:
            return await _send(producer, batches, options.topic)

    return Written(run(work()))


def write_exactly_once(options: WriteOptions, batches: Iterator[pyarrow.RecordBatch], work: Work) -> Written:
    """Send the rows in a transaction that is left open for the driver to end; without rows there is none."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return Written(0, work)

    async def write() -> Written:
        async with _reached(options) as client:
            settings = {**options.kafka.settings, "transaction_timeout_ms": options.transaction_timeout_ms}
            name = await _free_id(client, options.prefix or "", work.batch)
            async with (
                Producer(client, transactional_id=name, **settings) as producer,
                producer.transaction() as transaction,
            ):
                rows = await _send(producer, chain([first], batches), options.topic)
                return Written(rows, work, await transaction.leave_open())

    return run(write())


def write_nothing(batches: Iterator[pyarrow.RecordBatch], work: Work) -> Written:
    """The work was done by a driver that died before it could say so. Spark wants its rows to be taken all the same."""
    for _ in batches:
        pass
    return Written(0, work)


@asynccontextmanager
async def _reached(options: WriteOptions) -> AsyncIterator[Client]:
    client = await persevere(lambda: open_client(options.kafka).__aenter__(), options.max_block_ms)
    try:
        yield client
    finally:
        await client.close()


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


async def _send(producer: Producer, batches: Iterator[pyarrow.RecordBatch], topic: str | None) -> int:
    """Send batch after batch; the next one comes from Spark while one is on its way."""
    loop = asyncio.get_running_loop()
    rows = 0
    with ThreadPoolExecutor(1) as thread:
        ahead = loop.run_in_executor(thread, next, batches, None)
        while (batch := await ahead) is not None:
            ahead = loop.run_in_executor(thread, next, batches, None)
            for name, part in by_topic(batch, topic):
                await producer.send_columns(name, part)
            rows += batch.num_rows
    return rows
