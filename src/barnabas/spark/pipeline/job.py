"""What the parts of one run share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from barnabas.spark.direct.unsure import UnsureRecords
from barnabas.spark.pipeline.definition import Pipeline
from barnabas.spark.pipeline.frames import Frames
from barnabas.spark.pipeline.reporters import Reporter
from barnabas.spark.pipeline.sinks import Offsets, Written
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.stopping import StopRequest
from barnabas.spark.pipeline.topics import Layout, TopicOffsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Job:
    pipeline: Pipeline
    spark: SparkSession
    frames: Frames
    topics: TopicOffsets
    state: State
    reporter: Reporter
    stop: StopRequest
    unsure: UnsureRecords

    @cached_property
    def at_start(self) -> tuple[Layout, Offsets]:
        """The topics and their ends when the run began: as far as it loads, in whichever way sinks get their rows."""
        layout = self.layout()
        return layout, self.topics.latest(layout)

    def layout(self) -> Layout:
        return self.topics.layout(self.pipeline.sources)


@dataclass
class Totals:
    """Of a run."""

    batches: int = 0
    records: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    unsure: int = 0
    """Records that tasks of the direct path left to Spark."""

    def add(self, records: int, written: Mapping[str, Written]) -> None:
        self.batches += 1
        self.records += records
        for sink, each in written.items():
            self.rows[sink] = self.rows.get(sink, 0) + each.rows
            self.unsure += each.unsure
