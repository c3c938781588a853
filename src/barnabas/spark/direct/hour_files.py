"""Writes the rows of one task as Parquet files, one or more for each hour.

Rows gather in memory by hour, and go to a file in row groups. Three bounds hold whatever the rows are like: an hour
that has ROW_GROUP_BYTES is written; a task that holds MOST_BYTES writes its largest hours; and of the files that are
open, the one that was used longest ago is finished before there are more than MOST_OPEN_FILES. As many again may be
waiting for the file system to close them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from barnabas.spark.direct.task import Piece
from barnabas.spark.lake.hours import FIRST_HOUR, LAST_HOUR, NO_VALUE
from barnabas.spark.lake.task_files import TaskFiles
from barnabas.spark.pipeline.sinks import OFFSET

SPLIT_BYTES = 16 << 20
"""Rows are divided into hours in pieces of this size, for each piece costs something by itself."""
ROW_GROUP_BYTES = 64 << 20
MOST_BYTES = 192 << 20
MOST_OPEN_FILES = 32
_SAMPLE_ROWS = 4096
_SAMPLE_REPEATS = 0.5
"""A column of which fewer than half of the values differ repeats often."""
_HOUR_US = 3_600_000_000
_CODECS = {"none": None, "uncompressed": None, "snappy": "snappy", "gzip": "gzip", "zstd": "zstd", "brotli": "brotli"}
_SUFFIXES = {None: ".parquet", "snappy": ".snappy.parquet", "gzip": ".gz.parquet", "zstd": ".zstd.parquet"}
_SUFFIXES["brotli"] = ".br.parquet"
DEFAULT_CODEC = "snappy"
"""Spark's."""


def codec_of(options: Mapping[str, str]) -> str:
    """The codec that a writer's options name; a KeyError for options that only Spark's writer knows."""
    names = {name.lower(): value for name, value in options.items()}
    chosen = names.pop("compression", DEFAULT_CODEC).lower()
    if names or chosen not in _CODECS:
        raise KeyError(next(iter(names), chosen))
    return chosen


@dataclass(slots=True)
class WrittenFile:
    path: str
    hour: int | None
    number: int
    rows: int = 0
    size: int = 0
    latest_ms: int | None = None


@dataclass(slots=True)
class _OpenFile:
    file: WrittenFile
    out: pyarrow.NativeFile
    writer: pyarrow.parquet.ParquetWriter


@dataclass(slots=True)
class _Hour:
    """Rows of an hour that are not in a file yet."""

    tables: list[pyarrow.Table] = field(default_factory=list)
    size: int = 0


