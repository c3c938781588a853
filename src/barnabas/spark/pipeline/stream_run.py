"""Queries with state: windows under a watermark and joins of streams, kept by Spark in its checkpoint.

Each sink has a query of its own. Spark hands it batch after batch, and the same batch again after a crash; the sink
knows by the query's id and the batch's number what it has.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from barnabas.spark.lake.filesystem import open_filesystem
from barnabas.spark.pipeline.definition import Emit, Mode
from barnabas.spark.pipeline.job import Job, Totals
from barnabas.spark.pipeline.origin import find_origin, tell_removed
from barnabas.spark.pipeline.plan import position
from barnabas.spark.pipeline.progress import Meter, Progress
from barnabas.spark.pipeline.sinks import NOTHING, Batch, Sink, Written
from barnabas.spark.ranges import ranges_between

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_OUTPUT_MODES = {Emit.FINAL: "append", Emit.CHANGES: "update"}
_POLL_S = 0.2
_LATE_WORKER = "Python worker failed to connect back"
"""Spark gives the Python process that plans a stream ten seconds to come up, however busy the machine is."""
_MOST_STARTS = 5
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


class Stopped(Exception):
    """Keeps a query from beginning another batch."""


@dataclass(frozen=True, slots=True)
class StreamSink:
    sink: Sink
    view: str
    emit: Emit


class StreamQuery:
    """One sink's query: `write` runs in a thread of Spark's, the rest in the main thread."""

    def __init__(self, job: Job, target: StreamSink) -> None:
        self._job = job
        self._target = target
        self._started = threading.Event()
        self._writing = threading.Lock()
        self._writer: DataStreamWriter | None = None
        self._query: StreamingQuery | None = None
        self._starts_left = _MOST_STARTS
        self._meter: Meter | None = None
        self._last_batch = -1
        self._written: dict[int, Written] = {}
        self._is_first_batch = True
        self._error: BaseException | None = None
        self.totals = Totals()

    def start(self, frame: DataFrame, checkpoint: str) -> None:
        pipeline = self._job.pipeline
        writer = frame.writeStream.foreachBatch(self._write).outputMode(_OUTPUT_MODES[self._target.emit])
        if pipeline.mode is Mode.AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{pipeline.trigger_ms} milliseconds")
        name = self._target.sink.name
        writer = writer.option("checkpointLocation", f"{checkpoint}/{name}").queryName(f"{pipeline.name}.{name}")
        self._writer = writer
        self._begin()

    def _begin(self) -> None:
        assert self._writer is not None
        self._starts_left -= 1
        self._query = self._writer.start()
        self._started.set()

    @property
    def is_over(self) -> bool:
        return self._query is None or not (self._query.isActive or self._is_late)

    def stop(self) -> None:
        """Between two batches: one that is being written is waited for."""
        with self._writing:
            self._starts_left = 0  # the request to stop is set, so no other batch begins
        if self._query is not None:
            self._query.stop()

    def check(self) -> None:
        """Raise what ended the query, if that was an error; one that never began is begun again."""
        if self._error is not None and not isinstance(self._error, Stopped):
            raise self._error
        if self._is_late:
            self._begin()
        elif (failure := self._failure) is not None and self._error is None:
            raise failure

    @property
    def _failure(self) -> Exception | None:
        return self._query.exception() if self._query is not None else None

    @property
    def _is_late(self) -> bool:
        """Whether the query has ended before it began, and may be tried again."""
        return self._starts_left > 0 and _LATE_WORKER in str(self._failure)

    def _write(self, frame: DataFrame, number: int) -> None:
        self._started.wait()
        assert self._query is not None
        with self._writing:
            try:
                if self._job.stop.is_set:
                    raise Stopped
                written = self._target.sink.write(frame, Batch(number, str(self._query.id), {}, {}))
                if written is NOTHING and self._is_first_batch:
                    # The sink has it from the run before and has not read it, but Spark has to bring its state along.
                    frame.write.format("noop").mode("overwrite").save()
                self._is_first_batch = False
                self._written[number] = written
            except BaseException as error:
                self._error = error
                raise

    def report(self) -> None:
        """Tell of the batches that were done since."""
        assert self._query is not None
        for told in self._query.recentProgress:
            found = json.loads(told.json) if hasattr(told, "json") else dict(told)
            if found["batchId"] > self._last_batch and found["batchId"] in self._written:
                self._last_batch = found["batchId"]
                written = {self._target.sink.name: self._written.pop(self._last_batch)}
                progress = self._progress(found, written)
                self.totals.add(progress.records, written)
                self._job.reporter.report(progress)

    def _progress(self, told: Mapping[str, Any], written: Mapping[str, Written]) -> Progress:
        name, first = self._target.sink.name, offsets_in(told, "startOffset")
        if self._meter is None:
            self._meter = Meter(self._job.pipeline.name, name, time.monotonic(), first)
        seconds = told.get("batchDuration", 0) / 1000
        states = told.get("stateOperators", [])
        done = offsets_in(told, "endOffset")
        return self._meter.progress(
            now=time.monotonic() + (seconds if not self._meter.total else 0.0),
            wall=datetime.fromisoformat(told["timestamp"]).timestamp() + seconds,
            batch=told["batchId"],
            records=told.get("numInputRows", 0),
            batch_seconds=seconds,
            done=done,
            latest={**done, **offsets_in(told, "latestOffset")},
            written=written,
            ranges=ranges_between(first, done),
            watermark=told.get("eventTime", {}).get("watermark"),
            state_rows=sum(state.get("numRowsTotal", 0) for state in states),
            state_bytes=sum(state.get("memoryUsedBytes", 0) for state in states),
        )


def offsets_in(told: Mapping[str, Any], key: str) -> dict[tuple[str, int], int]:
    """The offsets of all sources that a progress of Spark's tells of."""
    found: dict[tuple[str, int], int] = {}
    for source in told.get("sources", []):
        offsets = source.get(key) or {}
        if isinstance(offsets, str):
            offsets = json.loads(offsets)
        for topic, partitions in offsets.items():
            if isinstance(partitions, Mapping):
                found.update(
                    {(topic, int(number)): offset for number, offset in partitions.items() if number.isdecimal()}
                )
    return found


