"""What a task of the direct path does: it loads ranges of offsets into staged Parquet files.

It returns one small row for each file. Paths carry the id of the task's attempt, and the driver commits only paths that
were returned, so that what another attempt leaves behind is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow
import pyarrow.parquet
from pyarrow.fs import FileSystem, LocalFileSystem

from barnabas.spark.direct.decoding import Reading, RowDecoder
from barnabas.spark.direct.fitting import fit
from barnabas.spark.direct.hour_files import HourFiles
from barnabas.spark.fetching import read_range
from barnabas.spark.lake.hours import NO_VALUE
from barnabas.spark.options import ReadOptions
from barnabas.spark.ranges import OffsetRange

RESULT = "path string, kind string, range_index int, hour long, number int, rows long, size long, latest_ms long"
ROWS, UNSURE = "rows", "unsure"
"""Kinds of files: rows of the table, and raw records that Spark has to decode."""
ArrowFunction = Callable[[pyarrow.RecordBatch], pyarrow.RecordBatch]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads."""

    offsets: OffsetRange
    range_index: int
    """Which range of the batch it belongs to: a number that files carry."""


@dataclass(frozen=True)
class Load:
    """All that tasks need to know; is pickled for them."""

    options: ReadOptions
    topic_ids: Mapping[str, bytes]
    columns: Sequence[str]
    """Of the raw records."""
    reading: Reading
    functions: Sequence[ArrowFunction]
    schema: pyarrow.Schema
    """Of the files."""
    time_column: str
    codec: str
    max_records_per_file: int
    directory: str
    """Where files are staged, as an absolute path of the file system."""
    pieces: Sequence[Piece]

    def run(self, index: int, attempt: int) -> Iterator[dict[str, Any]]:
        """Load one piece; a row for each file, with the fields of RESULT."""
        piece = self.pieces[index]
        fs = LocalFileSystem()
        attempt_name = f"{attempt:08x}"

        def place(hour: int | None, number: int, suffix: str) -> str:
            hour_name = NO_VALUE if hour is None else hour
            directory = f"{self.directory}/lake_range={piece.range_index}/lake_hour={hour_name}"
            return f"{directory}/part-{index:05}-{attempt_name}-c{number:03}{suffix}"

        files = HourFiles(fs, place, self.schema, self.time_column, self.codec, self.max_records_per_file)
        unsure = _UnsureFile(fs, f"{self.directory}/unsure/part-{index:05}-{attempt_name}.parquet")
        decoder = RowDecoder(self.reading)
        try:
            topic_id = self.topic_ids.get(piece.offsets.topic)
            for records in read_range(self.options, self.columns, piece.offsets, topic_id):
                decoded = decoder.decode(records)
                if decoded.unsure is not None:
                    unsure.add(decoded.unsure)
                rows = decoded.rows
                for function in self.functions:
                    rows = function(rows)
                if len(rows):
                    files.add(fit(rows, self.schema))
            written = files.finish()
        except BaseException:
            files.abandon()
            raise
        finally:
            unsure.close()
        for file in written:
            yield {
                "path": file.path, "kind": ROWS, "range_index": piece.range_index, "hour": file.hour,
                "number": file.number, "rows": file.rows, "size": file.size, "latest_ms": file.latest_ms,
            }  # fmt: skip
        if unsure.rows:
            yield {
                "path": unsure.path, "kind": UNSURE, "range_index": piece.range_index, "hour": None,
                "number": 0, "rows": unsure.rows, "size": 0, "latest_ms": None,
            }  # fmt: skip


class _UnsureFile:
    """Raw records that the task cannot decode; there is no file if there are none."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path
        self.rows = 0
        self._fs = fs
        self._writer: pyarrow.parquet.ParquetWriter | None = None

    def add(self, records: pyarrow.RecordBatch) -> None:
        if self._writer is None:
            self._fs.create_dir(self.path.rpartition("/")[0], recursive=True)
            self._writer = pyarrow.parquet.ParquetWriter(self.path, records.schema, filesystem=self._fs)
        self._writer.write_batch(records)
        self.rows += len(records)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def in_tasks(load: Load) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """For `mapInArrow` over the numbers of the pieces."""

    def run(numbers: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from pyspark import TaskContext

        pyarrow.set_cpu_count(1)
        context = TaskContext.get()
        assert context is not None
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                rows = list(load.run(number, context.taskAttemptId()))
                if rows:
                    yield pyarrow.RecordBatch.from_pylist(rows, schema=_RESULT)

    return run


_RESULT = pyarrow.schema([
    ("path", pyarrow.string()), ("kind", pyarrow.string()), ("range_index", pyarrow.int32()),
    ("hour", pyarrow.int64()), ("number", pyarrow.int32()), ("rows", pyarrow.int64()), ("size", pyarrow.int64()),
    ("latest_ms", pyarrow.int64()),
])  # fmt: skip
