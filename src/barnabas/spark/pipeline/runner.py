"""One run of a pipeline: checks first, then batches until it is done or stopped; at the end nothing is left open."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.spark import worker_python
from barnabas.spark.direct.unsure import UnsureRecords
from barnabas.spark.pipeline import dead_letters
from barnabas.spark.pipeline.across import meetings, one_load_only
from barnabas.spark.pipeline.definition import DEAD_LETTERS, Emit, Mode, Pipeline, SinkDefinition, Source
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.explain import explain
from barnabas.spark.pipeline.failures import UnreadableRecord, brief, unreadable_in
from barnabas.spark.pipeline.frames import Frames
from barnabas.spark.pipeline.job import Job, Totals
from barnabas.spark.pipeline.lock import run_lock
from barnabas.spark.pipeline.offset_run import OffsetRun, OffsetSink
from barnabas.spark.pipeline.paths import OF_BAD_RECORDS, SinkFeed, choose_path
from barnabas.spark.pipeline.paths import Path as RowPath
from barnabas.spark.pipeline.reporters import FeedReporter, Reporter, Reporters
from barnabas.spark.pipeline.sinks import Sink, SinkContext, TaskSink, sink_kind
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.stopping import StopRequest
from barnabas.spark.pipeline.stream_run import StreamRun, StreamSink
from barnabas.spark.pipeline.task_run import TaskRun
from barnabas.spark.pipeline.topics import TopicOffsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_pipeline(
    pipeline: Pipeline,
    spark: SparkSession,
    state: State,
    *,
    functions_in: Path,
    reporter: Reporter | None = None,
    stop: StopRequest | None = None,
) -> Totals:
    """Run a pipeline as its mode says. What goes wrong is a PipelineError, and what was committed stays."""
    opened = open_job(pipeline, spark, state, functions_in, reporter or Reporters(), stop or StopRequest())
    with opened as job, opened_sinks(job) as sinks:
        feeds = sort_sinks(job, sinks)
        stream_run = StreamRun(job, feeds.streams)
        offset_run = OffsetRun(job, feeds.by_offsets)
        loads = [TaskRun(job, each) for each in feeds.by_tasks]
        try:
            stream_run.start()
            for load in loads:
                load.run()
            if feeds.by_offsets:
                offset_run.run(between=stream_run.report)
            stream_run.wait()
        finally:
            stream_run.close()
        return _sum([offset_run.totals, *(load.totals for load in loads), *stream_run.totals])


@contextmanager
def open_job(
    pipeline: Pipeline, spark: SparkSession, state: State, functions_in: Path, reporter: Reporter, stop: StopRequest
) -> Iterator[Job]:
    """Take the lock and reach the cluster. Views live in a session of their own."""
    with (
        run_lock(state.lock_file, pipeline.name),
        _unlocked_job(pipeline, spark, state, functions_in, reporter, stop) as job,
    ):
        yield job


@contextmanager
def looking(
    pipeline: Pipeline, spark: SparkSession, state: State, functions_in: Path
) -> Iterator[tuple[Job, dict[str, Sink]]]:
    """For those who change nothing, also while the pipeline runs: no lock, and sinks that nobody has touched."""
    with (
        _unlocked_job(pipeline, spark, state, functions_in, Reporters(), StopRequest()) as job,
        closed_sinks(pipeline) as sinks,
        told_briefly(job),
    ):
        yield job, sinks


@contextmanager
def _unlocked_job(
    pipeline: Pipeline, spark: SparkSession, state: State, functions_in: Path, reporter: Reporter, stop: StopRequest
) -> Iterator[Job]:
    with TopicOffsets(pipeline.cluster) as topics, own_session(spark) as own:
        unsure = UnsureRecords()
        try:
            yield Job(pipeline, own, Frames(own, pipeline, functions_in), topics, state, reporter, stop, unsure)
        finally:
            unsure.release()


@contextmanager
def own_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark makes it the active one; at the end the caller's is that again."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    worker_python.adopt(spark.sparkContext)
    own = spark.newSession()
    try:
        yield own
    finally:
        kind: Any = type(spark)
        kind._activeSession = spark
        with suppress(Py4JError, OSError):  # a JVM that is gone has none
            kind._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


@contextmanager
def opened_sinks(job: Job) -> Iterator[dict[str, Sink]]:
    """All sinks by name, ready to be written."""
    with closed_sinks(job.pipeline) as sinks, told_briefly(job):
        for sink in sinks.values():
            sink.prepare(job.spark)
        yield sinks


@contextmanager
def closed_sinks(pipeline: Pipeline) -> Iterator[dict[str, Sink]]:
    """All sinks by name, of which none has been touched yet."""
    with ExitStack() as stack:
        sinks: dict[str, Sink] = {}
        for definition in pipeline.sinks:
            kind = sink_kind(definition.head.kind)
            sinks[definition.name] = kind.open(definition.settings, sink_context(pipeline, definition))
        if pipeline.dead_letters is not None:
            context = _context(pipeline, DEAD_LETTERS, pipeline.sources)
            sinks[DEAD_LETTERS] = dead_letters.open_sink(pipeline.dead_letters.topic, context)
        for sink in sinks.values():
            stack.callback(sink.close)
        yield sinks


def sink_context(pipeline: Pipeline, sink: SinkDefinition) -> SinkContext:
    return _context(pipeline, sink.name, pipeline.driving_sources(sink.head.from_))


def _context(pipeline: Pipeline, sink: str, sources: Sequence[Source]) -> SinkContext:
    options = pipeline.cluster.source_options()
    if any(source.pattern is not None for source in sources):
        patterns = [source.pattern or "|".join(map(re.escape, source.topics)) for source in sources]
        options["subscribePattern"] = "|".join(f"(?:{pattern})" for pattern in patterns)
    else:
        options["subscribe"] = ",".join(topic for source in sources for topic in source.topics)
    return SinkContext(pipeline.name, sink, options)


@dataclass(frozen=True)
class Feeds:
    """How the sinks of a run get their rows."""

    by_offsets: Sequence[OffsetSink]
    """Batch after batch, the same for all of them. Dead letters come last: loads have found the bad records by then."""
    by_tasks: Sequence[OffsetSink]
    """In mode batch, where every task may count by itself."""
    streams: Sequence[StreamSink]
    """Those that need Spark's state."""

    def described(self) -> list[SinkFeed]:
        ways = {"offsets": self.by_offsets, "tasks": self.by_tasks}
        return [
            SinkFeed(each.sink.name, each.view or f"({DEAD_LETTERS})", way, each.choice.path, each.choice.reason)
            for way, some in ways.items()
            for each in some
        ] + [SinkFeed(each.sink.name, each.view, "query", RowPath.SPARK, "a query with state") for each in self.streams]


