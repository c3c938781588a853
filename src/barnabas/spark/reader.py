"""Batch reads: the driver looks up the offsets and cuts them into ranges, each task reads one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from barnabas.client.client import Client
from barnabas.client.list_offsets import list_offsets
from barnabas.client.metadata import TopicPartition
from barnabas.client.options import WrongOption
from barnabas.spark.cluster import find_partitions, open_client, run
from barnabas.spark.data_loss import SKIP_LOSSES, Cause, Loss, report
from barnabas.spark.fetching import read_range
from barnabas.spark.filters import cut_ranges, since_ms
from barnabas.spark.offsets import AtOffsets, Earliest, Latest, resolve_limit
from barnabas.spark.ranges import OffsetRange, split_ranges
from barnabas.spark.worker_process import show_warnings

if TYPE_CHECKING:
    import pyarrow

    from barnabas.spark.options import ReadOptions

log = logging.getLogger(__name__)


class BatchPartition(InputPartition):
    """A range, and the id of its topic: another one may have that name when the task comes to it."""

    def __init__(self, wanted: OffsetRange, topic_id: bytes) -> None:
        super().__init__(wanted)
        self.topic_id = topic_id


class BatchReader(DataSourceReader):
    """Is pickled for the tasks, so it holds nothing but what it was told."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._filters: Sequence[Filter] = ()

    def partitions(self) -> list[InputPartition]:
        """One for each range; Spark makes an `InputPartition(None)` of none."""
        show_warnings()
        plan = run(plan_read(self._options, self._filters))
        return [BatchPartition(wanted, plan.topic_ids[wanted.topic]) for wanted in plan.ranges]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if not isinstance(partition, BatchPartition):
            return iter(())
        return read_range(self._options, self._columns, partition.value, partition.topic_id)


class FilteringBatchReader(BatchReader):
    """A class of its own: where Spark's filter pushdown is off, a reader that has `pushFilters` fails every read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """All go back to Spark, for a range may hold rows that do not pass."""
        self._filters = tuple(filters)
        return filters


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch read is going to read, cut into tasks."""

    ranges: list[OffsetRange]
    topic_ids: dict[str, bytes]


async def plan_read(options: ReadOptions, filters: Sequence[Filter] = ()) -> Plan:
    async with open_client(options.kafka) as client:
        partitions = await find_partitions(client, options.topics)
        starts = await resolve_limit(client, partitions, options.starting, options.isolation)
        ends = await resolve_limit(client, partitions, options.ending, options.isolation)
        ranges = [OffsetRange(*partition, starts[partition], ends[partition]) for partition in partitions]
        ranges = cut_ranges(await _readable(client, options, ranges), filters)
        ranges = await _since(client, options, ranges, since_ms(filters))
        topic_ids = {name: topic.topic_id for name, topic in client.metadata.cluster.topics.items()}
    tasks = split_ranges(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)
    return Plan(tasks, topic_ids)


async def _readable(client: Client, options: ReadOptions, ranges: list[OffsetRange]) -> list[OffsetRange]:
    """What is there of ranges whose offsets the user has given."""
    places = [TopicPartition(given.topic, given.partition) for given in ranges]
    if isinstance(options.ending, AtOffsets):
        lasts = await resolve_limit(client, places, Latest(), options.isolation)
        for place, given in zip(places, ranges):
            if given.end > lasts[place]:
                told = f"endingOffsets has {given.end} for {place}, which ends at offset {lasts[place]}"
                if options.fail_on_data_loss:
                    raise WrongOption(f"{told}; {SKIP_LOSSES} to read up to there")
                log.warning("%s", told)
        ranges = [replace(given, end=min(given.end, lasts[place])) for place, given in zip(places, ranges)]
    if isinstance(options.starting, AtOffsets):
        firsts = await resolve_limit(client, places, Earliest(), options.isolation)
        losses = [
            Loss(place, Cause.RETENTION, given.start, min(firsts[place], given.end))
            for place, given in zip(places, ranges)
            if given.start < min(firsts[place], given.end)
        ]
        report(losses, fail=options.fail_on_data_loss)
        ranges = [replace(given, start=max(given.start, firsts[place])) for place, given in zip(places, ranges)]
    return ranges


async def _since(
    client: Client, options: ReadOptions, ranges: list[OffsetRange], time_ms: int | None
) -> list[OffsetRange]:
    """What is left of the ranges from the first record at or after a time on, where one is given.

    Their ends are known before, so a partition that has no such record now has none in its range.
    """
    if time_ms is None or time_ms <= 0 or not ranges:
        return ranges
    asked = {TopicPartition(given.topic, given.partition): time_ms for given in ranges}
    found = await list_offsets(client, asked, options.isolation)
    left = []
    for given in ranges:
        first = found[TopicPartition(given.topic, given.partition)].offset
        if first >= 0:
            left.append(replace(given, start=max(given.start, first)))
    return left