def size_state(spark: SparkSession) -> None:
    """Keep state in as many parts as this machine has cores, unless the number is set.

    Each part is a task and some files in every batch, and Spark's own 200 are for clusters. A checkpoint keeps the
    number that it began with.
    """
    context = spark.sparkContext
    if (context.master or "").startswith("local") and not context.getConf().contains(_SHUFFLE_PARTITIONS):
        spark.conf.set(_SHUFFLE_PARTITIONS, context.defaultParallelism)


class StreamRun:
    """All queries of a run."""

    def __init__(self, job: Job, targets: Sequence[StreamSink]) -> None:
        self._job = job
        self._queries = [(target, StreamQuery(job, target)) for target in targets]

    def start(self) -> None:
        if not self._queries:
            return
        job = self._job
        size_state(job.spark)
        layout = job.layout()
        origin = find_origin(job.pipeline, job.topics, layout, job.state)
        begins = position(None, origin, job.topics.earliest(layout))
        views = job.frames.streams(layout, begins)
        checkpoint = job.pipeline.checkpoint or (job.state.directory / "checkpoint").as_uri()
        kept = open_filesystem(job.spark, checkpoint)
        for target, query in self._queries:
            if not kept.exists(target.sink.name):
                driving = [source.name for source in job.pipeline.driving_sources(target.view)]
                tell_removed(target.sink.name, layout.parts(driving, origin), begins)
            query.start(views[target.view], checkpoint)

    def wait(self) -> None:
        """Until all have ended, by themselves or by a request to stop; an error of one stops the others."""
        while not all(query.is_over for _, query in self._queries) and not self._job.stop.wait(_POLL_S):
            self.report()
        self.close()

    def report(self) -> None:
        for _, query in self._queries:
            query.report()
            query.check()

    def close(self) -> None:
        for _, query in self._queries:
            query.stop()
        self.report()

    @property
    def totals(self) -> list[Totals]:
        return [query.totals for _, query in self._queries]
