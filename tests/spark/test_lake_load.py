"""A lake that is loaded from a topic by tasks, and compared with it again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.lake.load import load_topics
from barnabas.spark.lake.sink import LakeSettings, LakeSink
from barnabas.spark.lake.topics import read_ranges
from barnabas.spark.ranges import OffsetRange
from barnabas.sync import Producer
from tests.peers import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS  # 2023-11-14T22
RECORDS = 12


def test_tasks_that_failed_are_done_again_alone_and_the_audit_finds_every_record_and_what_is_missing(
    spark: SparkSession,
    spark_topic: Callable[..., str],
    spark_producer: Producer,
    spark_broker: Broker,
    tmp_path: Path,
) -> None:
    topic = spark_topic(partitions=2)
    for number in range(RECORDS):
        time = BEGIN_MS + number * 10 * 60_000
        spark_producer.post(topic, json.dumps({"n": number}).encode(), partition=0, timestamp=time)
    spark_producer.flush()
    options = {"kafka.bootstrap.servers": spark_broker.address, "subscribe": topic}
    sink = LakeSink("lake", LakeSettings(str(tmp_path / "lake")), options)
    tried: list[tuple[OffsetRange, ...]] = []

    def frame_of(task: tuple[OffsetRange, ...]) -> DataFrame:
        tried.append(task)
        if task[0].start == 8 and len(tried) == 2:
            raise ValueError("no such thing")
        return read_ranges(spark, options, task, ("value",))

    with pytest.raises(ValueError, match="no such thing"):
        load_topics(spark, sink, frame_of, max_records=8)
    assert load_topics(spark, sink, frame_of, max_records=8) == 4
    assert tried == [(OffsetRange(topic, 0, *bounds),) for bounds in ((0, 8), (8, 12), (8, 12))]
    plain = spark.read.parquet(str(tmp_path / "lake"))
    assert sorted((row._offset, json.loads(row.value)["n"]) for row in plain.collect()) == [
        (number, number) for number in range(RECORDS)
    ]
    # The empty partition was read to its end too, so nothing is missing in these hours.
    assert len(list((tmp_path / "lake").glob("date=*/hour=*/_SUCCESS"))) == 2

    next((tmp_path / "lake").glob("date=*/hour=22/*.parquet")).unlink()
    audited = sink.audit(spark)
    found = [(row["partition"], row["hour"], row["in_topic"], row["in_lake"], row["ok"]) for row in audited]
    assert found[:2] == [(0, "2023-11-14T22", 6, 0, False), (0, "2023-11-14T23", 6, 6, True)]
    assert "is in the manifest and is not there" in audited[2]["note"]
