"""Pipelines on the direct path give the same lake as by way of Spark, whatever the records are like."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pyarrow.parquet
import pytest
from fastavro import parse_schema, schemaless_writer

from barnabas.spark.direct import job, task
from barnabas.spark.direct.hour_files import HourFilesTarget
from barnabas.spark.lake.reading import read_lake
from barnabas.spark.pipeline.failures import UnreadableRecord
from tests.peers import Broker
from tests.spark.pipelines import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
name: ${NAME}
cluster: {bootstrap_servers: "${BARNABAS_BOOTSTRAP_SERVER}"}
mode: ${MODE:-batch}
max_records_per_task: 150
sources:
  - name: clicks
    topics: ["${TOPIC}"]
    schema: >-
      id INT NOT NULL, amount DOUBLE, name STRING, at TIMESTAMP,
      tags ARRAY<STRUCT<k: STRING, v: MAP<STRING, DECIMAL(5,1)>>>
    key: k
sinks:
  - name: lake
    kind: lake
    from: ${VIEW:-clicks}
    path: ${PIPELINE_DATA}/${NAME}
    time: at
"""
WITH_ARROW = PIPELINE.replace("key: k", 'key: k\n    options: {allowComments: "false"}')
"""Through Spark, by an option that changes nothing, but belongs to Spark's reader; files are written with Arrow."""
SPARKS_WRITER = "    options: {parquet.page.size: '1048576'}\n"
BY_SPARK = WITH_ARROW + SPARKS_WRITER
"""Read and written by Spark."""
LETTERS = "dead_letters: {topic: '${TOPIC}.dead'}\n"
ARROW = """
transforms:
  - {name: dear, arrow: tests.spark.arrow_functions.dear, from: clicks}
"""


@pytest.fixture
def bench(spark: SparkSession, spark_broker: Broker, tmp_path: Path) -> Bench:
    return Bench(spark, spark_broker.address, tmp_path)


def click(number: int, random: Random) -> bytes:
    """Mostly what a task is sure of; some that only Spark can decode."""
    at = f"2026-11-18T{random.randrange(3):02}:{random.randrange(60):02}:00Z"
    row: dict[str, Any] = {"id": number, "amount": random.choice((0.5, 1.25, 3e3)), "name": f"é{number}", "at": at}
    row["tags"] = [{"k": "a", "v": {"x": 1.5, "y": None}}, None] if number % 3 else []
    if number % 10 == 7:
        row["name"] = number  # a number as text
    if number % 20 == 9:
        row["at"] = random.choice((None, "2026-11-18", "1969-07-20T20:17:40.123456789Z"))
    return json.dumps(row).encode()


def lake_rows(bench: Bench, name: str) -> list[Any]:
    return sorted(
        read_lake(bench.spark, str(bench.place / name)).drop("date", "hour").collect(),
        key=lambda row: (row._partition, row._offset),
    )


def test_a_lake_is_the_same_on_both_paths(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic, random = spark_topic(partitions=3), Random(1)
    bench.send(topic, [click(number, random) for number in range(700)], key=b"\xffkey")
    ways = {"direct": PIPELINE, "arrow": WITH_ARROW, "spark": BY_SPARK}
    for name, text in ways.items():
        assert bench.run(text, TOPIC=topic, NAME=name).rows == {"lake": 700}
    assert lake_rows(bench, "direct") == lake_rows(bench, "arrow") == lake_rows(bench, "spark")
    assert {name: writers(bench, name) for name in ways} == {
        "direct": {"parquet-cpp"},
        "arrow": {"parquet-cpp"},
        "spark": {"parquet-mr"},
    }
    files = {name: len([*bench.place.glob(f"{name}/**/*.parquet")]) for name in ways}
    assert files["direct"] > files["arrow"] == files["spark"], "no record was unsure"


def writers(bench: Bench, lake: str) -> set[str]:
    """The programs that have written the files of a lake."""
    paths = bench.place.glob(f"{lake}/**/*.parquet")
    return {pyarrow.parquet.read_metadata(path).created_by.split()[0].removesuffix("-arrow") for path in paths}


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {
            "name": "place",
            "type": ["null", {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}],
        },
    ],
}
TREE = {**AVRO, "fields": [*AVRO["fields"], {"name": "next", "type": ["null", "Click"], "default": None}]}
"""Of a newer writer; tasks read its records with fastavro."""
AVRO_PIPELINE = """
name: ${NAME}
cluster: {bootstrap_servers: "${BARNABAS_BOOTSTRAP_SERVER}"}
mode: batch
max_records_per_task: 150
sources:
  - name: clicks
    topics: ["${TOPIC}"]
    format: avro
    schema: ${PIPELINE_DATA}/1.avsc
    registry: ${PIPELINE_DATA}
    key: k
sinks:
  - name: lake
    kind: lake
    from: ${VIEW}
    path: ${PIPELINE_DATA}/${NAME}
    time: at
dead_letters: {topic: "${TOPIC}.${NAME}"}
"""


