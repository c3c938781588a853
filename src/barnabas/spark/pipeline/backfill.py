"""A span of time loaded once more, or for the first time, whatever the pipeline has done by now.

A backfill is a pipeline of its own: its name has the span in it, so sinks that keep offsets by pipeline keep those of a
backfill apart, and the same span a second time finds them. A lake knows by itself which offsets it holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.spark.pipeline.definition import Mode, Pipeline, parse_time_ms
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.job import Totals
from barnabas.spark.pipeline.offset_run import OffsetRun, Span
from barnabas.spark.pipeline.reporters import Reporter
from barnabas.spark.pipeline.runner import open_job, opened_sinks, sort_sinks
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.stopping import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Backfill:
    pipeline: Pipeline
    state: State
    first: str
    last: str


def backfill_of(pipeline: Pipeline, state: State, first: str, last: str) -> Backfill:
    """The records from the time `first` up to, not including, `last`, as one load."""
    try:
        if parse_time_ms(first) >= parse_time_ms(last):
            raise PipelineError(f"a backfill from {first} to {last} holds nothing")
    except ValueError as error:
        raise PipelineError(f"a backfill needs times such as 2026-11-01T00:00:00Z: {error}") from None
    span = re.sub(r"[^0-9A-Za-z]+", "", f"{first}_{last}".replace("_", "to"))
    name = f"{pipeline.name}.backfill-{span}"
    own = replace(pipeline, name=name, mode=Mode.BATCH)
    return Backfill(own, State(state.directory / "backfill" / span), first, last)


def run_backfill(
    backfill: Backfill, spark: SparkSession, *, functions_in: Path, reporter: Reporter, stop: StopRequest
) -> Totals:
    opened = open_job(backfill.pipeline, spark, backfill.state, functions_in, reporter, stop)
    with opened as job, opened_sinks(job) as sinks:
        layout = job.layout()
        span = Span(job.topics.at_time(layout, backfill.first), job.topics.at_time(layout, backfill.last))
        feeds = sort_sinks(job, sinks)
        run = OffsetRun(job, [*feeds.by_offsets, *feeds.by_tasks], span)
        run.run()
        return run.totals
