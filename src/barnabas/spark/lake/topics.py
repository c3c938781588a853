"""The topics behind a lake: what they hold now, and rows of chosen offsets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.client.metadata import TopicPartition
from barnabas.spark.cluster import find_partitions, open_client, run
from barnabas.spark.lake.commit import Observation
from barnabas.spark.offsets import Earliest, Latest, nested, resolve_limit
from barnabas.spark.options import parse_batch_options
from barnabas.spark.pipeline.sinks import OFFSET, PARTITION, TIMESTAMP, TOPIC
from barnabas.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORIGINS = (f"topic AS {TOPIC}", f"partition AS {PARTITION}", f"offset AS {OFFSET}", f"timestamp AS {TIMESTAMP}")
_WHICH_TOPICS = ("subscribe", "subscribepattern", "assign")


def observe(source_options: Mapping[str, str]) -> Observation:
    """First and next offset of every partition, also of those that have no records."""
    now_ms = time.time_ns() // 1_000_000
    return Observation(now_ms, run(_offsets(source_options)))


def read_ranges(
    spark: SparkSession, source_options: Mapping[str, str], ranges: Iterable[OffsetRange], columns: Iterable[str] = ()
) -> DataFrame:
    """Rows of these offsets and no others, one range for each partition: some columns, and where they come from."""
    assigned: dict[str, list[int]] = {}
    starts, ends = {}, {}
    for one in ranges:
        assigned.setdefault(one.topic, []).append(one.partition)
        partition = TopicPartition(one.topic, one.partition)
        starts[partition], ends[partition] = one.start, one.end
    chosen = tuple(columns)
    options = {
        **{name: value for name, value in source_options.items() if name.lower() not in _WHICH_TOPICS},
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(nested(starts)),
        "endingOffsets": json.dumps(nested(ends)),
        "columns": ",".join((*chosen, "topic", "partition", "offset", "timestamp")),
    }
    return spark.read.format("barnabas").options(**options).load().selectExpr(*chosen, *ORIGINS)


async def _offsets(source_options: Mapping[str, str]) -> dict[tuple[str, int], tuple[int, int]]:
    options = parse_batch_options({name.lower(): value for name, value in source_options.items()})
    async with open_client(options.kafka) as client:
        partitions = await find_partitions(client, options.topics)
        first = await resolve_limit(client, partitions, Earliest(), options.isolation)
        end = await resolve_limit(client, partitions, Latest(), options.isolation)
    return {(each.topic, each.partition): (first[each], end[each]) for each in partitions}
