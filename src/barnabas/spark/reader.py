"""Batch reads: the driver looks up the offsets and cuts them into ranges, each task reads one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.spark.cluster import find_partitions, open_client, run
from barnabas.spark.fetching import read_range
from barnabas.spark.offsets import resolve_limit
from barnabas.spark.ranges import OffsetRange, split_ranges

if TYPE_CHECKING:
    import pyarrow

    from barnabas.spark.options import ReadOptions


class BatchReader(DataSourceReader):
    """Is pickled for the tasks, so it holds nothing but what it was told."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        ranges = run(find_ranges(self._options))
        return [InputPartition(wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if partition.value is None:  # Spark's sign that there was nothing to plan
            return iter(())
        return read_range(self._options, self._columns, partition.value)


async def find_ranges(options: ReadOptions) -> list[OffsetRange]:
    """What a batch read is going to read."""
    async with open_client(options.kafka) as client:
        partitions = await find_partitions(client, options.topics)
        starts = await resolve_limit(client, partitions, options.starting, options.isolation)
        ends = await resolve_limit(client, partitions, options.ending, options.isolation)
    return split_ranges(
        (OffsetRange(*partition, starts[partition], ends[partition]) for partition in partitions),
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
