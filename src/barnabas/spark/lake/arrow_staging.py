"""A batch as Parquet files under `_staging`, written with Arrow by tasks that get their rows from Spark.

The counterpart of `staging`, where Spark writes the files: the rows pass through Python, and need neither Java's writer
nor a second look to count them. Files are the same as on the direct path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from barnabas.spark.direct.fitting import fit
from barnabas.spark.lake.commit import StagedFile
from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.names import PartName
from barnabas.spark.lake.staging import NO_RANGE, RANGE, Staging, with_ranges
from barnabas.spark.lake.task_files import TaskFiles
from barnabas.spark.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import DataType, StructType

    from barnabas.spark.direct.hour_files import HourFilesTarget

_SIMPLE = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp"}
    | {"timestamp_ntz", "decimal"}
)
"""Types that Arrow writes as Spark reads them, by the names that Spark gives them."""
_CHECKED_AT_ONCE = 8
"""Files. Over a network most of the time of a check is waiting."""
_LAKE_ERROR = re.compile(rf"^{re.escape(f'{LakeError.__module__}.{LakeError.__name__}')}: (.+)$", re.MULTILINE)
"""The last line of a Python stack."""


def arrow_holds(kind: DataType) -> bool:
    """Whether a column of this type can be written with Arrow."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return all(arrow_holds(each.dataType) for each in kind)
    if isinstance(kind, ArrayType):
        return arrow_holds(kind.elementType)
    if isinstance(kind, MapType):
        return arrow_holds(kind.keyType) and arrow_holds(kind.valueType)
    return kind.typeName() in _SIMPLE


def stage_with_arrow(
    files: TaskFiles, frame: DataFrame, directory: str, ranges: Sequence[OffsetRange], how: Staging
) -> list[StagedFile]:
    """Write the rows of these ranges under `directory`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    target = hour_files_target(files, directory, frame.schema, how)
    placed, order = with_ranges(frame, ranges)
    rows = placed.sortWithinPartitions(*order) if order else placed
    task = WriteTask(target, has_ranges=RANGE in placed.columns)
    with task_errors():
        written = rows.mapInArrow(task, from_arrow_schema(target.fields)).collect()
    return checked_files(written, files)


def hour_files_target(files: TaskFiles, directory: str, schema: StructType, how: Staging) -> HourFilesTarget:
    """Where tasks write rows with these columns."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from barnabas.spark.direct.hour_files import HourFilesTarget, codec_of

    return HourFilesTarget(
        files=files,
        directory=f"{files.root}/{directory}",
        schema=to_arrow_schema(schema, timezone="UTC"),
        time_column=how.time_column,
        codec=codec_of(how.options),
        max_records_per_file=how.max_records_per_file,
    )


def checked_files(written: Iterable[Row], files: TaskFiles) -> list[StagedFile]:
    """Files that are as their tasks have left them: one that cannot be read is never committed."""

    def checked(file: Row) -> StagedFile:
        import pyarrow.parquet

        with files.open(file.path) as content:
            size, rows = content.size(), pyarrow.parquet.read_metadata(content).num_rows
        if (size, rows) != (file.size, file.rows):
            raise LakeError(f"{file.path} has {rows} rows in {size} bytes; its task wrote {file.rows} in {file.size}")
        part = PartName.parse(os.path.basename(file.path))
        relative = file.path.removeprefix(files.root).lstrip("/")
        return StagedFile(relative, part, file.range_index, file.hour, rows, size, file.latest_ms)

    with ThreadPoolExecutor(_CHECKED_AT_ONCE, "lake-check") as threads:
        return list(threads.map(checked, written))


@contextmanager
def task_errors() -> Iterator[None]:
    """What a file system could not do for a task, as the error that the task has raised; others go on as they are."""
    from pyspark.errors import PythonException

    try:
        yield
    except PythonException as error:
        said = _LAKE_ERROR.findall(str(error))
        if not said:
            raise
        raise LakeError(said[-1]) from error


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What runs in each task: writes the task's Arrow batches, and returns one row for each file."""

    target: HourFilesTarget
    has_ranges: bool
    """Whether the rows have the column RANGE, by which they are in order."""

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        pyarrow.set_cpu_count(1)
        context = TaskContext.get()
        assert context is not None
        for range_index, parts in groupby(self._by_range(batches), itemgetter(0)):
            with self.target.writer(context.partitionId(), context.taskAttemptId(), range_index) as writer:
                for _, rows in parts:
                    writer.add(fit(rows, self.target.schema))
            written = [dict(each) for each in writer.written()]
            yield pyarrow.RecordBatch.from_pylist(written, schema=self.target.fields)

    def _by_range(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[tuple[int | None, pyarrow.RecordBatch]]:
        import pyarrow.compute

        for batch in batches:
            if not self.has_ranges:
                yield None, batch
                continue
            runs: Any = pyarrow.compute.run_end_encode(batch.column(RANGE))
            begin = 0
            for end, index in zip(runs.run_ends.to_pylist(), runs.values.to_pylist()):
                yield None if index == NO_RANGE else index, batch.slice(begin, end - begin)
                begin = end
