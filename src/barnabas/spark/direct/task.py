"""What a task of the direct path does: it reads a range of offsets, and writes the rows to a target.

It returns a small row for each thing that it has written, and the raw records that it cannot decode with certainty.
What is written carries the id of the task's attempt, and the driver commits only what was returned, so that what
another attempt leaves behind is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow
import pyarrow.compute

from barnabas.spark.direct.decoding import RowDecoder
from barnabas.spark.direct.fitting import fit
from barnabas.spark.direct.rows import Reading
from barnabas.spark.fetching import read_range
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.schema import arrow_schema

WRITTEN, UNSURE, DONE = "written", "unsure", "done"
"""Kinds of results: something with rows of the table, a raw record that Spark has to decode, and the end of a task."""
ArrowFunction = Callable[[pyarrow.RecordBatch], pyarrow.RecordBatch]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads."""

    number: int
    """In the order of the offsets."""
    offsets: OffsetRange
    range_index: int
    """Which range of the batch it belongs to."""


class Writer(Protocol):
    """Takes the rows of one attempt at a piece."""

    def add(self, rows: pyarrow.RecordBatch) -> None:
        """Take rows, which have the columns of the target's schema."""

    def written(self) -> Sequence[Mapping[str, Any]]:
        """What was written, in the target's fields; asked for when the writer is closed."""


class Target(Protocol):
    """Where the rows go; is pickled for the tasks."""

    @property
    def schema(self) -> pyarrow.Schema:
        """Of the rows that it takes."""

    @property
    def fields(self) -> pyarrow.Schema:
        """Of what a writer returns to the driver."""

    @property
    def is_ordered(self) -> bool:
        """Whether it keeps the order in which it gets the rows of a partition: then what follows an unsure record is
        left to Spark too, and ranges are not cut for idle cores."""

    def open(self, piece: Piece, attempt: int) -> AbstractContextManager[Writer]:
        """A writer. What it has taken counts if the context is left without an exception, else it is abandoned."""


def result_schema(columns: Sequence[str], target: Target | None) -> pyarrow.Schema:
    """Of what tasks return: the kind, the number of unsure records at the end, the target's fields, the raw record."""
    fields = [] if target is None else list(target.fields)
    return pyarrow.schema([("kind", pyarrow.string()), _COUNT, *fields, *arrow_schema(columns)])


_COUNT = ("unsure", pyarrow.int64())


@dataclass(frozen=True)
class Load:
    """All that tasks need to know; is pickled for them."""

    reading: Reading
    pieces: Sequence[Piece]
    target: Target | None
    """None: only the records are wanted of which the tasks are unsure."""

    def run(self, index: int, attempt: int) -> Iterator[pyarrow.RecordBatch]:
        """Load one piece; what it returns has the fields of `result_schema`."""
        piece, reading = self.pieces[index], self.reading
        decoder = RowDecoder(reading.decoding, reading.key)
        unsure = 0
        with nullcontext() if self.target is None else self.target.open(piece, attempt) as writer:
            topic_id = reading.topic_ids.get(piece.offsets.topic)
            for records in read_range(reading.options, reading.columns, piece.offsets, topic_id):
                rows, left = self._decode(decoder, records, is_behind=unsure > 0)
                if left is not None:
                    unsure += len(left)
                    yield self._result(UNSURE, left)
                if rows is not None and writer is not None:
                    self._write(rows, writer)
        if self.target is not None and writer is not None and (written := writer.written()):
            rows = [dict(each) for each in written]
            yield self._result(WRITTEN, pyarrow.RecordBatch.from_pylist(rows, schema=self.target.fields))
        yield self._result(DONE, pyarrow.RecordBatch.from_pylist([{"unsure": unsure}], schema=pyarrow.schema([_COUNT])))

    def _decode(
        self, decoder: RowDecoder, records: pyarrow.RecordBatch, *, is_behind: bool
    ) -> tuple[pyarrow.RecordBatch | None, pyarrow.RecordBatch | None]:
        """The rows, and the raw records for Spark; `is_behind` says that some of this piece were left to it before."""
        is_ordered = self.target is not None and self.target.is_ordered
        if is_behind and is_ordered:
            return None, records
        decoded = decoder.decode(records)
        if decoded.unsure is None or not is_ordered:
            return decoded.rows, decoded.unsure
        first = pyarrow.compute.index(records.column("offset"), decoded.unsure.column("offset")[0]).as_py()
        return decoder.decode(records.slice(0, first)).rows, records.slice(first)

    def _write(self, rows: pyarrow.RecordBatch, writer: Writer) -> None:
        assert self.target is not None
        for function in self.reading.functions:
            rows = function(rows)
        if len(rows):
            writer.add(fit(rows, self.target.schema))

    def _result(self, kind: str, rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """The same rows with all fields of a result."""
        schema = result_schema(self.reading.columns, self.target)
        return fit(rows.append_column("kind", pyarrow.repeat(kind, len(rows))), schema)


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
