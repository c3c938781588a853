"""Reads a range of offsets of one partition, from whoever leads it, fetching ahead of the caller."""

from __future__ import annotations

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
from barnabas.spark.cluster import fetch_options, new_runner, open_client, persevere
from barnabas.spark.data_loss import Cause, Loss, report
from barnabas.spark.rows import RowBatches
from barnabas.spark.worker_process import show_warnings, spare_loaded_modules

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.client import Client
    from barnabas.client.consume.chunks import Chunk
    from barnabas.spark.options import ReadOptions
    from barnabas.spark.ranges import OffsetRange

RETRY_TIMEOUT_MS = 30_000


def read_range(
    options: ReadOptions, columns: Sequence[str], wanted: OffsetRange, topic_id: bytes | None = None
) -> Generator[pyarrow.RecordBatch, None, None]:
    """The rows of a range as Arrow batches with these columns; of the topic with that id, where it is known."""
    if options.decoding is not None:
        from barnabas.spark.decoded_rows import decode_batches

        yield from decode_batches(_read_raw(options, columns, wanted, topic_id), columns, options.decoding)
    elif options.fields is not None:
        from barnabas.spark.decoded_columns import ColumnDecoder

        decoder = ColumnDecoder(options.fields, columns, wanted)
        yield from decoder.decode(_read_raw(options, decoder.raw_columns, wanted, topic_id))
    else:
        yield from _read_raw(options, columns, wanted, topic_id)


def _read_raw(
    options: ReadOptions, columns: Sequence[str], wanted: OffsetRange, topic_id: bytes | None
) -> Generator[pyarrow.RecordBatch, None, None]:
    show_warnings()
    spare_loaded_modules()
    rows = RowBatches(columns, wanted)
    with new_runner() as runner:
        fetches = runner.run(RangeFetches.open(options, wanted, topic_id))
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

    def __init__(self, client: Client, options: ReadOptions, wanted: OffsetRange, topic_id: bytes | None) -> None:
        self.partition = TopicPartition(wanted.topic, wanted.partition)
        self._client = client
        self._options = options
        self._range = wanted
        self._topic_id = topic_id
        chosen = fetch_options(options.kafka, wanted.size)
        self._fetcher = Fetcher(client, chosen, Locator(client, chosen, None))
        self._fetcher.add(self.partition, Begin.RESET, wanted.start, wanted.end)
        self._fetcher.states[self.partition].topic_id = topic_id

    @classmethod
    async def open(cls, options: ReadOptions, wanted: OffsetRange, topic_id: bytes | None = None) -> Self:
        """The driver has reached the cluster before, so a task waits for one that does not answer."""
        patience = options.kafka.settings.get("retry_timeout_ms", RETRY_TIMEOUT_MS)
        client = await persevere(lambda: open_client(options.kafka).__aenter__(), patience)
        return cls(client, options, wanted, topic_id)

    async def next(self) -> Chunk | None:
        """The next records; None at the end of the range."""
        self._fetcher.pump()
        patience = self._options.poll_timeout_ms / 1000
        deadline = self._client.clock.monotonic() + patience
        while (position := self._position()) < self._range.end:
            try:
                self._fetcher.raise_problem()
            except KafkaError as problem:
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

    async def _pass_over_loss(self, position: int, problem: KafkaError) -> None:
        """The log does not hold what it did when the read was planned: fail, or go on where there is something."""
        loss, go_on = await self._find_loss(position, problem)
        report([loss], fail=self._options.fail_on_data_loss)
        self._fetcher.states[self.partition].place(go_on)
        self._fetcher.moved([self.partition])

    async def _find_loss(self, position: int, problem: KafkaError) -> tuple[Loss, int]:
        """What is lost, and where to go on; a problem of another kind is raised."""
        if self._topic_id is not None and problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return Loss(self.partition, Cause.DELETED, position), self._range.end
        if not isinstance(problem, NoOffset):
            raise problem
        if self._topic_id not in (None, self._fetcher.states[self.partition].topic_id):
            return Loss(self.partition, Cause.RECREATED, position), self._range.end
        first, end = await self._bounds()
        if first > position:
            go_on = min(first, self._range.end)
            return Loss(self.partition, Cause.RETENTION, position, go_on), go_on
        if end < position:
            return Loss(self.partition, Cause.SHORTER, end, position), self._range.end
        raise problem

    async def _bounds(self) -> tuple[int, int]:
        """Where the log begins and ends now."""
        first = await list_offsets(self._client, {self.partition: EARLIEST})
        end = await list_offsets(self._client, {self.partition: LATEST})
        return first[self.partition].offset, end[self.partition].offset

    async def close(self) -> None:
        await self._fetcher.close()
        await self._client.close()
