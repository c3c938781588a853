"""The sink `delta`: a table of Delta Lake, each row exactly once. Its jars are the user's to give:

    spark:
      spark.jars: delta-spark_2.13-4.2.0.jar,delta-storage-4.2.0.jar
      spark.sql.extensions: io.delta.sql.DeltaSparkSessionExtension
      spark.sql.catalog.spark_catalog: org.apache.spark.sql.delta.catalog.DeltaCatalog
    sinks:
      - kind: delta
        path: s3a://lake/orders
        partition_by: [day]

A commit to Delta's log is atomic. It holds the rows of a batch, the place behind them (as `userMetadata`), and a pair
of application and version that Delta takes once (`txnAppId`, `txnVersion`). The version is not the number of the batch,
which begins anew when a pipeline's state is lost: it is the sum of all offsets of the place, which grows with every
batch and is the same when a batch is done again. The pair stays in the table's state for good, the place only as long
as the table's history; if the place is gone and the pair is not, the sink refuses to guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.place import Place
from barnabas.spark.pipeline.sinks import NOTHING, ORIGIN_COLUMNS, Batch, Offsets, SinkContext, SinkKind, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECENT = 10
"""Commits among which ours is looked for right after it; others may write to the table too."""

_NEEDS = (
    "needs Delta's jars (delta-spark_2.13 and delta-storage, 4.2.0) and its extension: set spark.jars,"
    " spark.sql.extensions and spark.sql.catalog.spark_catalog under `spark`"
)


@dataclass(frozen=True, slots=True)
class DeltaSettings:
    """What a pipeline's file says about the sink."""

    path: str
    partition_by: tuple[str, ...] = ()
    merge_schema: bool = False
    """Whether columns that the table does not have are added to it."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of Delta's writer."""


class DeltaSink:
    """See the module."""

    def __init__(self, settings: DeltaSettings, context: SinkContext) -> None:
        self.name = context.sink
        self._settings = settings
        self._key = f"{context.pipeline}/{context.sink}"
        self._mark = f"barnabas {self._key} "
        self._spark: SparkSession | None = None
        self._place: Place | None = None
        """As this driver has last seen it; nobody else moves it, or Delta refuses the commit."""

    def prepare(self, spark: SparkSession) -> None:
        from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]
        from pyspark.errors import AnalysisException

        if not isinstance(_delta_log(spark), JavaClass):
            raise SinkError(f"sink '{self.name}' {_NEEDS}")
        self._spark = spark
        try:
            self._place = self._find_place()
        except AnalysisException as error:
            raise SinkError(f"Delta table {self._settings.path}: {_first_line(error)}; the sink {_NEEDS}") from error

    def look(self, spark: SparkSession) -> Offsets | None:
        """To prepare is no more than that: a commit of Delta's leaves nothing to clean up."""
        self.prepare(spark)
        return self.done_offsets()

    def done_offsets(self) -> Offsets | None:
        return self._opened().offsets or None

    def write(self, frame: DataFrame, batch: Batch) -> Written:
        from pyspark.errors import AnalysisException

        place = self._opened()
        if place.has(batch):
            return NOTHING
        after = place.after(batch)
        application, version = self._transaction(after, batch.query_id if not batch.is_by_offsets else None)
        note = f"{self._mark}{after}"
        writer = frame.drop(*ORIGIN_COLUMNS).write.format("delta").mode("append").options(**self._settings.options)
        writer = writer.options(
            txnAppId=application,
            txnVersion=version,
            userMetadata=note,
            mergeSchema=self._settings.merge_schema,
        )
        if self._settings.partition_by:
            writer = writer.partitionBy(*self._settings.partition_by)
        try:
            writer.save(self._settings.path)
        except AnalysisException as error:
            hint = "; `merge_schema: true` adds columns" if error.getCondition() == "DELTA_METADATA_MISMATCH" else ""
            raise SinkError(f"Delta table {self._settings.path}: {_first_line(error)}{hint}") from error
        self._place = after
        return Written(next((rows for found, rows in self._history(_RECENT) if found == note), 0))

    def close(self) -> None:
        self._spark = self._place = None

    def _opened(self) -> Place:
        assert self._place is not None, "prepare comes first"
        return self._place

    def _transaction(self, place: Place, query_id: str | None) -> tuple[str, int]:
        """What Delta takes once: by the place, or by the batch of a stateful query."""
        if query_id is None:
            return self._key, sum(place.offsets.values())
        return f"{self._key}/{query_id}", place.batches[query_id]

    def _find_place(self) -> Place:
        """Of the last commit in the table's history that is ours."""
        assert self._spark is not None
        applications = _applications(self._spark, self._settings.path)
        if not any(name == self._key or name.startswith(f"{self._key}/") for name in applications):
            return Place()
        for note, _ in self._history():
            if note.startswith(self._mark):
                return Place.parse(note.removeprefix(self._mark))
        raise SinkError(
            f"Delta table {self._settings.path}: its history no longer tells how far sink '{self.name}' has come"
            " (`delta.logRetentionDuration`); nothing is written, or rows might come twice"
        )

    def _history(self, most: int | None = None) -> list[tuple[str, int]]:
        """What the table's commits have noted, and their rows, the last first."""
        assert self._spark is not None
        path = self._settings.path.replace("`", "``")
        limit = f" LIMIT {most}" if most else ""
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{path}`{limit}")
        found = history.select("version", "userMetadata", "operationMetrics.numOutputRows").collect()
        latest_first = sorted(found, key=lambda row: -row["version"])
        return [(row["userMetadata"] or "", int(row["numOutputRows"] or 0)) for row in latest_first]


def _applications(spark: SparkSession, path: str) -> dict[str, int]:
    """The versions that a table, if it is there, has of each application."""
    pair = _delta_log(spark).forTableWithSnapshot(_session(spark), path)
    found, entries = {}, pair._2().setTransactions().iterator()
    while entries.hasNext():
        entry = entries.next()
        found[entry.appId()] = entry.version()
    return found


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _delta_log(spark: SparkSession) -> Any:
    return _jvm(spark).org.apache.spark.sql.delta.DeltaLog


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


def _session(spark: SparkSession) -> Any:
    return spark._jsparkSession


KIND = SinkKind(DeltaSettings, DeltaSink)
