"""Reads a range of offsets of one partition, from whoever leads it, fetching ahead of the caller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from barnabas.client.consume.fetcher import Fetcher
from barnabas.client.consume.locator import Locator
from barnabas.client.consume.positions import Begin
from barnabas.client.metadata import TopicPartition
from barnabas.spark.cluster import fetch_options, new_runner, open_client
from barnabas.spark.rows import RowBatches

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow

    from barnabas.client.client import Client
    from barnabas.client.consume.chunks import Chunk
    from barnabas.spark.options import ReadOptions
    from barnabas.spark.ranges import OffsetRange


def read_range(options: ReadOptions, columns: Sequence[str], wanted: OffsetRange) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a range as Arrow batches with these columns."""
    rows = RowBatches(columns, wanted)
    with new_runner() as runner:
        fetches = runner.run(RangeFetches.open(options, wanted))
        try:
            while (chunk := runner.run(fetches.next())) is not None:
                yield from rows.add(chunk)
        finally:
            runner.run(fetches.close())


class RangeFetches:
    """What the fetches of a range bring, one after the other. The next one is under way while the caller works."""

    def __init__(self, client: Client, options: ReadOptions, wanted: OffsetRange) -> None:
        chosen = fetch_options(options.kafka)
        self._client = client
        self._fetcher = Fetcher(client, chosen, Locator(client, chosen, None))
        self._partition = TopicPartition(wanted.topic, wanted.partition)
        self._end = wanted.end
        self._fetcher.add(self._partition, Begin.RESET, wanted.start)

    @classmethod
    async def open(cls, options: ReadOptions, wanted: OffsetRange) -> Self:
        return cls(await open_client(options.kafka).__aenter__(), options, wanted)

    async def next(self) -> Chunk | None:
        """The next records; None at the end of the range."""
        self._fetcher.pump()
        state = self._fetcher.states[self._partition]
        while (state.position or 0) < self._end:
            self._fetcher.raise_problem()
            if (taken := self._fetcher.take()) is not None:
                return taken[1]
            await self._fetcher.wait(None)
        return None

    async def close(self) -> None:
        await self._fetcher.close()
        await self._client.close()
