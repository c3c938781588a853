"""How a pipeline stands, without Spark: from its state directory, and from the cluster for what is new there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas.spark.pipeline.definition import DEAD_LETTERS, Pipeline
from barnabas.spark.pipeline.lock import is_locked
from barnabas.spark.pipeline.origin import look_for_origin
from barnabas.spark.pipeline.plan import position
from barnabas.spark.pipeline.progress import Progress, progress_from_json
from barnabas.spark.pipeline.sinks import Offsets
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.topics import Layout, TopicOffsets


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    query: str
    """As the progress calls it; a sink that was never fed counts as a query of its own."""
    topic: str
    partition: int
    done: int
    latest: int
    lag: int


@dataclass(frozen=True, slots=True)
class Status:
    pipeline: str
    is_running: bool
    last_batch_at: float | None
    batches: int
    rows: dict[str, int]
    """Written by each sink, in all runs that the state knows of."""
    dead_letters: int
    partitions: tuple[PartitionStatus, ...]

    @property
    def lag(self) -> int:
        """Of the query that is furthest behind."""
        lags: dict[str, int] = {}
        for each in self.partitions:
            lags[each.query] = lags.get(each.query, 0) + each.lag
        return max(lags.values(), default=0)


def find_status(pipeline: Pipeline, state: State) -> Status:
    with TopicOffsets(pipeline.cluster) as topics:
        return status_in(pipeline, state, topics, topics.layout(pipeline.sources))


def status_in(pipeline: Pipeline, state: State, topics: TopicOffsets, layout: Layout) -> Status:
    """With a connection that is there."""
    latest = topics.latest(layout)
    origin = look_for_origin(pipeline, topics, layout, state)
    begins = _begins(pipeline, layout, position(None, origin, topics.earliest(layout)))
    told = list(read_history(state.history_file))
    return status_of(pipeline.name, told, begins, latest, is_locked(state.lock_file))


def _begins(pipeline: Pipeline, layout: Layout, origin: Offsets) -> dict[str, Offsets]:
    """Where each sink begins, in all partitions that it reads."""
    read_by = {sink.name: pipeline.driving_sources(sink.head.from_) for sink in pipeline.sinks}
    if pipeline.dead_letters is not None:
        read_by[DEAD_LETTERS] = list(pipeline.sources)
    return {name: layout.parts((each.name for each in sources), origin) for name, sources in read_by.items()}


def status_of(
    name: str, told: list[Progress], begins: Mapping[str, Offsets], latest: Offsets, is_running: bool
) -> Status:
    """From the history, where each sink begins, and the ends of the partitions; what was never read is all lag."""
    last = {each.query: each for each in told}
    feeds = {sink: each.query for each in told for sink in each.rows}
    rows: dict[str, int] = {}
    for each in told:
        for sink, count in each.rows.items():
            rows[sink] = rows.get(sink, 0) + count
    done: dict[str, dict[tuple[str, int], int]] = {}
    for sink, first in begins.items():
        done.setdefault(feeds.get(sink, sink), {}).update(first)
    for query, progress in last.items():
        done.setdefault(query, {}).update({(at.topic, at.partition): at.done for at in progress.partitions})
    partitions = [
        PartitionStatus(query, *partition, offset, end, max(0, end - offset))
        for query, at in done.items()
        for partition, offset in sorted(at.items())
        for end in (latest.get(partition, offset),)
    ]
    return Status(
        pipeline=name,
        is_running=is_running,
        last_batch_at=told[-1].at if told else None,
        batches=len(told),
        rows=rows,
        dead_letters=sum(each.dead_letters for each in told),
        partitions=tuple(partitions),
    )


def read_history(file: Path) -> Iterator[Progress]:
    """What was told of all runs; a line that a crash cut off is passed over."""
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            yield progress_from_json(line)
        except (ValueError, TypeError, KeyError):
            continue
