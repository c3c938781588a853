"""The offline load into a lake: tasks of one partition and some offsets each, side by side and in any order.

Each task is committed by itself, so one that failed is done again alone, and a run that was killed goes on with what
the lake does not have. Tasks begin at multiples of their size: the same offsets always make the same files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from barnabas.spark.lake.load import plan_tasks
from barnabas.spark.lake.sink import LakeSink
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.failures import brief
from barnabas.spark.pipeline.job import Job, Totals
from barnabas.spark.pipeline.offset_run import OffsetSink
from barnabas.spark.pipeline.origin import check_within, find_origin
from barnabas.spark.pipeline.progress import Meter
from barnabas.spark.pipeline.sinks import Batch, Offsets
from barnabas.spark.pipeline.topics import Layout, Positions
from barnabas.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LakeRun:
    """Loads one sink, up to what is there when it begins."""

    def __init__(self, job: Job, target: OffsetSink) -> None:
        assert isinstance(target.sink, LakeSink)
        assert target.view is not None
        self._job = job
        self._sink = target.sink
        self._view = target.view
        self._sources = target.sources
        self._building = threading.Lock()
        self._query_id = job.state.query_id()
        self.totals = Totals()

    def run(self) -> None:
        job = self._job
        layout = job.layout()
        latest = job.topics.latest(layout)
        origin = find_origin(job.pipeline, job.topics, layout, job.state)
        first = layout.parts(self._sources, origin)
        check_within(self._sink.name, self._sink.done_offsets() or {}, latest)
        wanted = [OffsetRange(*partition, start, max(start, latest[partition])) for partition, start in first.items()]
        tasks = plan_tasks(self._sink.lake.state().missing(wanted), job.pipeline.max_records_per_task)
        done = {partition: latest[partition] for partition in first}
        for task in tasks:
            done[task.topic, task.partition] -= task.size
        self._run_all(tasks, layout, first, latest, done)

    def _run_all(
        self, tasks: Sequence[OffsetRange], layout: Layout, first: Offsets, latest: Offsets, done: Positions
    ) -> None:
        meter = Meter(self._job.pipeline.name, self._sink.name, time.monotonic(), dict(done))
        failures: dict[OffsetRange, BaseException] = {}
        with ThreadPoolExecutor(self._job.spark.sparkContext.defaultParallelism, "lake-load") as threads:
            running = {threads.submit(self._load, task, layout, first, latest): task for task in tasks}
            for number, future in enumerate(as_completed(running)):
                task = running[future]
                problem = future.exception()
                if problem is not None:
                    failures[task] = problem
                elif (loaded := future.result()) is not None:
                    rows, seconds = loaded
                    done[task.topic, task.partition] += task.size
                    self._report(meter, number, task, rows, seconds, done, latest)
        for task, problem in sorted(failures.items(), key=lambda each: each[0]):
            told = (
                f"sink {self._sink.name!r}: {len(failures)} of {len(tasks)} tasks failed, and a new run does only those"
            )
            raise PipelineError(f"{told}; {task}: {brief(problem)}") from problem

    def _load(self, task: OffsetRange, layout: Layout, first: Offsets, latest: Offsets) -> tuple[int, float] | None:
        """Rows and seconds; None if a stop was asked for before the task began."""
        if self._job.stop.is_set:
            return None
        began = time.monotonic()
        where = (task.topic, task.partition)
        batch = Batch(0, self._query_id, {where: task.start}, {where: task.end})
        rows = self._sink.write(self._frame(batch, layout, latest), batch, {where: first[where]})
        return rows, time.monotonic() - began

    def _frame(self, batch: Batch, layout: Layout, latest: Offsets) -> DataFrame:
        with self._building:  # views have names, which all tasks share while they are made
            return self._job.frames.of_ranges(layout, batch.start, batch.end, latest)[self._view]

    def _report(
        self, meter: Meter, number: int, task: OffsetRange, rows: int, seconds: float, done: Positions, latest: Offsets
    ) -> None:
        written = {self._sink.name: rows}
        self.totals.add(task.size, written)
        self._job.reporter.report(
            meter.progress(
                now=time.monotonic(),
                wall=time.time(),
                batch=number,
                records=task.size,
                batch_seconds=seconds,
                done=dict(done),
                latest=latest,
                rows=written,
            )
        )
