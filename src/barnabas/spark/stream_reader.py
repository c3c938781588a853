"""Streaming reads: Spark's calls, handed to the planner on the driver and to the fetches of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.core.ids import parse_uuid
from barnabas.spark.cluster import new_runner, open_client
from barnabas.spark.fetching import read_range
from barnabas.spark.offsets import nested
from barnabas.spark.stream_places import load_place
from barnabas.spark.stream_planner import StreamPlanner
from barnabas.spark.worker_process import show_warnings

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.client import Client
    from barnabas.spark.options import ReadOptions
    from barnabas.spark.ranges import OffsetRange

T = TypeVar("T")


class StreamPartition(InputPartition):
    """A range, and the topic that it is of: one of the same name may have taken its place when the task runs."""

    def __init__(self, wanted: OffsetRange, topic_id: str | None) -> None:
        super().__init__(wanted)
        self.topic_id = topic_id


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark keeps one in a process beside the driver, and pickles another for the tasks, which only read."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._driver: _Driver | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._ask(StreamPlanner.initial).dump()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._ask(StreamPlanner.stop_at_now)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Spark knows an offset by its JSON, so one that has not changed is given back as it came."""
        before = load_place(start)
        is_limited = not isinstance(limit, ReadAllAvailable)
        end = self._ask(lambda planner: planner.latest(before, is_limited=is_limited))
        return start if end is before else end.dump()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        ends = self._driver.planner.latest_ends if self._driver else None
        return None if ends is None else nested(ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[StreamPartition]:
        until = load_place(end)
        ranges = self._ask(lambda planner: planner.plan(load_place(start), until))
        return [StreamPartition(wanted, until.topic_ids.get(wanted.topic)) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, StreamPartition)
        topic_id = None if partition.topic_id is None else parse_uuid(partition.topic_id)
        return read_range(self._options, self._columns, partition.value, topic_id)

    def stop(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()

    def _ask(self, question: Callable[[StreamPlanner], Coroutine[Any, Any, T]]) -> T:
        if self._driver is None:
            self._driver = _Driver(self._options)
        return self._driver.runner.run(question(self._driver.planner))


class _Driver:
    """A planner with its client and its event loop, which turns while Spark waits for an answer."""

    def __init__(self, options: ReadOptions) -> None:
        show_warnings()
        self.runner = new_runner()
        try:
            self._client = self.runner.run(_opened(options))
        except BaseException:
            self.runner.close()
            raise
        self.planner = StreamPlanner(self._client, options)

    def close(self) -> None:
        self.runner.run(self._client.close())
        self.runner.close()


async def _opened(options: ReadOptions) -> Client:
    return await open_client(options.kafka).__aenter__()