def sort_sinks(job: Job, sinks: Mapping[str, Sink]) -> Feeds:
    pipeline, views = job.pipeline, job.frames.rehearsal
    met = {name: meetings(view) for name, view in views.items()}
    by_offsets: list[OffsetSink] = []
    by_tasks: list[OffsetSink] = []
    streams: list[StreamSink] = []
    for definition in pipeline.sinks:
        sink, view = sinks[definition.name], definition.head.from_
        driving = tuple(source.name for source in pipeline.driving_sources(view))
        if not driving:
            raise PipelineError(f"sink {definition.name!r}: view {view!r} reads tables only; a stream has to drive it")
        if met[view] and _needs_state(pipeline, definition, met):
            streams.append(StreamSink(sink, view, definition.head.emit))
        else:
            choice = choose_path(pipeline, definition, sink, views[view].columns, job.frames.decoders, job.spark)
            in_tasks = pipeline.mode is Mode.BATCH and not met[view] and isinstance(sink, TaskSink)
            (by_tasks if in_tasks else by_offsets).append(OffsetSink(sink, view, driving, choice))
    if DEAD_LETTERS in sinks:
        everything = tuple(source.name for source in pipeline.sources)
        by_offsets.append(OffsetSink(sinks[DEAD_LETTERS], None, everything, OF_BAD_RECORDS))
    feeds = Feeds(by_offsets, by_tasks, streams)
    if isinstance(job.reporter, FeedReporter):
        job.reporter.feeds(feeds.described())
    return feeds


def _needs_state(pipeline: Pipeline, sink: SinkDefinition, met: Mapping[str, set[str]]) -> bool:
    """Of a view that groups or joins rows: not in one load, which sees all its rows at once."""
    view = sink.head.from_
    if pipeline.mode is Mode.BATCH:
        if pipeline.max_records_per_batch is not None:
            raise PipelineError(
                f"sink {sink.name!r}: view {view!r} groups or joins rows, so that max_records_per_batch would cut "
                "groups in two; leave it out, or use mode available-now with a watermark"
            )
        return False
    behind = pipeline.views_behind(view)
    for each in pipeline.views:
        statement = one_load_only(met[each.name]) if each in behind else None
        if statement is not None:
            raise PipelineError(
                f"sink {sink.name!r}: view {each.name!r} has {statement}, which needs all rows at once; a batch has "
                "only its own, so use mode batch, or leave it out"
            )
    if not pipeline.has_watermark(view) and sink.head.emit is Emit.FINAL:
        raise PipelineError(
            f"sink {sink.name!r}: view {view!r} groups or joins rows of several batches and never knows when it has "
            "them all; give its source a watermark, or the sink `emit: changes`, or use mode batch"
        )
    return True


@contextmanager
def told_briefly(job: Job) -> Iterator[None]:
    """Turn errors of Spark's into one sentence; the record that cannot be read is looked at again to say why."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        found = unreadable_in(error)
        if found is None:
            raise PipelineError(brief(error)) from error
        raise UnreadableRecord(*found, _why(job, *found)) from None


def _why(job: Job, topic: str, partition: int, offset: int) -> str:
    start, end = {(topic, partition): offset}, {(topic, partition): offset + 1}
    layout = job.layout()
    for name, frame in job.frames.bad_records(layout, start, end).items():
        for row in frame.collect():
            return explain(job.frames.decoders[name].expectation, row.value)[0]
    return "it is not as the schema says"


def _sum(parts: Sequence[Totals]) -> Totals:
    total = Totals()
    for part in parts:
        total.batches += part.batches
        total.records += part.records
        total.rows.update(part.rows)
        total.unsure += part.unsure
    return total
