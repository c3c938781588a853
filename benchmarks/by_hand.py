"""What a data engineer would write instead of a pipeline: PySpark on Spark's own Kafka connector, tuned.

    python -m benchmarks.by_hand '{"address": ..., "topic": ..., "decoder": "json", "schema": ..., "jobs": 2, ...}'

Prints one line of JSON: the seconds of each job, in one session. The first one is cold, the others warm.

Of the settings, one task for each core made a clear difference: a fifth of the CPU time, with values of 75 B, in three
rounds on a busy machine. These were within the noise there, and want a quiet machine to be judged: check.crcs,
receive.buffer and RawLocalFileSystem, which are set; FAILFAST, spark.sql.json settings, hours without date_trunc,
larger fetches and minPartitions, which are not. spark.sql.maxConcurrentOutputFileWriters took more CPU time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks import by_hand_avro, by_jdbc, driver
from tests.peers import HOST, jdbc_jars, spark_avro_jars, spark_connector_jars

SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",  # no second file with checksums for each
}
ORDER = ("partition", "offset")
"""Columns of the records, by which an upsert finds the last row of a key."""


def session(jars: Sequence[Path]) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[*]").appName("by hand")
    for name, value in {**SETTINGS, "spark.jars": ",".join(map(str, jars))}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def records(spark: SparkSession, address: str, topic: str) -> DataFrame:
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("kafka.max.poll.records", "10000")
        .option("kafka.max.partition.fetch.bytes", str(8 << 20))
        .option("kafka.receive.buffer.bytes", str(1 << 20))
        .option("kafka.check.crcs", "false")
        .load()
    )


def from_json(frame: DataFrame, schema: str, kept: Sequence[str]) -> DataFrame:
    row = f.from_json(f.col("value").cast("string"), schema).alias("row")
    return frame.select(*kept, row).select(*kept, "row.*")


DECODERS: Mapping[str, Callable[[DataFrame, str, Sequence[str]], DataFrame]] = {
    "json": from_json,
    "avro": by_hand_avro.from_avro,
    "pyruhvro": by_hand_avro.by_pyruhvro,
    "fastavro": by_hand_avro.by_fastavro,
}
"""Each makes rows of the values' fields, and of the columns of the records that are kept."""


def to_parquet(frame: DataFrame, place: str) -> None:
    """With a task for each core, not for each partition: fewer files take a fifth less CPU time."""
    hour = f.date_trunc("hour", "at")
    timed = frame.withColumn("date", f.to_date(hour)).withColumn("hour", f.hour(hour))
    timed = timed.coalesce(frame.sparkSession.sparkContext.defaultParallelism)
    timed.write.partitionBy("date", "hour").option("compression", "snappy").parquet(place)


def result_of(spark: SparkSession, query: str) -> list[str]:
    """In an order of its own, so that results can be compared."""
    return sorted(json.dumps(row.asDict()) for row in spark.sql(query).collect())


def main(
    address: str,
    topic: str,
    decoder: str,
    schema: str,
    place: str,
    jobs: int = 1,
    sql: str | None = None,
    query: str | None = None,
    database: str | None = None,
    kept: Sequence[str] = (),
    checked: bool = True,
) -> dict[str, Any]:
    """Rows go to Parquet files, through `sql` if that is given, or into a `query`, or to a `database`.

    If they are `checked`, `rows` is the number of rows that the last job has written, or the result of the query.
    """
    spark_jars = [*spark_connector_jars(), *(spark_avro_jars() if decoder == "avro" else ())]
    spark = session([*spark_jars, *(jdbc_jars() if database else ())])
    found: dict[str, Any] = {}
    for number in range(jobs):
        began, began_at = time.perf_counter(), time.time()
        rows = DECODERS[decoder](records(spark, address, topic), schema, ORDER if database else kept)
        rows.createOrReplaceTempView("clicks")
        if database is not None:
            by_jdbc.upsert(rows, database)
        elif query is not None:
            found["rows"] = result_of(spark, query)
        else:
            to_parquet(rows if sql is None else spark.sql(sql), f"{place}/{number}")
        found[f"job {number}"] = time.perf_counter() - began
        if database is not None:
            found[f"staged {number}"] = driver.last_job_ended(spark) - began_at
    if checked and database is not None:
        found["rows"] = by_jdbc.count(database)
    elif checked and query is None:
        found["rows"] = spark.read.parquet(f"{place}/{jobs - 1}").where("id IS NOT NULL").count()
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
