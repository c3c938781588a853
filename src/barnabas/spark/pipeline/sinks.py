"""The contract of a sink, and the table of the kinds that there are.

The runner asks a sink how far it is (`done_offsets`), then hands it batches, one after the other. What makes a
pipeline exactly-once is in `write`: the rows of a batch and the note that the batch is done become visible together,
or not at all. That note has two forms:

- a batch *by offsets* (`batch.end` is not empty) is done when the sink's offsets have reached its end;
- a batch of a *stateful* query (windows, joins of streams: `start` and `end` are empty) is done when the sink has
  stored its number, or a higher one, under the same `query_id`.

A kind lives in a module with a constant `KIND`, which is imported only when a pipeline names it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from barnabas.spark.ranges import OffsetRange, ranges_between

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.spark.direct.rows import DirectRows

TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, int]
"""The next offset to read, by topic and partition."""

TOPIC, PARTITION, OFFSET, TIMESTAMP = "_topic", "_partition", "_offset", "_timestamp"
"""Where a record comes from: columns that every source view has beside those of its schema, and that reach a sink as
far as the transforms keep them. A sink that reads a source directly gets them all."""
ORIGIN_COLUMNS = (TOPIC, PARTITION, OFFSET, TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one `write` covers. `start` and `end` hold the partitions of this batch only."""

    number: int
    query_id: str
    start: Offsets
    end: Offsets

    @property
    def is_by_offsets(self) -> bool:
        return bool(self.end)

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """What is to be read, one range for each partition, in their order."""
        return ranges_between(self.start, self.end)

    def is_done_at(self, offsets: Offsets | None) -> bool:
        """Whether a sink that has come to these offsets has this batch already."""
        return self.is_by_offsets and all(
            (offsets or {}).get(partition, -1) >= end for partition, end in self.end.items()
        )


@dataclass(frozen=True, slots=True)
class WrittenFile:
    path: str
    """With the scheme of its file system."""
    hour: str
    """The event hour of its rows in UTC, such as 2026-11-16T10, or words where they have none."""
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Written:
    """What one `write` has added to a sink."""

    rows: int
    files: tuple[WrittenFile, ...] = ()
    """Of a sink of files that knows them."""
    unsure: int = 0
    """Records that the tasks of the direct path left to Spark."""


NOTHING = Written(0)


class Sink(Protocol):
    """Somewhere rows go. All calls come from the driver's main thread, or from Spark's for a stateful query."""

    @property
    def name(self) -> str:
        """The name that the pipeline's file gives it."""

    def prepare(self, spark: SparkSession) -> None:
        """Check that it can be written, with a SinkError if not, and clean up what a crash has left."""

    def look(self, spark: SparkSession) -> Offsets | None:
        """What `done_offsets` would tell after `prepare`, without that: nothing is made, changed or taken over."""

    def done_offsets(self) -> Offsets | None:
        """The next offset by partition, as committed with the data: the truth on restart. None: nothing yet."""

    def write(self, rows: Any, batch: Batch) -> Written:
        """Write a batch exactly once and return what was added; NOTHING itself for one that is done, unread."""

    def close(self) -> None:
        """Let go of connections; also after an error, and more than once."""


@runtime_checkable
class TaskSink(Protocol):
    """A sink that knows which offsets it has, so that the parts of a large batch may be committed in any order."""

    def missing(self, batch: Batch) -> Sequence[OffsetRange]:
        """The offsets of a batch that it does not have."""

    def write_tasks(
        self,
        rows_of: Callable[[Batch], DataFrame | DirectRows],
        batch: Batch,
        max_records: int,
        is_stopped: Callable[[], bool],
        on_done: Callable[[tuple[OffsetRange, ...], Written], None],
    ) -> int:
        """Write what it does not have of a batch, in tasks of so many records, and return the rows.

        Each task is committed by itself, and reported to `on_done` with what it has added. After a stop no other
        begins. `rows_of` is called once for each task, when it begins.
        """


@runtime_checkable
class DirectSink(Protocol):
    """A sink whose `write` also takes rows that tasks load by themselves, without Spark's DataFrames."""

    def direct_obstacle(self, spark: SparkSession, columns: Collection[str]) -> str | None:
        """Why it cannot take rows with these columns, if it cannot."""


@runtime_checkable
class Audited(Protocol):
    """A sink that can compare itself with the topics it was loaded from."""

    def audit(self, spark: SparkSession) -> Sequence[Mapping[str, Any]]:
        """Rows of one form for people; each has a bool `ok`."""


@runtime_checkable
class Compacted(Protocol):
    """A sink of files, of which small ones can be merged."""

    def compact(self, spark: SparkSession) -> Sequence[Mapping[str, Any]]:
        """Merge small files; what was done, one row for each place, in one form for people."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink may need to know about its pipeline."""

    pipeline: str
    """With `sink`, the key under which a sink keeps its offsets where several share a place."""
    sink: str
    source_options: Mapping[str, str]
    """Options of the data source `barnabas` for the topics behind this sink: `kafka.*`, and `subscribe` or the like."""


class OpenSink(Protocol):
    def __call__(self, settings: Any, context: SinkContext) -> Sink:
        """A sink from its settings; nothing is touched before `prepare`."""


@dataclass(frozen=True, slots=True)
class SinkKind:
    """How a kind is read from YAML and opened.

    `settings` is a frozen dataclass: its fields are the keys that a sink of this kind takes beside `name`, `kind` and
    `from`. Fields without a default are required. Their types may be str, int, float, bool, StrEnum, tuple[str, ...],
    Mapping[str, str], each also with `| None`. A ValueError of its `__post_init__` is shown with the sink's line.
    """

    settings: type
    open: OpenSink
    may_be_direct: Callable[[Any], bool] = lambda settings: False
    """Whether tasks could write a sink of these settings themselves, as far as that is known without Spark."""


SINK_KINDS: Mapping[str, str] = {
    "lake": "barnabas.spark.lake.sink",
    "database": "barnabas.spark.database.sink",
    "topic": "barnabas.spark.pipeline.topic_sink",
    "delta": "barnabas.spark.pipeline.delta_sink",
}


def sink_kind(name: str) -> SinkKind:
    kind = import_module(SINK_KINDS[name]).KIND
    assert isinstance(kind, SinkKind)
    return kind
