"""A span of time loaded once more, or for the first time, whatever the pipeline has done by now.

A backfill is a pipeline of its own: its name has the span in it, so sinks that keep offsets by pipeline keep those of a
backfill apart, and the same span a second time finds them. A lake knows by itself which offsets it holds. The sinks are
those of the pipeline, though, and so is the lock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.spark.pipeline.definition import Mode, Pipeline, parse_time_ms
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.job import Job, Totals
from barnabas.spark.pipeline.lock import run_lock
from barnabas.spark.pipeline.offset_run import OffsetRun, Span
from barnabas.spark.pipeline.reporters import Reporter
from barnabas.spark.pipeline.runner import open_job, opened_sinks, sort_sinks
from barnabas.spark.pipeline.sinks import Offsets
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.stopping import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MARK = ".backfill-"


@dataclass(frozen=True, slots=True)
class Backfill:
    of: str
    """The name of the pipeline."""
    lock_file: Path
    """Of the pipeline."""
    pipeline: Pipeline
    """Its own."""
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
    name = f"{pipeline.name}{_MARK}{span}"
    own = replace(pipeline, name=name, mode=Mode.BATCH)
    return Backfill(pipeline.name, state.lock_file, own, State(state.directory / "backfill" / span), first, last)


def is_backfill_of(name: str, pipeline: str) -> bool:
    """Whether this is the name of a backfill of that pipeline, whose name its dead letters carry."""
    return name.startswith(f"{pipeline}{_MARK}")


def run_backfill(
    backfill: Backfill, spark: SparkSession, *, functions_in: Path, reporter: Reporter, stop: StopRequest
) -> Totals:
    opened = open_job(backfill.pipeline, spark, backfill.state, functions_in, reporter, stop)
    with run_lock(backfill.lock_file, backfill.of), opened as job, opened_sinks(job) as sinks:
        feeds = sort_sinks(job, sinks)
        run = OffsetRun(job, [*feeds.by_tasks, *feeds.by_offsets], Span(backfill.of, *find_span(job, backfill)))
        run.run()
        return run.totals


def find_span(job: Job, backfill: Backfill) -> tuple[Offsets, Offsets]:
    """As it was found the first time: in a topic that has grown since, the same times may be other offsets, and what
    sinks have of the one span would be a part of the other."""
    known = job.state.span()
    if known is not None:
        return known
    layout = job.layout()
    start, end = (job.topics.at_time(layout, time) for time in (backfill.first, backfill.last))
    job.state.save_span(start, end)
    return start, end
