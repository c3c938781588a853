"""The sink `lake`: rows as files by hour, on any Hadoop file system, each row exactly once.

kind: lake
path: hdfs://namenode/lake/clicks
format: parquet            # or orc, json, csv
time: clicked_at           # event time; without it, the record's own time, `_timestamp`
lateness: 10m              # an hour is complete when everything younger than its end and this is there
late: accept               # or aside, drop: rows whose hour is complete
evolution: add             # or strict, widen
"""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.client.options import WrongOption
from barnabas.core.errors import KafkaError
from barnabas.spark.direct.rows import DirectRows
from barnabas.spark.lake.arrow_staging import arrow_holds, stage_with_arrow
from barnabas.spark.lake.audit import audit
from barnabas.spark.lake.commit import LatePolicy, Observation
from barnabas.spark.lake.compact import compact
from barnabas.spark.lake.direct_staging import stage_direct
from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.evolution import Evolution, Schema, evolved
from barnabas.spark.lake.filesystem import FileSystem, open_filesystem
from barnabas.spark.lake.formats import FileFormat, check_format
from barnabas.spark.lake.hours import hour_text
from barnabas.spark.lake.intervals import hulls
from barnabas.spark.lake.lake import Lake, LakePolicy
from barnabas.spark.lake.manifest import State, Table
from barnabas.spark.lake.manifest_log import ManifestLog
from barnabas.spark.lake.names import batch_name, ranges_name
from barnabas.spark.lake.staging import Staging, check_columns, stage
from barnabas.spark.lake.task_files import TaskFiles, WrittenBySpark, task_files
from barnabas.spark.lake.tasks import OnDone, Task, plan_tasks, run_tasks
from barnabas.spark.lake.topics import observe
from barnabas.spark.option_values import milliseconds
from barnabas.spark.pipeline.sinks import (
    NOTHING,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TOPIC,
    Batch,
    Offsets,
    SinkContext,
    SinkKind,
    Written,
    WrittenFile,
)
from barnabas.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """What a pipeline's file says about the sink."""

    path: str
    format: FileFormat = FileFormat.PARQUET
    time: str = TIMESTAMP
    """The column that tells the hour of a row."""
    lateness: str = "0s"
    late: LatePolicy = LatePolicy.ACCEPT
    evolution: Evolution = Evolution.ADD
    max_records_per_file: int = 0
    """0: as many as a batch has of an hour."""
    target_bytes: int = 128 << 20
    """How large compaction makes a file."""
    date_name: str = "date"
    hour_name: str = "hour"
    options: Mapping[str, str] = field(default_factory=dict)
    """For Spark's writer and reader of the format, such as compression."""

    def __post_init__(self) -> None:
        try:
            milliseconds("lateness", self.lateness)
        except WrongOption as problem:
            raise ValueError(str(problem)) from None
        if self.max_records_per_file < 0 or self.target_bytes < 1:
            raise ValueError("max_records_per_file must be 0 or more, and target_bytes at least 1")

    @property
    def table(self) -> Table:
        return Table(self.format, self.time, self.date_name, self.hour_name)

    @property
    def policy(self) -> LakePolicy:
        return LakePolicy(self.table, self.late, milliseconds("lateness", self.lateness), self.evolution)

    @property
    def staging(self) -> Staging:
        return Staging(self.format, self.time, self.options, self.max_records_per_file)