def avro_click(number: int, random: Random) -> bytes:
    """Mostly good; some of the newer writer, some cut off, some of an unknown one."""
    at = 1_795_000_000_000 + random.randrange(3 * 3600 * 1000)
    row: dict[str, Any] = {
        "id": number,
        "name": None if number % 3 else f"é{number}",
        "at": at,
        "tags": {"x": 0.5, "y": number / 3},
    }
    row["place"] = {"city": "Jaffna"} if number % 4 else None
    schema, out = (TREE if number % 5 == 4 else AVRO), io.BytesIO()
    schemaless_writer(out, parse_schema(schema), {**row, "next": {**row, "next": None}})
    value = (b"\0\0\0\0\2" if schema is TREE else b"\0\0\0\0\1") + out.getvalue()
    return {7: value[:-1], 8: b"\0\0\0\0\3" + out.getvalue()}.get(number % 50, value)


def test_a_lake_of_avro_is_the_same_on_both_paths(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic, random = spark_topic(partitions=3), Random(1)
    bench.place.joinpath("1.avsc").write_text(json.dumps(AVRO))
    bench.place.joinpath("2.avsc").write_text(json.dumps(TREE))
    bench.send(topic, [avro_click(number, random) for number in range(600)], key=b"\xffkey")
    sql = "transforms: [{name: all, sql: SELECT * FROM clicks}]"
    by_spark = AVRO_PIPELINE.replace("    time: at\n", f"    time: at\n{SPARKS_WRITER}") + sql
    for name, text, view in (("direct", AVRO_PIPELINE, "clicks"), ("spark", by_spark, "all")):
        totals = bench.run(text, TOPIC=topic, NAME=name, VIEW=view)
        assert totals.rows == {"lake": 576, "dead-letters": 24}
    assert lake_rows(bench, "direct") == lake_rows(bench, "spark")
    assert (writers(bench, "direct"), writers(bench, "spark")) == ({"parquet-cpp"}, {"parquet-mr"})


CSV_PIPELINE = """
name: ${NAME}
cluster: {bootstrap_servers: "${BARNABAS_BOOTSTRAP_SERVER}"}
mode: batch
max_records_per_task: 150
sources:
  - name: clicks
    topics: ["${TOPIC}"]
    format: csv
    schema: id INT NOT NULL, amount DOUBLE, name STRING, at TIMESTAMP
    options: {sep: ";"}
    key: k
sinks:
  - name: lake
    kind: lake
    from: ${VIEW}
    path: ${PIPELINE_DATA}/${NAME}
    time: at
dead_letters: {topic: "${TOPIC}.${NAME}"}
"""


def csv_click(number: int, random: Random) -> bytes:
    """Mostly what a task is sure of; some that only Spark can decode, some that it cannot."""
    at = f"2026-11-18T{random.randrange(3):02}:{random.randrange(60):02}:00Z"
    name = {3: '"a; b"', 4: '"a \\"b\\""', 5: "", 6: '"a" b'}.get(number % 10, f"é{number}")
    amount = {7: " 1.5", 8: "NaN", 9: "1,5" if number % 20 == 9 else "1e3"}.get(number % 10, "0.25")
    return f"{number};{amount};{name};{at}".encode() if number % 50 else b"1;2;3"


def test_a_lake_of_csv_is_the_same_on_all_paths(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic, random = spark_topic(partitions=3), Random(1)
    bench.send(topic, [csv_click(number, random) for number in range(600)], key=b"\xffkey")
    sql = CSV_PIPELINE + "transforms: [{name: all, sql: SELECT * FROM clicks}]"
    by_spark = CSV_PIPELINE.replace('sep: ";"', 'sep: ";", header: "false"')
    for name, text, view in (("direct", CSV_PIPELINE, "clicks"), ("sql", sql, "all"), ("spark", by_spark, "clicks")):
        totals = bench.run(text, TOPIC=topic, NAME=name, VIEW=view)
        assert totals.rows == {"lake": 558, "dead-letters": 42}
    rows = [repr(lake_rows(bench, name)) for name in ("direct", "sql", "spark")]  # NaN is not equal to itself
    assert rows[0] == rows[1] == rows[2]


def test_a_lake_that_spark_began_goes_on_directly(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic, random = spark_topic(partitions=2), Random(2)
    bench.send(topic, [click(number, random) for number in range(300)])
    bench.run(BY_SPARK, TOPIC=topic, NAME="lake", MODE="available-now")
    bench.send(topic, [click(number, random) for number in range(300, 500)])
    bench.run(PIPELINE, TOPIC=topic, NAME="lake", MODE="available-now")
    assert sorted(row.id for row in lake_rows(bench, "lake")) == list(range(500))


def test_spark_duckdb_and_pyarrow_read_a_lake_written_on_both_paths(
    bench: Bench, spark_topic: Callable[..., str]
) -> None:
    """Timestamps of Java's writer are INT96, as Spark does unless it is configured, those of Arrow INT64."""
    topic, random = spark_topic(partitions=2), Random(7)
    bench.send(topic, [click(number, random) for number in range(200)])
    bench.run(BY_SPARK, TOPIC=topic, NAME="lake", MODE="available-now")
    bench.send(topic, [click(number, random) for number in range(200, 400)])
    bench.run(PIPELINE, TOPIC=topic, NAME="lake", MODE="available-now")
    files = sorted(str(path) for path in bench.place.glob("lake/date=*/hour=*/*.parquet"))
    schemas = [pyarrow.parquet.ParquetFile(file).schema for file in files]
    assert {schema.column(schema.names.index("at")).physical_type for schema in schemas} == {"INT96", "INT64"}

    by_spark = sorted((row.id, row.amount, row.name, micros(row.at)) for row in lake_rows(bench, "lake"))
    assert [row[0] for row in by_spark] == list(range(400))
    query = 'SELECT id, amount, name, epoch_us("at") FROM read_parquet($files) ORDER BY id'
    assert by_duckdb(query, files=files) == by_spark
    table = pyarrow.dataset.dataset(files).to_table().sort_by("id")
    columns = [table[name].to_pylist() for name in ("id", "amount", "name")]
    times = table["at"].cast(pyarrow.timestamp("us")).cast(pyarrow.int64()).to_pylist()
    assert list(zip(*columns, times)) == by_spark


def by_duckdb(query: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """In a process of its own, for it reports at its end what the module has not released."""
    program = "import duckdb, json, sys; print(json.dumps(duckdb.execute(*json.load(sys.stdin)).fetchall()))"
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps([query, parameters]), text=True, timeout=60,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [tuple(row) for row in json.loads(done.stdout)]


def micros(time: datetime | None) -> int | None:
    return (
        None if time is None else (time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    )


def test_an_arrow_function_is_applied_on_both_paths(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic, random = spark_topic(partitions=2), Random(3)
    bench.send(topic, [click(number, random) for number in range(400)])
    for name, text in (("direct", PIPELINE), ("spark", BY_SPARK)):
        bench.run(text + ARROW, TOPIC=topic, NAME=name, VIEW="dear")
    rows = lake_rows(bench, "direct")
    assert rows == lake_rows(bench, "spark")
    assert rows
    assert all(row.twice == 2 * row.amount > 2 for row in rows)


def test_a_record_that_cannot_be_read_stops_a_direct_load_by_name(
    bench: Bench, spark_topic: Callable[..., str]
) -> None:
    topic, random = spark_topic(), Random(4)
    bench.send(topic, [*(click(number, random) for number in range(20)), b'{"id": null}', click(21, random)])
    with pytest.raises(UnreadableRecord, match="record 20 of "):
        bench.run(PIPELINE, TOPIC=topic, NAME="lake")


@pytest.mark.parametrize("mode", ["batch", "available-now"])
def test_dead_letters_of_a_direct_load_arrive_once_and_need_no_second_look(
    mode: str, bench: Bench, spark_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_again(*_: object) -> None:
        raise AssertionError("the records are read a second time")

    monkeypatch.setattr(job, "unsure_records", read_again)
    topic, random = spark_topic(partitions=2), Random(5)
    bad = [b'{"id": null}', b"junk", b'{"id": 1} junk', b"\xff", b""]
    bench.send(
        topic,
        [value for number in range(100) for value in (click(number, random), *bad[number % 25 : number % 25 + 1])],
    )
    totals = bench.run(PIPELINE + LETTERS, TOPIC=topic, NAME="lake", MODE=mode)
    assert totals.rows == {"lake": 100, "dead-letters": 20}
    assert totals.records == 120
    assert 20 <= totals.unsure < 60  # some of the good ones are written in ways that only Spark decodes
    assert sorted(row.value for row in bench.records(f"{topic}.dead")) == sorted(bad * 4)


def test_what_a_dead_attempt_leaves_is_never_committed(
    bench: Bench, spark_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that Spark took for dead writes on after the load was committed and its staging deleted."""
    topic, random = spark_topic(), Random(6)
    bench.send(topic, [click(number, random) for number in range(100)])
    seen: list[task.Load] = []

    def in_tasks(load: task.Load) -> Any:
        seen.append(load)
        return task.in_tasks(load)

    monkeypatch.setattr("barnabas.spark.direct.job.in_tasks", in_tasks)
    bench.run(PIPELINE, TOPIC=topic, NAME="lake", MODE="available-now")
    (load,) = [load for load in seen if load.target is not None]
    assert isinstance(load.target, HourFilesTarget)
    assert not Path(load.target.directory).exists()
    list(load.run(0, attempt=99))
    assert list(Path(load.target.directory).glob("**/*.parquet"))
    bench.send(topic, [click(number, random) for number in range(100, 150)])
    bench.run(PIPELINE, TOPIC=topic, NAME="lake", MODE="available-now")
    assert sorted(row.id for row in lake_rows(bench, "lake")) == list(range(150))
    assert not Path(load.target.directory).exists()
