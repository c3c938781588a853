"""What one run has done, summed up while it runs: the figures of its report, in memory that does not grow with it."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count

from barnabas.spark.pipeline.paths import SinkFeed
from barnabas.spark.pipeline.progress import Progress
from barnabas.spark.pipeline.series import Step, halved
from barnabas.spark.pipeline.sinks import WrittenFile

MAX_STEPS = 20_000
"""Of a query; beyond that neighbours are taken together."""
MAX_FILES = 200
SLOWEST = 10


class Ending(StrEnum):
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass
class QuerySummary:
    """The batches of one query."""

    first_lag: int
    last: Progress
    steps: list[Step] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    busy_seconds: float = 0.0
    sinks: dict[str, None] = field(default_factory=dict)
    """In the order in which they were written."""

    @property
    def label(self) -> str:
        """For people: a query that is not called by its sink has them behind its name."""
        name = self.last.query
        return name if name in self.sinks else f"{name} ({', '.join(self.sinks)})"

    def add(self, progress: Progress) -> None:
        self.last = progress
        self.batches += 1
        self.records += progress.records
        self.busy_seconds += progress.batch_seconds
        self.sinks.update(dict.fromkeys(progress.rows))
        step = Step.of(progress.began, progress.at, progress.records, progress.lag, progress.state_rows or 0)
        self.steps.append(step)
        if len(self.steps) > MAX_STEPS:
            self.steps = halved(self.steps)


@dataclass
class SinkSummary:
    rows: int = 0
    seconds: float = 0.0
    rows_by_hour: Counter[str] = field(default_factory=Counter)
    files: int = 0
    size_bytes: int = 0


class RunSummary:
    """A reporter that sums up the run whose progress it gets."""

    def __init__(self, pipeline: str, started: float) -> None:
        self.pipeline = pipeline
        self.started = started
        self.ended = started
        self.ending = Ending.FINISHED
        self.error: str | None = None
        self.dead_letters = 0
        self.unsure = 0
        self.queries: dict[str, QuerySummary] = {}
        self.sinks: dict[str, SinkSummary] = {}
        self.sink_feeds: Sequence[SinkFeed] = ()
        self.last_files: deque[tuple[str, WrittenFile]] = deque(maxlen=MAX_FILES)
        self._slowest: list[tuple[float, int, Progress]] = []
        self._number = count()

    def feeds(self, feeds: Sequence[SinkFeed]) -> None:
        self.sink_feeds = feeds

    def report(self, progress: Progress) -> None:
        if progress.query not in self.queries:
            first_lag = sum(max(0, each.latest - each.start) for each in progress.partitions)
            self.queries[progress.query] = QuerySummary(first_lag, progress)
        self.queries[progress.query].add(progress)
        self.dead_letters += progress.dead_letters
        self.unsure += progress.unsure
        for sink, rows in progress.rows.items():
            summary = self.sinks.setdefault(sink, SinkSummary())
            summary.rows += rows
            summary.seconds += progress.sink_seconds.get(sink, progress.batch_seconds / len(progress.rows))
        for sink, files in progress.files.items():
            summary = self.sinks.setdefault(sink, SinkSummary())
            summary.rows_by_hour.update(files.rows_by_hour)
            summary.files += files.count
            summary.size_bytes += files.size_bytes
            self.last_files.extend((sink, file) for file in files.first)
        entry = (progress.batch_seconds, next(self._number), progress)
        (heapq.heappush if len(self._slowest) < SLOWEST else heapq.heappushpop)(self._slowest, entry)
        self.ended = max(self.ended, progress.at)

    def end(self, at: float, ending: Ending, error: str | None = None) -> None:
        self.ended, self.ending, self.error = at, ending, error

    @property
    def slowest(self) -> list[Progress]:
        return [progress for _, _, progress in sorted(self._slowest, reverse=True)]

    @property
    def batches(self) -> int:
        return sum(query.batches for query in self.queries.values())

    @property
    def records(self) -> int:
        return sum(query.records for query in self.queries.values())

    @property
    def lag(self) -> int:
        """At the end, of the query that is furthest behind."""
        return max((query.last.lag for query in self.queries.values()), default=0)

    @property
    def first_began(self) -> float:
        return min((step.began for query in self.queries.values() for step in query.steps), default=self.ended)

    @property
    def last_ended(self) -> float:
        return max((step.ended for query in self.queries.values() for step in query.steps), default=self.ended)

    @property
    def busy_seconds(self) -> float:
        """How long at least one batch was under way."""
        total, until = 0.0, float("-inf")
        for step in sorted(step for query in self.queries.values() for step in query.steps):
            total += max(0.0, step.ended - max(step.began, until))
            until = max(until, step.ended)
        return total