class HourFiles:
    def __init__(
        self,
        files: TaskFiles,
        place: Callable[[int | None, int, str], str],
        schema: pyarrow.Schema,
        time_column: str,
        codec: str = DEFAULT_CODEC,
        max_rows_per_file: int = 0,
    ) -> None:
        """`place` gives the path of a file from its hour, its number in the task, and its suffix."""
        self._task_files = files
        self._place = place
        self._schema = schema
        self._time_column = time_column
        self._codec = _CODECS[codec]
        self._max_rows = max_rows_per_file
        self._pending: list[pyarrow.RecordBatch] = []
        self._pending_bytes = 0
        self._hours: dict[int | None, _Hour] = {}
        self._held_bytes = 0
        self._open: OrderedDict[int | None, _OpenFile] = OrderedDict()
        self._closing: deque[Future[None]] = deque()
        self._threads = ThreadPoolExecutor(MOST_OPEN_FILES, "hour-files")
        self._done: list[WrittenFile] = []
        self._files = 0

    def add(self, rows: pyarrow.RecordBatch) -> None:
        """Take rows, which have the columns of the schema."""
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= SPLIT_BYTES:
            self._split()

    def finish(self) -> list[WrittenFile]:
        """Write what is left, and close all files."""
        self._split()
        for hour in list(self._hours):
            self._write(hour)
        for hour in list(self._open):
            self._close(hour)
        while self._closing:
            self._closing.popleft().result()
        return self._done

    def abandon(self) -> None:
        """Close what a task that has failed leaves open; nobody is going to read it."""
        for hour in list(self._open):
            with suppress(Exception):  # what made the task fail is what its caller has to know
                self._close(hour)
        self._threads.shutdown()

    def _split(self) -> None:
        if not self._pending:
            return
        table = pyarrow.Table.from_batches(self._pending, schema=self._schema)
        self._pending, self._pending_bytes = [], 0
        for hour, rows in by_hour(table, self._time_column):
            held = self._hours.setdefault(hour, _Hour())
            held.tables.append(rows)
            held.size += rows.nbytes
            self._held_bytes += rows.nbytes
            if held.size >= ROW_GROUP_BYTES:
                self._write(hour)
        if self._held_bytes > MOST_BYTES:
            for hour in sorted(self._hours, key=lambda hour: -self._hours[hour].size):
                if self._held_bytes <= MOST_BYTES // 2:
                    break
                self._write(hour)

    def _write(self, hour: int | None) -> None:
        """What is held of an hour, as one row group."""
        held = self._hours.pop(hour)
        self._held_bytes -= held.size
        table = pyarrow.concat_tables(held.tables)
        while self._max_rows and len(table):
            room = self._max_rows - self._file(hour, table).file.rows
            self._append(hour, table[:room])
            table = table[room:]
            if self._file(hour, table).file.rows >= self._max_rows:
                self._close(hour)
        if len(table):
            self._append(hour, table)

    def _append(self, hour: int | None, table: pyarrow.Table) -> None:
        opened = self._file(hour, table)
        opened.writer.write_table(table, row_group_size=len(table))
        file = opened.file
        file.rows += len(table)
        latest = pyarrow.compute.max(table.column(self._time_column).cast(pyarrow.int64())).as_py()
        if latest is not None:
            file.latest_ms = max(latest // 1000, latest // 1000 if file.latest_ms is None else file.latest_ms)

    def _file(self, hour: int | None, first: pyarrow.Table) -> _OpenFile:
        if hour in self._open:
            self._open.move_to_end(hour)
            return self._open[hour]
        if len(self._open) >= MOST_OPEN_FILES:
            self._close(next(iter(self._open)))
        path = self._place(hour, self._files, _SUFFIXES[self._codec])
        dictionaries = repetitive(first)
        rising = {OFFSET} & set(self._schema.names) - set(dictionaries)
        out = self._task_files.create(path)
        writer = pyarrow.parquet.ParquetWriter(
            out,
            self._schema,
            compression=self._codec or "none",
            use_dictionary=dictionaries,
            column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
            store_schema=False,
            store_decimal_as_integer=True,
        )
        opened = self._open[hour] = _OpenFile(WrittenFile(path, hour, self._files), out, writer)
        self._files += 1
        return opened

    def _close(self, hour: int | None) -> None:
        """Finish a file. HDFS may take half a second to close one, so they are closed side by side."""
        opened = self._open.pop(hour)
        if len(self._closing) >= MOST_OPEN_FILES:
            self._closing.popleft().result()
        try:
            opened.writer.close()
            opened.file.size = opened.out.tell()
        finally:
            self._closing.append(self._threads.submit(opened.out.close))
        self._done.append(opened.file)


@dataclass(frozen=True, slots=True)
class HourFilesTarget:
    """Files of hours under a directory, for tasks of either path."""

    files: TaskFiles
    directory: str
    """An absolute path, which no other load uses."""
    schema: pyarrow.Schema
    time_column: str
    codec: str
    max_records_per_file: int
    fields: ClassVar[pyarrow.Schema] = pyarrow.schema(
        [
            ("path", pyarrow.string()),
            ("range_index", pyarrow.int32()),
            ("hour", pyarrow.int64()),
            ("number", pyarrow.int32()),
            ("rows", pyarrow.int64()),
            ("size", pyarrow.int64()),
            ("latest_ms", pyarrow.int64()),
        ]
    )
    is_ordered: ClassVar[bool] = False

    def open(self, piece: Piece, attempt: int) -> AbstractContextManager[HourFilesWriter]:
        return self.writer(piece.number, attempt, piece.range_index)

    @contextmanager
    def writer(self, task: int, attempt: int, range_index: int | None) -> Iterator[HourFilesWriter]:
        """For the rows of one range of offsets, or of ranges that are not known."""

        def place(hour: int | None, number: int, suffix: str) -> str:
            of_range, of_hour = (NO_VALUE if each is None else each for each in (range_index, hour))
            name = f"part-{task:05}-{attempt:08x}-c{number:03}{suffix}"
            return f"{self.directory}/lake_range={of_range}/lake_hour={of_hour}/{name}"

        files = HourFiles(self.files, place, self.schema, self.time_column, self.codec, self.max_records_per_file)
        try:
            writer = HourFilesWriter(files, range_index)
            yield writer
            writer.done = files.finish()
        finally:
            files.abandon()


@dataclass(slots=True)
class HourFilesWriter:
    files: HourFiles
    range_index: int | None
    done: list[WrittenFile] = field(default_factory=list)

    def add(self, rows: pyarrow.RecordBatch) -> None:
        self.files.add(rows)

    def written(self) -> list[Mapping[str, Any]]:
        return [{"range_index": self.range_index, **asdict(file)} for file in self.done]


def repetitive(table: pyarrow.Table) -> list[str]:
    """The columns that are worth a dictionary: texts, what is nested, and numbers that often repeat.

    Arrow would write a dictionary of numbers that never repeat too, and make a file a fifth larger by it.
    """
    sample = table[:_SAMPLE_ROWS]
    return [
        name
        for name, column in zip(sample.column_names, sample.columns)
        if not pyarrow.types.is_primitive(column.type)
        or pyarrow.compute.count_distinct(column).as_py() < _SAMPLE_REPEATS * len(sample)
    ]


def by_hour(table: pyarrow.Table, time_column: str) -> Iterator[tuple[int | None, pyarrow.Table]]:
    """The rows of each hour, in their order; None for rows without a time, or with one that no calendar has."""
    hours = hours_of(table.column(time_column))
    bounds = pyarrow.compute.min_max(hours).as_py()
    if bounds["min"] == bounds["max"] and not (hours.null_count and bounds["min"] is not None):
        yield bounds["min"], table
        return
    order = pyarrow.compute.sort_indices(hours)
    table, hours = table.take(order), hours.take(order)
    begin = 0
    for run in pyarrow.compute.value_counts(hours):
        end = begin + run["counts"].as_py()
        yield run["values"].as_py(), table[begin:end]
        begin = end


def hours_of(times: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Hours since 1970, rounded down, of times in microseconds; null for those out of range."""
    micros = times.cast(pyarrow.int64())
    hours = pyarrow.compute.divide(micros, _HOUR_US)
    lowest = pyarrow.compute.min(micros).as_py()
    if lowest is not None and lowest < 0:  # the division rounds towards 0
        is_less = pyarrow.compute.less(micros, pyarrow.compute.multiply(hours, _HOUR_US))
        hours = pyarrow.compute.subtract(hours, is_less.cast(pyarrow.int64()))
    highest = pyarrow.compute.max(hours).as_py()
    if highest is not None and (highest > LAST_HOUR or pyarrow.compute.min(hours).as_py() < FIRST_HOUR):
        within = pyarrow.compute.and_(
            pyarrow.compute.greater_equal(hours, FIRST_HOUR), pyarrow.compute.less_equal(hours, LAST_HOUR)
        )
        hours = pyarrow.compute.if_else(within, hours, None)
    return hours