class LakeSink:
    """See the module. `write` may be called from several threads, for batches that have no offsets in common."""

    def __init__(
        self,
        name: str,
        settings: LakeSettings,
        source_options: Mapping[str, str],
        observe: Callable[[Mapping[str, str]], Observation] = observe,
    ) -> None:
        self.name = name
        self.settings = settings
        self.source_options = source_options
        self.observe = functools.partial(observe, source_options)
        self._open: _OpenLake | None = None

    def prepare(self, spark: SparkSession) -> None:
        fs = open_filesystem(spark, self.settings.path)
        lake = Lake(fs, self.settings.policy)
        lake.open()
        self._open = _OpenLake(spark, fs, lake, self._files_for_tasks(fs))
        seen = self._seen()
        if seen is not None:
            lake.complete_hours(seen)

    def look(self, spark: SparkSession) -> Offsets | None:
        state, _ = ManifestLog(open_filesystem(spark, self.settings.path)).read()
        return state.next_offsets() or None

    def done_offsets(self) -> Offsets | None:
        return self.lake.state().next_offsets() or None

    @property
    def lake(self) -> Lake:
        return self._opened().lake

    def write(self, rows: DataFrame | DirectRows, batch: Batch, begins: Offsets | None = None) -> Written:
        """`begins` tells where a load begins whose batches come in any order; other loads begin with their first."""
        from pyspark.sql.types import StructType

        opened = self._opened()
        state = opened.lake.state()
        if batch.is_by_offsets:
            missing = state.missing(batch.ranges)
            empty = [one for one in batch.ranges if not one.size and (one.topic, one.partition) not in state.done]
            # Of a batch that the lake has in part, files are called by what is missing: no other has that name.
            ranges, is_done = (*hulls(missing), *empty), not missing and not empty
        else:
            missing, ranges, is_done = (), (), state.has_query_batch(batch.query_id, batch.number)
        if is_done:
            return NOTHING
        schema = self._evolved(rows.schema, state)
        columns = StructType.fromJson(dict(schema))
        staging = opened.lake.new_staging(ranges_name(ranges) if ranges else batch_name(batch.query_id, batch.number))
        how = self.settings.staging
        files, unsure = opened.files, 0
        if isinstance(rows, DirectRows):
            assert not isinstance(files, WrittenBySpark), files.reason
            staged, unsure = stage_direct(opened.spark, files, rows, staging, ranges, missing, how, columns)
        else:
            frame = _only(rows, batch, missing).to(columns)
            if isinstance(files, WrittenBySpark) or not arrow_holds(columns):
                staged = stage(opened.spark, opened.fs, frame, staging, ranges, how)
            else:
                staged = stage_with_arrow(files, frame, staging, ranges, how)
        added = opened.lake.load(
            staged,
            staging=staging,
            ranges=ranges,
            begins=begins,
            query=None if ranges else (batch.query_id, batch.number),
            schema=schema,
            seen=self._seen(),
        )
        written = [WrittenFile(opened.fs.full(one.path), hour_text(one.hour), one.rows, one.size) for one in added]
        return Written(sum(file.rows for file in written), tuple(written), unsure)

    def missing(self, batch: Batch) -> Sequence[OffsetRange]:
        return self.lake.state().missing(batch.ranges)

    def write_tasks(
        self,
        rows_of: Callable[[Batch], DataFrame | DirectRows],
        batch: Batch,
        max_records: int,
        is_stopped: Callable[[], bool] = lambda: False,
        on_done: OnDone = lambda task, rows: None,
    ) -> int:
        """A batch in tasks that are committed one by one: those of its offsets that the lake does not have."""
        opened = self._opened()
        tasks = plan_tasks(self.missing(batch), max_records)

        def part(task: Task) -> Batch:
            bounds = {(one.topic, one.partition): (one.start, one.end) for one in task}
            starts, ends = ({where: pair[index] for where, pair in bounds.items()} for index in (0, 1))
            return Batch(batch.number, batch.query_id, starts, ends)

        return run_tasks(
            tasks,
            lambda task: rows_of(part(task)),
            lambda rows, task: self.write(rows, part(task), batch.start),
            parallel=opened.spark.sparkContext.defaultParallelism,
            is_stopped=is_stopped,
            on_done=on_done,
        )

    def direct_obstacle(self, spark: SparkSession, columns: Collection[str]) -> str | None:
        files = (
            self._files_for_tasks(open_filesystem(spark, self.settings.path))
            if self._open is None
            else self._open.files
        )
        return files.reason if isinstance(files, WrittenBySpark) else None

    def audit(self, spark: SparkSession) -> Sequence[Mapping[str, Any]]:
        return audit(spark, self.settings.path, self.settings.options, self.source_options)

    def compact(self, spark: SparkSession) -> Sequence[Mapping[str, Any]]:
        self.prepare(spark)
        opened = self._opened()
        return compact(spark, opened.fs, opened.lake, self.settings.staging, self.settings.target_bytes)

    def close(self) -> None:
        self._open = None

    def _files_for_tasks(self, fs: FileSystem) -> TaskFiles | WrittenBySpark:
        from barnabas.spark.direct.hour_files import codec_of

        settings = self.settings
        if settings.format is not FileFormat.PARQUET:
            return WrittenBySpark(f"{settings.format.value} files are written by Spark")
        try:
            codec_of(settings.options)
        except KeyError as unknown:
            return WrittenBySpark(f"option {unknown} is for Spark's writer")
        return task_files(fs)

    def _evolved(self, rows: StructType, state: State) -> Schema:
        """The columns of the lake with these rows in it, which may be more than before."""
        settings = self.settings
        check_columns(rows, settings.time, settings.date_name, settings.hour_name)
        schema = evolved(state.schema, rows.jsonValue(), settings.evolution)
        check_format(settings.format, schema)
        return schema

    def _seen(self) -> Observation | None:
        """Hours can wait: that a broker is away for a moment must not stop a load that is done."""
        try:
            return self.observe()
        except KafkaError as problem:
            log.warning("sink %r cannot tell which hours are complete: %s", self.name, problem)
            return None

    def _opened(self) -> _OpenLake:
        assert self._open is not None, "prepare comes first"
        return self._open


@dataclass(frozen=True, slots=True)
class _OpenLake:
    spark: SparkSession
    fs: FileSystem
    lake: Lake
    files: TaskFiles | WrittenBySpark


def _only(frame: DataFrame, batch: Batch, missing: Sequence[OffsetRange]) -> DataFrame:
    """The rows that are not in the lake yet, where an interrupted load had some of them out of order."""
    from pyspark.sql import functions

    wanted = [one for one in batch.ranges if one.size]
    if wanted == list(missing):
        return frame
    if not {TOPIC, PARTITION, OFFSET} <= set(frame.columns):
        raise LakeError(
            f"the lake has a part of {wanted[0]}, and the rows do not tell theirs: "
            f"keep {TOPIC}, {PARTITION} and {OFFSET} in the transforms"
        )
    column = functions.col
    conditions = [
        (column(TOPIC) == one.topic)
        & (column(PARTITION) == one.partition)
        & (column(OFFSET) >= one.start)
        & (column(OFFSET) < one.end)
        for one in missing
    ]
    return frame.filter(functools.reduce(operator.or_, conditions))


def _open(settings: LakeSettings, context: SinkContext) -> LakeSink:
    return LakeSink(context.sink, settings, context.source_options)


KIND = SinkKind(LakeSettings, _open, may_be_direct=lambda settings: settings.format is FileFormat.PARQUET)
