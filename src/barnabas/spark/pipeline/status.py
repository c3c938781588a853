"""How a pipeline stands, without Spark: from its state directory, and from the cluster for what is new there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from barnabas.spark.pipeline.definition import Pipeline
from barnabas.spark.pipeline.lock import is_locked
from barnabas.spark.pipeline.progress import PartitionProgress, Progress, progress_from_json
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.topics import Positions, TopicOffsets


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    query: str
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
        latest = topics.latest(topics.layout(pipeline.sources))
    return status_of(pipeline.name, list(read_history(state.history_file)), latest, is_locked(state.lock_file))


def status_of(name: str, told: list[Progress], latest: Positions, is_running: bool) -> Status:
    """From the history and the ends of the partitions; a partition that was never read is all lag."""
    last = {each.query: each for each in told}
    rows: dict[str, int] = {}
    for each in told:
        for sink, count in each.rows.items():
            rows[sink] = rows.get(sink, 0) + count
    partitions = [
        _partition(query, at, latest.get((at.topic, at.partition), at.latest))
        for query, progress in last.items()
        for at in progress.partitions
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


def _partition(query: str, at: PartitionProgress, latest: int) -> PartitionStatus:
    return PartitionStatus(query, at.topic, at.partition, at.done, latest, max(0, latest - at.done))


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
