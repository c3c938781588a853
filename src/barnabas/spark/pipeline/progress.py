"""How far a run is, as values; who shows them is another matter (`reporters.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from barnabas.spark.pipeline.sinks import Offsets


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    topic: str
    partition: int
    start: int
    """Where this run began."""
    done: int
    """The next offset that the slowest sink needs."""
    latest: int

    @property
    def to_go(self) -> int:
        return max(0, self.latest - self.done)


@dataclass(frozen=True, slots=True)
class Progress:
    """After a batch, or before the first. Numbers of records are numbers of offsets, gaps included."""

    at: float
    """Seconds since 1970."""
    pipeline: str
    query: str
    """What the batch belongs to: `offsets`, or the sink of a query with state."""
    batch: int
    records: int
    """Of this batch."""
    rows: Mapping[str, int]
    """Written in this batch, by sink."""
    batch_seconds: float
    records_per_second: float
    """Over this run."""
    eta_seconds: float | None
    """Until everything that is there now is done, at that speed."""
    lag: int
    partitions: tuple[PartitionProgress, ...]
    dead_letters: int = 0
    watermark: str | None = None
    state_rows: int | None = None
    state_bytes: int | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def progress_from_json(line: str) -> Progress:
    values: dict[str, Any] = json.loads(line)
    partitions = tuple(PartitionProgress(**each) for each in values.pop("partitions"))
    return Progress(partitions=partitions, **values)


@dataclass
class Meter:
    """Makes the progress of one query from what its batches tell."""

    pipeline: str
    query: str
    started: float
    """On the clock that `now` is of."""
    first: Offsets
    """Where the run began; a partition that came later begins where it is seen."""
    total: int = 0

    def progress(
        self,
        *,
        now: float,
        wall: float,
        batch: int,
        records: int,
        batch_seconds: float,
        done: Offsets,
        latest: Offsets,
        rows: Mapping[str, int],
        **more: Any,
    ) -> Progress:
        self.total += records
        speed = self.total / max(now - self.started, 1e-9)
        partitions = tuple(
            PartitionProgress(*partition, self.first.get(partition, offset), offset, latest.get(partition, offset))
            for partition, offset in sorted(done.items())
        )
        lag = sum(each.to_go for each in partitions)
        return Progress(
            at=wall,
            pipeline=self.pipeline,
            query=self.query,
            batch=batch,
            records=records,
            rows=rows,
            batch_seconds=round(batch_seconds, 3),
            records_per_second=round(speed, 1),
            eta_seconds=round(lag / speed, 1) if self.total else None,
            lag=lag,
            partitions=partitions,
            **more,
        )
