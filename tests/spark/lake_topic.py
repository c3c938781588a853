"""A topic whose records Spark makes by itself, so that tests of a lake need no broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.spark.lake.commit import Observation
from barnabas.spark.pipeline.sinks import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS  # 2023-11-14T22
STEP_MS = 10 * 60_000


class Topic:
    """Two partitions of `clicks` with a record every ten minutes."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.ends = {("clicks", 0): 0, ("clicks", 1): 0}

    def observe(self, options: Mapping[str, str]) -> Observation:
        return Observation(BEGIN_MS + 100 * HOUR_MS, {partition: (0, end) for partition, end in self.ends.items()})

    def batch(self, start: int, end: int) -> Batch:
        return Batch(0, "q", dict.fromkeys(self.ends, start), dict.fromkeys(self.ends, end))

    def rows(self, start: int, end: int, *columns: str) -> DataFrame:
        """Of both partitions; after this the topic has at least these."""
        self.ends = dict.fromkeys(self.ends, max(end, *self.ends.values()))
        return (
            self._spark.range(start, end, 1, 1)
            .selectExpr("id AS _offset", "explode(array(1, 0)) AS _partition")
            .selectExpr(
                "'clicks' AS _topic",
                "_partition",
                "_offset",
                f"timestamp_millis({BEGIN_MS} + _offset * {STEP_MS}) AS _timestamp",
                *(columns or ("concat('click \\n\"', _offset, '\"') AS page",)),
            )
        )


def offsets_in(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row._partition, row._offset) for row in frame.select("_partition", "_offset").collect())


def every_offset(end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in (0, 1) for offset in range(end)]
