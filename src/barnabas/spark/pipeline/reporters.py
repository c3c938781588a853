"""Who shows the progress of a run: bars on a terminal, JSON lines, Prometheus, and the history for the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, runtime_checkable

from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from barnabas.spark.pipeline.paths import SinkFeed


class Reporter(Protocol):
    def report(self, progress: Progress) -> None:
        """Show how far a query of the run is. May be called from threads of Spark's, one call at a time."""


@runtime_checkable
class TaskReporter(Protocol):
    def tasks(self, done: int, total: int) -> None:
        """Show how far the batch under way is, in Spark's tasks."""


@runtime_checkable
class FeedReporter(Protocol):
    def feeds(self, feeds: Sequence[SinkFeed]) -> None:
        """Show how the sinks of the run get their rows; called before the first batch."""


class Reporters:
    """Several as one."""

    def __init__(self, members: Sequence[Reporter] = ()) -> None:
        self._members = members

    def report(self, progress: Progress) -> None:
        for member in self._members:
            member.report(progress)

    def tasks(self, done: int, total: int) -> None:
        for member in self._members:
            if isinstance(member, TaskReporter):
                member.tasks(done, total)

    def feeds(self, feeds: Sequence[SinkFeed]) -> None:
        for member in self._members:
            if isinstance(member, FeedReporter):
                member.feeds(feeds)


class JsonLines:
    """One line for each batch."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def report(self, progress: Progress) -> None:
        print(progress.to_json(), file=self._out, flush=True)


@contextmanager
def history(file: Path) -> Iterator[JsonLines]:
    """What status and report read; a run adds to it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "a") as out:
        yield JsonLines(out)


class Terminal:
    """A bar for each partition, and one line for the run."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.bars = Bars(*columns, console=console)
        self._tasks: dict[tuple[str, str], TaskID] = {}

    def report(self, progress: Progress) -> None:
        for each in progress.partitions:
            name = f"{each.topic}-{each.partition}"
            self._show(progress.query, name, each.done - each.start, each.latest - each.start, "")
        done = sum(each.done - each.start for each in progress.partitions)
        self._show(progress.query, progress.pipeline, done, done + progress.lag, summary(progress))

    def tasks(self, done: int, total: int) -> None:
        self._show("", "tasks", done, total, "")

    def _show(self, query: str, name: str, done: int, total: int, note: str) -> None:
        if (query, name) not in self._tasks:
            self._tasks[query, name] = self.bars.add_task(name, note=note)
        self.bars.update(self._tasks[query, name], completed=done, total=total, note=note)


@contextmanager
def terminal(console: Console) -> Iterator[Terminal]:
    shown = Terminal(console)
    with shown.bars:
        yield shown


def summary(progress: Progress) -> str:
    """A run in one line."""
    parts = [f"batch {progress.batch}", f"{progress.records_per_second:,.0f} records/s", f"lag {progress.lag:,}"]
    if progress.lag and progress.eta_seconds is not None:
        parts.append(f"{progress.eta_seconds:.0f} s left")
    if progress.watermark is not None:
        parts.append(f"watermark {progress.watermark}")
    if progress.state_rows is not None:
        parts.append(f"state {progress.state_rows:,} rows, {(progress.state_bytes or 0) / 1e6:.1f} MB")
    if progress.unsure:
        parts.append(f"{progress.unsure:,} left to Spark")
    if progress.dead_letters:
        parts.append(f"{progress.dead_letters:,} dead letters")
    return ", ".join(parts)


class Prometheus:
    """Gauges that a scraper reads at http://HOST:PORT/metrics."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self.registry = CollectorRegistry()
        run, partition = ["pipeline", "query"], ["pipeline", "query", "topic", "partition"]

        def gauge(name: str, text: str, labels: list[str]) -> Gauge:
            return Gauge(f"barnabas_pipeline_{name}", text, labels, registry=self.registry)

        def counter(name: str, text: str, labels: list[str]) -> Counter:
            return Counter(f"barnabas_pipeline_{name}", text, labels, registry=self.registry)

        self._done = gauge("done_offset", "Next offset that the slowest sink needs.", partition)
        self._to_go = gauge("to_go_records", "Offsets between that and the end of the partition.", partition)
        self._lag = gauge("lag_records", "Offsets to go in all partitions.", run)
        self._speed = gauge("records_per_second", "Over this run.", run)
        self._eta = gauge("eta_seconds", "Until all that is there now is done.", run)
        self._batch = gauge("batch_seconds", "Of the last batch.", run)
        self._state_rows = gauge("state_rows", "Rows that Spark keeps for windows and joins.", run)
        self._state_bytes = gauge("state_bytes", "Memory of that state.", run)
        self._watermark = gauge("watermark_seconds", "Event time that nothing older is waited for.", run)
        self._batches = counter("batches", "Done in this run.", run)
        self._records = counter("records", "Offsets read in this run.", run)
        self._rows = counter("rows", "Rows written in this run.", ["pipeline", "query", "sink"])
        self._dead_letters = counter("dead_letters", "Records that could not be read.", run)

    def report(self, progress: Progress) -> None:
        names = (progress.pipeline, progress.query)
        for each in progress.partitions:
            self._done.labels(*names, each.topic, each.partition).set(each.done)
            self._to_go.labels(*names, each.topic, each.partition).set(each.to_go)
        gauges = {
            self._lag: progress.lag,
            self._speed: progress.records_per_second,
            self._eta: progress.eta_seconds,
            self._batch: progress.batch_seconds,
            self._state_rows: progress.state_rows,
            self._state_bytes: progress.state_bytes,
            self._watermark: None if progress.watermark is None else seconds_of(progress.watermark),
        }
        for gauge, value in gauges.items():
            if value is not None:
                gauge.labels(*names).set(value)
        self._batches.labels(*names).inc()
        self._records.labels(*names).inc(progress.records)
        self._dead_letters.labels(*names).inc(progress.dead_letters)
        for sink, rows in progress.rows.items():
            self._rows.labels(*names, sink).inc(rows)


def seconds_of(watermark: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(watermark).timestamp()


@contextmanager
def prometheus(host: str, port: int) -> Iterator[Prometheus]:
    from prometheus_client import start_http_server

    metrics = Prometheus()
    try:
        server, thread = start_http_server(port, host, registry=metrics.registry)
    except OSError as error:
        raise PipelineError(f"cannot serve metrics on {host}:{port}: {error.strerror}") from None
    with ExitStack() as stack:
        stack.callback(thread.join)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        yield metrics
