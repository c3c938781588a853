"""Batches by ranges of offsets: for every sink whose rows need nothing but the records of their own batch.

Before a batch runs, its plan is written down; a sink then gets what lies between where it is and the plan's end. After
a crash the last plan is run again for the sinks that have not done it. How far a sink is, only the sink knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.pipeline import dead_letters
from barnabas.spark.pipeline.definition import DEAD_LETTERS, Mode
from barnabas.spark.pipeline.job import Job, Totals
from barnabas.spark.pipeline.origin import check_within, find_origin, tell_removed
from barnabas.spark.pipeline.paths import Choice, Path
from barnabas.spark.pipeline.plan import batch_of, earliest, is_new, next_plan, position
from barnabas.spark.pipeline.progress import Meter
from barnabas.spark.pipeline.sinks import Batch, Offsets, Sink, Written
from barnabas.spark.pipeline.state import Plan
from barnabas.spark.pipeline.topics import Layout, Positions
from barnabas.spark.ranges import ranges_between

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from barnabas.spark.direct.rows import DirectRows


@dataclass(frozen=True, slots=True)
class OffsetSink:
    """A sink with the view that it writes, and the sources whose offsets it keeps. No view: it takes dead letters."""

    sink: Sink
    view: str | None
    sources: tuple[str, ...]
    choice: Choice


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets to be loaded whatever the sinks have by now; they pass over what they have."""

    pipeline: str
    """Whose they are: dead letters carry its name, so that it can replay and audit them."""
    start: Offsets
    end: Offsets


class OffsetRun:
    def __init__(self, job: Job, sinks: Sequence[OffsetSink], span: Span | None = None) -> None:
        self._job = job
        self._sinks = sinks
        self._span = span
        self._query_id = job.state.query_id()
        self._positions: dict[str, Positions] = {}
        self._reads_rows = any(each.view is not None for each in sinks)
        """Else other ways of the run read the records, and count them."""
        self._done = {each.sink.name: None if span else each.sink.done_offsets() for each in sinks}
        last = job.state.last_plan()
        self._number = 0 if last is None else last.number + 1
        self._cut_off = last
        self.totals = Totals()

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        """`between` is called between batches, for those who have to look after other things meanwhile."""
        job = self._job
        goes_on = job.pipeline.mode is Mode.MICRO_BATCH
        layout, latest = job.at_start
        if self._span:
            latest = self._span.end
        self._place(layout, latest)
        meter = Meter(job.pipeline.name, "offsets", time.monotonic(), earliest(self._positions.values()))
        while not job.stop.is_set:
            began = time.monotonic()
            plan = self._next(latest, layout)
            if plan is not None:
                self._do(plan, layout, latest, meter)
            elif not goes_on:
                return
            between()
            if goes_on:
                job.stop.wait(max(0.0, job.pipeline.trigger_ms / 1000 - (time.monotonic() - began)))
                layout = job.layout()
                latest = job.topics.latest(layout)
                self._place(layout, latest)

    def _place(self, layout: Layout, latest: Offsets) -> None:
        """Find where each sink goes on, also in partitions that have come since."""
        job, span = self._job, self._span
        origin = span.start if span else find_origin(job.pipeline, job.topics, layout, job.state)
        there = {} if span else job.topics.earliest(layout)  # no sink is new to a span
        for each in self._sinks:
            name, begins = each.sink.name, layout.parts(each.sources, origin)
            done = self._positions.get(name) or self._done[name]
            self._positions[name] = position(done, begins, there)
            if is_new(done, begins):
                tell_removed(name, begins, self._positions[name])
            check_within(name, self._positions[name], latest)

    def _next(self, latest: Offsets, layout: Layout) -> Plan | None:
        cut_off, self._cut_off = self._cut_off, None
        if cut_off is not None and self._span is None and self._is_cut_off(cut_off):
            return cut_off
        tables = layout.parts((each.name for each in self._job.pipeline.sources if each.is_table), latest)
        start = earliest(self._positions.values())
        plan = next_plan(self._number, start, latest, tables, self._job.pipeline.max_records_per_batch)
        if plan is not None:
            self._job.state.save_plan(plan)
            self._number += 1
        return plan

    def _is_cut_off(self, plan: Plan) -> bool:
        """Whether some sink has a part of the plan to do, and none has to do anything that comes before it."""
        behind = [at for at in self._positions.values() if batch_of(plan, at, self._query_id) is not None]
        return bool(behind) and all(
            offset >= plan.start.get(partition, offset) for at in behind for partition, offset in at.items()
        )

    def _do(self, plan: Plan, layout: Layout, latest: Offsets, meter: Meter) -> None:
        began = time.monotonic()
        written: dict[str, Written] = {}
        seconds: dict[str, float] = {}
        frame_of = self._frames(plan, layout)
        for each in self._sinks:
            batch = batch_of(plan, self._positions[each.sink.name], self._query_id)
            if batch is not None:
                sink_began = time.monotonic()
                written[each.sink.name] = each.sink.write(frame_of(each, batch), batch)
                seconds[each.sink.name] = round(time.monotonic() - sink_began, 3)
                self._positions[each.sink.name].update(batch.end)
        records = plan.size if self._reads_rows else 0
        self.totals.add(records, written)
        self._job.unsure.release(self._positions.get(DEAD_LETTERS, {}))
        now = time.monotonic()
        self._job.reporter.report(
            meter.progress(
                now=now,
                wall=time.time(),
                batch=plan.number,
                records=records,
                batch_seconds=now - began,
                done=earliest(self._positions.values()),
                latest=latest,
                written=written,
                dead_letters=written[DEAD_LETTERS].rows if DEAD_LETTERS in written else 0,
                ranges=ranges_between(plan.start, plan.end),
                sink_seconds=seconds,
            )
        )

    def _frames(self, plan: Plan, layout: Layout) -> Callable[[OffsetSink, Batch], DataFrame | DirectRows]:
        """Gives a sink its rows of a batch; sinks that are equally far share the views."""
        frames = self._job.frames
        made: dict[str, Mapping[str, DataFrame]] = {}

        def frame_of(each: OffsetSink, batch: Batch) -> DataFrame | DirectRows:
            if each.view is None:
                bad = frames.bad_records(layout, batch.start, batch.end, self._job.unsure)
                name = self._span.pipeline if self._span else self._job.pipeline.name
                return dead_letters.dead_letters(bad, frames.decoders, name)
            if each.choice.path is Path.DIRECT:
                return frames.direct(layout, each.view, self._job.unsure)
            key = repr(sorted(batch.start.items()))
            if key not in made:
                made[key] = frames.of_ranges(layout, batch.start, batch.end, plan.tables)
            return made[key][each.view]

        return frame_of
