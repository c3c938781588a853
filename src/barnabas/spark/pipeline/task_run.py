"""The offline load: one batch up to now, cut into tasks that are committed one by one, side by side and in any order.

For sinks that know which offsets they have, and not only how far they are. A task that failed is done again alone by
the next run, and a run that was killed goes on with what is missing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from barnabas.spark.pipeline.job import Job, Totals
from barnabas.spark.pipeline.offset_run import OffsetSink
from barnabas.spark.pipeline.origin import check_within, find_origin, tell_removed
from barnabas.spark.pipeline.paths import Path
from barnabas.spark.pipeline.plan import is_new, position
from barnabas.spark.pipeline.progress import Meter
from barnabas.spark.pipeline.sinks import Batch, Offsets, TaskSink, Written
from barnabas.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from barnabas.spark.direct.rows import DirectRows


class TaskRun:
    """Loads one sink, up to what was there when the run began."""

    def __init__(self, job: Job, target: OffsetSink) -> None:
        self._job = job
        self._target = target
        self.totals = Totals()

    def run(self) -> None:
        job, sink, view = self._job, self._target.sink, self._target.view
        assert isinstance(sink, TaskSink)
        assert view is not None
        layout, latest = job.at_start
        before = sink.done_offsets()
        check_within(sink.name, before or {}, latest)
        origin = layout.parts(self._target.sources, find_origin(job.pipeline, job.topics, layout, job.state))
        start = position(before, origin, job.topics.earliest(layout))
        if is_new(before, origin):
            tell_removed(sink.name, origin, start)
        end = {partition: max(first, latest[partition]) for partition, first in start.items()}
        batch = Batch(0, job.state.query_id(), start, end)
        done = dict(end)  # but for what is missing, which may lie before what tasks of another run have brought
        for piece in sink.missing(batch):
            done[piece.topic, piece.partition] -= piece.size
        meter = Meter(job.pipeline.name, sink.name, time.monotonic(), dict(done))
        began: dict[tuple[OffsetRange, ...], float] = {}

        def on_done(task: tuple[OffsetRange, ...], written: Written) -> None:
            for piece in task:
                done[piece.topic, piece.partition] += piece.size
            self._report(meter, task, time.monotonic() - began.pop(task), written, dict(done), latest)

        def rows_of(part: Batch) -> DataFrame | DirectRows:
            began[part.ranges] = time.monotonic()
            if self._target.choice.path is Path.DIRECT:
                return job.frames.direct(layout, view, job.unsure)
            return job.frames.of_ranges(layout, part.start, part.end, latest)[view]

        sink.write_tasks(
            rows_of,
            batch,
            job.pipeline.max_records_per_task,
            lambda: job.stop.is_set,
            on_done,
        )

    def _report(
        self,
        meter: Meter,
        task: tuple[OffsetRange, ...],
        seconds: float,
        written: Written,
        done: Offsets,
        latest: Offsets,
    ) -> None:
        size, by_sink = sum(piece.size for piece in task), {self._target.sink.name: written}
        self.totals.add(size, by_sink)
        self._job.reporter.report(
            meter.progress(
                now=time.monotonic(),
                wall=time.time(),
                batch=self.totals.batches - 1,
                records=size,
                batch_seconds=seconds,
                done=done,
                latest=latest,
                written=by_sink,
                ranges=task,
            )
        )
