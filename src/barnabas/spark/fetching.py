"""Reads a range of offsets of one partition, from whoever leads it, fetching ahead of the caller."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Self

from barnabas.client.consume.consumer_errors import CorruptRecords, NoOffset
from barnabas.client.consume.fetcher import Fetcher
from barnabas.client.consume.locator import Locator
from barnabas.client.consume.positions import Begin
from barnabas.client.list_offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.metadata import TopicPartition
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import CorruptBatch
from barnabas.spark.cluster import fetch_options, new_runner, open_client
from barnabas.spark.data_loss import Cause, DataLost, Loss
from barnabas.spark.rows import RowBatches

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.client import Client
    from barnabas.client.consume.chunks import Chunk
    from barnabas.spark.options import ReadOptions
    from barnabas.spark.ranges import OffsetRange

log = logging.getLogger(__name__)


def read_range(
    options: ReadOptions, columns: Sequence[str], wanted: OffsetRange
) -> Generator[pyarrow.RecordBatch, None, None]:
    """The rows of a range as Arrow batches with these columns."""
    rows = RowBatches(columns, wanted)
    with new_runner() as runner:
        fetches = runner.run(RangeFetches.open(options, wanted))
        try:
            while (chunk := runner.run(fetches.next())) is not None:
                try:
                    yield from rows.add(chunk)
                except CorruptBatch as error:
                    raise CorruptRecords(fetches.partition, chunk.from_offset, error) from error
        finally:
            runner.run(fetches.close())


class RangeFetches:
    """What the fetches of a range bring, one after the other. The next one is under way while the caller works."""

    def __init__(self, client: Client, options: ReadOptions, wanted: OffsetRange) -> None:
        self.partition = TopicPartition(wanted.topic, wanted.partition)
        self._client = client
        self._options = options
        self._range = wanted
        chosen = fetch_options(options.kafka, wanted.size)
        self._fetcher = Fetcher(client, chosen, Locator(client, chosen, None))
        self._fetcher.add(self.partition, Begin.RESET, wanted.start, wanted.end)

    @classmethod
    async def open(cls, options: ReadOptions, wanted: OffsetRange) -> Self:
        return cls(await open_client(options.kafka).__aenter__(), options, wanted)

    async def next(self) -> Chunk | None:
        """The next records; None at the end of the range."""
        self._fetcher.pump()
        patience = self._options.poll_timeout_ms / 1000
        deadline = self._client.clock.monotonic() + patience
        while (position := self._position()) < self._range.end:
            try:
                self._fetcher.raise_problem()
            except NoOffset as problem:
                await self._pass_over_loss(position, problem)
                continue
            if (taken := self._fetcher.take()) is not None:
                return taken[1]
            left = deadline - self._client.clock.monotonic()
            if left <= 0:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"nothing came of {self._range} from offset {position} on within {patience:g} s "
                    "(kafkaConsumer.pollTimeoutMs); is its leader overloaded, or was the log cut off?",
                )
            await self._fetcher.wait(left)
        return None

    def _position(self) -> int:
        position = self._fetcher.states[self.partition].position
        assert position is not None  # a place was given, and is never taken away
        return position

    async def _pass_over_loss(self, position: int, problem: NoOffset) -> None:
        """The log does not hold what it did when the read was planned: fail, or go on where there is something."""
        first, end = await self._bounds()
        if first > position:
            go_on = min(first, self._range.end)
            loss = Loss(self.partition, Cause.RETENTION, position, go_on)
        elif end < position:
            go_on = self._range.end
            loss = Loss(self.partition, Cause.SHORTER, end, position)
        else:
            raise problem
        if self._options.fail_on_data_loss:
            raise DataLost([loss]) from problem
        log.warning("%s", loss)
        self._fetcher.states[self.partition].place(go_on)
        self._fetcher.moved([self.partition])

    async def _bounds(self) -> tuple[int, int]:
        """Where the log begins and ends now."""
        first = await list_offsets(self._client, {self.partition: EARLIEST})
        end = await list_offsets(self._client, {self.partition: LATEST})
        return first[self.partition].offset, end[self.partition].offset

    async def close(self) -> None:
        await self._fetcher.close()
        await self._client.close()
