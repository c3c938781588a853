"""Records the archive of the classes of Spark's JVM (`class_archive`), in half a minute of one core.

    python -m barnabas.spark.pipeline.class_recorder

The first run of a pipeline starts it in the background, with the lowest priority. An image for pipelines can run it
while it is built. It does with Spark what pipelines do, on a few rows, so that the classes for that are
loaded.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.spark.class_archive import ClassArchive, end_jvm
from barnabas.spark.java import require_java
from barnabas.spark.pipeline.session import spark_session

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_SCHEMA = "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>"
_COUNTS = "start TIMESTAMP, rows BIGINT"


def record(archive: ClassArchive) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-classes-") as directory,
        archive.recording(end_jvm) as options,
        spark_session("classes", None, _LOOPBACK, Path(directory), class_options=options) as spark,
    ):
        _use(spark, f"{directory}/rows")


def _use(spark: SparkSession, place: str) -> None:
    """What pipelines do on both paths: tasks in Python, results kept on disk, JSON, SQL, a shuffle, files."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    tasks = spark.range(0, 2, 1, 2).mapInArrow(_unchanged, "id BIGINT").persist(StorageLevel.DISK_ONLY)
    tasks.where("id = 0").collect()
    values = tasks.select(f.to_json(f.struct("id", f.lit("2026-11-18T00:00:00Z").alias("at"))).alias("value"))
    rows = values.select(f.from_json("value", _SCHEMA).alias("row")).select("row.*")
    rows.createOrReplaceTempView("rows")
    counts = spark.sql(
        "SELECT window(at, '1 hour').start AS start, count(*) AS rows, max(upper(id)) FROM rows GROUP BY 1"
    )
    counts.select("start", "rows").sortWithinPartitions("start").mapInArrow(_unchanged, _COUNTS).collect()
    rows.write.parquet(place)
    spark.read.parquet(place).count()
    tasks.unpersist()


def _unchanged(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    return batches


def main() -> None:
    archive = ClassArchive.of(require_java().version)
    if not archive.options:
        record(archive)
    if not archive.options:
        sys.exit(f"no archive was recorded: cannot write {archive.file}, or the JVM did not end well")
    archive.log.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
