"""What the commands on pipelines share: the file, its state, who shows progress, and how errors are told."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from barnabas.cli.output import counted, fail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.spark.pipeline.definition import Pipeline
    from barnabas.spark.pipeline.job import Job
    from barnabas.spark.pipeline.progress import Progress
    from barnabas.spark.pipeline.reporters import Reporter, Reporters
    from barnabas.spark.pipeline.run_summary import RunSummary
    from barnabas.spark.pipeline.sinks import Sink
    from barnabas.spark.pipeline.state import State
    from barnabas.spark.pipeline.stopping import StopRequest


_RECORDING = "later runs start faster: Spark's classes are being archived, once, in the background (half a minute)"


class ProgressOutput(StrEnum):
    AUTO = "auto"
    """Bars on a terminal, else one line for each batch."""
    BARS = "bars"
    LINES = "lines"
    JSON = "json"
    NONE = "none"


_SILENT = (ProgressOutput.NONE, ProgressOutput.JSON)
"""Without sentences for people."""


class _Lines:
    def report(self, progress: Progress) -> None:
        from barnabas.spark.pipeline.reporters import summary

        print(f"{progress.pipeline}: {summary(progress)}", file=sys.stderr, flush=True)


@contextmanager
def telling() -> Iterator[None]:
    """What the owner of a pipeline can set right is one line; the rest is a bug."""
    from barnabas.spark.pipeline.errors import PipelineError

    try:
        yield
    except PipelineError as error:
        fail(str(error))
    except ModuleNotFoundError as error:
        fail(f"pipelines need more than the broker does: pip install 'barnabas[spark]' ({error})")
    except KeyboardInterrupt:
        fail("stopped at once; what was committed stays, and the next run goes on from there")


def load(file: Path) -> Pipeline:
    from barnabas.spark.pipeline.definition_file import load_pipeline

    return load_pipeline(file)


def state_of(pipeline: Pipeline, file: Path) -> State:
    from barnabas.spark.pipeline.definition import default_state
    from barnabas.spark.pipeline.state import State

    return State(Path(pipeline.state) if pipeline.state is not None else default_state(file, pipeline.name))


@contextmanager
def reporting(
    state: State, progress: ProgressOutput, json_file: Path | None, metrics: str | None, summary: RunSummary
) -> Iterator[Reporters]:
    """All who are told of the progress, the history of the pipeline first."""
    from barnabas.spark.pipeline import reporters

    with ExitStack() as stack:
        members: list[Reporter] = [stack.enter_context(reporters.history(state.history_file)), summary]
        if json_file is not None:
            members.append(stack.enter_context(reporters.history(json_file)))
        if metrics is not None:
            host, port = _address(metrics)
            members.append(stack.enter_context(reporters.prometheus(host, port)))
        members += _shown(progress, stack)
        yield reporters.Reporters(members)


def _shown(progress: ProgressOutput, stack: ExitStack) -> list[Reporter]:
    from rich.console import Console

    from barnabas.spark.pipeline import reporters

    if progress is ProgressOutput.AUTO:
        progress = ProgressOutput.BARS if sys.stderr.isatty() else ProgressOutput.LINES
    if progress is ProgressOutput.BARS:
        return [stack.enter_context(reporters.terminal(Console(stderr=True)))]
    if progress is ProgressOutput.JSON:
        return [reporters.JsonLines(sys.stderr)]
    return [_Lines()] if progress is ProgressOutput.LINES else []


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal():
        raise typer.BadParameter(f"{text!r} is not [HOST:]PORT", param_hint="--metrics")
    return host or "127.0.0.1", int(port)


def announce(pipeline: Pipeline, state: State, progress: ProgressOutput) -> None:
    """Say what a run is going to do, before Spark starts."""
    from barnabas.spark.pipeline.charts import size_shown
    from barnabas.spark.pipeline.forecast import forecast

    if progress in _SILENT:
        return
    found = forecast(pipeline, state)
    text = "nothing new to read"
    if found.records:
        size = "" if found.bytes is None else f" (about {size_shown(found.bytes)})"
        work = f"{counted(found.records, 'record')}{size} of {counted(found.partitions, 'partition')}"
        way = "directly with Arrow" if found.is_direct else "through Spark"
        text = f"{work} to read in {counted(found.tasks, 'task')}, {way}"
    print(f"{pipeline.name}: {text}; starting Spark", file=sys.stderr, flush=True)


@contextmanager
def write_report(pipeline: Pipeline, target: Path, stop: StopRequest) -> Iterator[RunSummary]:
    """Write the HTML report at the end of a run, however it ends."""
    from barnabas.spark.pipeline.letter_causes import find_causes
    from barnabas.spark.pipeline.report import report_html
    from barnabas.spark.pipeline.run_summary import Ending, RunSummary

    summary = RunSummary(pipeline.name, time.time())
    ending, problem, is_urgent = Ending.FINISHED, None, False
    try:
        yield summary
    except KeyboardInterrupt:
        ending, is_urgent = Ending.STOPPED, True
        raise
    except Exception as error:
        ending, problem = Ending.FAILED, str(error) or type(error).__name__
        raise
    finally:
        if ending is Ending.FINISHED and stop.is_set:
            ending = Ending.STOPPED
        summary.end(time.time(), ending, problem)
        letters = find_causes(pipeline, summary) if summary.dead_letters and not is_urgent else None
        page = report_html(summary, pipeline, letters, target.parent)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(page, encoding="utf-8")
        except OSError as refused:  # what the run has committed counts, with or without its report
            print(f"cannot write the report: {refused}", file=sys.stderr, flush=True)


class Work(NamedTuple):
    """What a run needs of the command."""

    spark: SparkSession
    reporter: Reporters
    stop: StopRequest


@contextmanager
def working(
    pipeline: Pipeline,
    state: State,
    master: str | None,
    progress: ProgressOutput,
    json_file: Path | None = None,
    metrics: str | None = None,
    report: Path | None = None,
    *,
    announces: bool = False,
) -> Iterator[Work]:
    """Spark, those who show progress, Ctrl-C that stops between commits, and the report at the end."""
    from barnabas.spark.class_archive import ClassArchive
    from barnabas.spark.java import require_java
    from barnabas.spark.pipeline.lock import check_free
    from barnabas.spark.pipeline.paths import is_direct_by_design
    from barnabas.spark.pipeline.session import spark_session
    from barnabas.spark.pipeline.stopping import stop_on_signals
    from barnabas.spark.pipeline.watching import watching

    check_free(state.lock_file, pipeline.name)
    java = require_java()
    if announces:
        announce(pipeline, state, progress)
    with (
        stop_on_signals(lambda text: print(text, file=sys.stderr, flush=True)) as stop,
        write_report(pipeline, report or state.report_file, stop) as summary,
        spark_session(
            pipeline.name,
            master,
            pipeline.spark,
            state.directory,
            is_direct=is_direct_by_design(pipeline),
        ) as spark,
        reporting(state, progress, json_file, metrics, summary) as reporters,
        watching(spark, reporters.tasks),
    ):
        stop.listen()
        yield Work(spark, reporters, stop)
    if ClassArchive.of(java.version).record_in_background() and progress not in _SILENT:
        print(_RECORDING, file=sys.stderr, flush=True)


@contextmanager
def working_sinks(pipeline: Pipeline, file: Path, master: str | None) -> Iterator[tuple[Job, Mapping[str, Sink]]]:
    """The sinks of a pipeline that does not run, ready for work on them."""
    from barnabas.spark.pipeline.reporters import Reporters
    from barnabas.spark.pipeline.runner import open_job, opened_sinks
    from barnabas.spark.pipeline.session import spark_session
    from barnabas.spark.pipeline.stopping import StopRequest

    state = state_of(pipeline, file)
    with (
        spark_session(pipeline.name, master, pipeline.spark, state.directory) as spark,
        open_job(pipeline, spark, state, file.parent, Reporters(), StopRequest()) as job,
        opened_sinks(job) as sinks,
    ):
        yield job, sinks


def audit_rows(pipeline: Pipeline, file: Path, master: str | None) -> list[dict[str, Any]]:
    """Of all sinks that can be audited, also while the pipeline runs."""
    from barnabas.spark.pipeline.audits import count_letters, with_letters
    from barnabas.spark.pipeline.runner import closed_sinks
    from barnabas.spark.pipeline.session import spark_session
    from barnabas.spark.pipeline.sinks import Audited

    state = state_of(pipeline, file)
    with closed_sinks(pipeline) as sinks:
        able = {name: sink for name, sink in sinks.items() if isinstance(sink, Audited)}
        _check_any(able, sinks)
        with spark_session(pipeline.name, master, pipeline.spark, state.directory) as spark:
            letters = count_letters(spark, pipeline)
            rows = {name: with_letters(sink.audit(spark), letters) for name, sink in able.items()}
            return [{"sink": name, **row} for name, some in rows.items() for row in some]


def compact_rows(pipeline: Pipeline, file: Path, master: str | None) -> list[dict[str, Any]]:
    """Of all sinks that can be compacted."""
    from barnabas.spark.pipeline.sinks import Compacted

    with working_sinks(pipeline, file, master) as (job, sinks):
        able = {name: sink for name, sink in sinks.items() if isinstance(sink, Compacted)}
        _check_any(able, sinks)
        return [{"sink": name, **row} for name, sink in able.items() for row in sink.compact(job.spark)]


def _check_any(able: Mapping[str, object], sinks: Mapping[str, Sink]) -> None:
    if not able:
        fail(f"none of the sinks can do that: {', '.join(sinks)}; a lake can")
