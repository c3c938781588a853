"""What a task of the direct path does: it loads ranges of offsets into staged Parquet files.

It returns one small row for each file, and the raw records that it cannot decode with certainty. Paths carry the id of
the task's attempt, and the driver commits only paths that were returned, so that what another attempt leaves behind is
never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow
from pyarrow.fs import LocalFileSystem

from barnabas.spark.decoding import Decoding
from barnabas.spark.direct.decoding import RowDecoder
from barnabas.spark.direct.fitting import fit
from barnabas.spark.direct.hour_files import HourFiles
from barnabas.spark.fetching import read_range
from barnabas.spark.lake.hours import NO_VALUE
from barnabas.spark.options import ReadOptions
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.schema import arrow_schema

FILE, UNSURE, DONE = "file", "unsure", "done"
"""Kinds of results: a file with rows of the table, a raw record that Spark has to decode, and the end of a task."""
ArrowFunction = Callable[[pyarrow.RecordBatch], pyarrow.RecordBatch]
_FILE_FIELDS = (
    ("path", pyarrow.string()),
    ("range_index", pyarrow.int32()),
    ("hour", pyarrow.int64()),
    ("number", pyarrow.int32()),
    ("rows", pyarrow.int64()),
    ("size", pyarrow.int64()),
    ("latest_ms", pyarrow.int64()),
)


def result_schema(columns: Sequence[str]) -> pyarrow.Schema:
    """Of what tasks return: the kind, what is known of a file, and the raw record; each row has one of the two."""
    return pyarrow.schema([("kind", pyarrow.string()), *_FILE_FIELDS, *arrow_schema(columns)])


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads."""

    offsets: OffsetRange
    range_index: int
    """Which range of the batch it belongs to: a number that files carry."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the rows go."""

    directory: str
    """An absolute path of the file system, which no other load uses."""
    schema: pyarrow.Schema
    time_column: str
    codec: str
    max_records_per_file: int


@dataclass(frozen=True)
class Load:
    """All that tasks need to know; is pickled for them."""

    options: ReadOptions
    topic_ids: Mapping[str, bytes]
    columns: Sequence[str]
    """Of the raw records."""
    decoding: Decoding
    key: str | None
    """The column for the record's key, if there is one."""
    functions: Sequence[ArrowFunction]
    pieces: Sequence[Piece]
    target: Target | None
    """None: only the records are wanted of which the tasks are unsure."""

    def run(self, index: int, attempt: int) -> Iterator[pyarrow.RecordBatch]:
        """Load one piece; what it returns has the fields of `result_schema`."""
        piece = self.pieces[index]
        decoder = RowDecoder(self.decoding, self.key)
        files = self._files(piece, f"part-{index:05}-{attempt:08x}")
        unsure = 0
        try:
            topic_id = self.topic_ids.get(piece.offsets.topic)
            for records in read_range(self.options, self.columns, piece.offsets, topic_id):
                decoded = decoder.decode(records)
                if decoded.unsure is not None:
                    unsure += len(decoded.unsure)
                    yield self._result(UNSURE, decoded.unsure)
                if files is not None:
                    self._write(decoded.rows, files)
            written = [] if files is None else files.finish()
        finally:
            if files is not None:
                files.abandon()
        done = [{"rows": unsure, "range_index": piece.range_index}]
        found = [{"range_index": piece.range_index, **asdict(file)} for file in written]
        for kind, rows in ((FILE, found), (DONE, done)):
            if rows:
                yield self._result(kind, pyarrow.RecordBatch.from_pylist(rows, schema=pyarrow.schema(_FILE_FIELDS)))

    def _files(self, piece: Piece, name: str) -> HourFiles | None:
        target = self.target
        if target is None:
            return None

        def place(hour: int | None, number: int, suffix: str) -> str:
            hour_name = NO_VALUE if hour is None else hour
            directory = f"{target.directory}/lake_range={piece.range_index}/lake_hour={hour_name}"
            return f"{directory}/{name}-c{number:03}{suffix}"

        return HourFiles(
            LocalFileSystem(), place, target.schema, target.time_column, target.codec, target.max_records_per_file
        )

    def _write(self, rows: pyarrow.RecordBatch, files: HourFiles) -> None:
        assert self.target is not None
        for function in self.functions:
            rows = function(rows)
        if len(rows):
            files.add(fit(rows, self.target.schema))

    def _result(self, kind: str, rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """The same rows with all fields of a result."""
        return fit(rows.append_column("kind", pyarrow.repeat(kind, len(rows))), result_schema(self.columns))


def in_tasks(load: Load) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """For `mapInArrow` over the numbers of the pieces."""

    def run(numbers: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from pyspark import TaskContext

        pyarrow.set_cpu_count(1)
        context = TaskContext.get()
        assert context is not None
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from load.run(number, context.taskAttemptId())

    return run
