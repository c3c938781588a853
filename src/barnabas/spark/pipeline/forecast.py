"""What a run is going to do, as far as it is known before Spark starts: records, bytes, tasks, path of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from barnabas.spark.pipeline.definition import Pipeline
from barnabas.spark.pipeline.paths import is_direct_by_design
from barnabas.spark.pipeline.sinks import Offsets
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.status import status_in
from barnabas.spark.pipeline.topics import TopicOffsets


@dataclass(frozen=True, slots=True)
class Forecast:
    records: int
    bytes: int | None
    """Estimated from the size of the partitions; None if the cluster does not report it."""
    partitions: int
    tasks: int
    is_direct: bool


def forecast(pipeline: Pipeline, state: State) -> Forecast:
    with TopicOffsets(pipeline.cluster) as topics:
        layout = topics.layout(pipeline.sources)
        status = status_in(pipeline, state, topics, layout)
        earliest = topics.earliest(layout)
        latest = topics.latest(layout)
        sizes = topics.sizes(layout)
    lags: dict[tuple[str, int], int] = {}
    for each in status.partitions:
        where = each.topic, each.partition
        lags[where] = max(each.lag, lags.get(where, 0))  # a record is read by every sink, and counted once
    behind = {where: lag for where, lag in lags.items() if lag}
    held = {where: latest[where] - earliest[where] for where in behind}
    return Forecast(
        records=sum(behind.values()),
        bytes=None if sizes is None else _bytes_behind(behind, held, sizes),
        partitions=len(behind),
        tasks=sum(ceil(lag / pipeline.max_records_per_task) for lag in behind.values()),
        is_direct=is_direct_by_design(pipeline),
    )


def _bytes_behind(behind: Offsets, held: Offsets, sizes: Offsets) -> int:
    """The share of each partition's bytes that its share of offsets has."""
    return round(sum(sizes.get(where, 0) * lag / max(lag, held[where]) for where, lag in behind.items()))
