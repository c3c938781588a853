"""What a data engineer would write instead of a pipeline: PySpark on Spark's own Kafka connector, tuned.

    python -m benchmarks.by_hand '{"address": ..., "topic": ..., "schema": ..., "place": ..., "jobs": 2, ...}'

Prints one line of JSON: the seconds of each job, in one session. The first one is cold, the others warm.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks import by_jdbc
from tests.peers import HOST, jdbc_jars, spark_connector_jars

SETTINGS = {
    "spark.jars": ",".join(str(jar) for jar in (*spark_connector_jars(), *jdbc_jars())),
    "spark.driver.memory": "2g",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[*]").appName("by hand")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rows(spark: SparkSession, address: str, topic: str, schema: str, *also: str) -> DataFrame:
    """The fields of the values, and columns of the records."""
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("kafka.max.poll.records", "10000")
        .option("kafka.max.partition.fetch.bytes", str(8 << 20))
        .load()
    )
    row = f.from_json(f.col("value").cast("string"), schema).alias("row")
    return records.select(*also, row).select(*also, "row.*")


def to_parquet(frame: DataFrame, place: str, sql: str | None, spark: SparkSession) -> None:
    if sql is not None:
        frame.createOrReplaceTempView("clicks")
        frame = spark.sql(sql)
    hour = f.date_trunc("hour", "at")
    timed = frame.withColumn("date", f.to_date(hour)).withColumn("hour", f.hour(hour))
    timed.write.partitionBy("date", "hour").option("compression", "snappy").parquet(place)


def main(
    address: str,
    topic: str,
    schema: str,
    place: str,
    jobs: int = 1,
    sql: str | None = None,
    database: str | None = None,
) -> dict[str, Any]:
    began = time.perf_counter()
    spark = session()
    seconds = {"session": time.perf_counter() - began}
    for number in range(jobs):
        began = time.perf_counter()
        if database is None:
            to_parquet(rows(spark, address, topic, schema), f"{place}/{number}", sql, spark)
        else:
            by_jdbc.upsert(rows(spark, address, topic, schema, "partition", "offset"), database)
        seconds[f"job {number}"] = time.perf_counter() - began
    spark.stop()
    return seconds


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
