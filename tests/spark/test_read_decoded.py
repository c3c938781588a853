"""Reads that decode values: the same rows as Spark's own functions make of the raw values."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import StructType

from barnabas.spark.ddl import parse_ddl
from barnabas.sync import Producer
from tests.json_values import ddl
from tests.peers import Broker
from tests.spark.test_lenient_json import random_bytes, random_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id BIGINT, amount DECIMAL(8,2), at TIMESTAMP, place STRUCT<city: STRING, size: INT>"
GOOD = b'{"id": 1, "amount": 2.50, "at": "2026-11-18 09:00:00", "place": {"city": "Ulm", "size": 3}}'
BAD_FIELD = b'{"id": "x", "amount": 2.505, "place": {"city": 7, "size": "3"}}'
VALUES = [GOOD, BAD_FIELD, None, b"{broken", b'{"id": 5} junk', b'{"id": 6, "city": "\xff"}', b""]
JSON = {"value.format": "json", "value.schema": SCHEMA}


@pytest.fixture
def filled(spark_topic: Callable[..., str], spark_producer: Producer) -> Callable[[list[bytes | None]], str]:
    """A topic of one partition with these values."""

    def fill(values: list[bytes | None]) -> str:
        topic = spark_topic()
        spark_producer.send_many(topic, values)
        return topic

    return fill


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_decoded_columns_are_those_of_from_json(
    spark: SparkSession, filled: Callable[..., str], read_topic: Callable[..., DataFrame], seed: int
) -> None:
    """In the session's time zone, which Spark sends to the tasks."""
    random = Random(seed)
    fields = random_fields(random)
    values = [random_bytes(random, fields) for _ in range(500)]
    topic = filled(values)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        ours = read_topic(topic, **{"value.format": "json", "value.schema": ddl(fields)}).toArrow().sort_by("offset")
        read = f"from_json(cast(value AS STRING), '{ddl(fields)}, _corrupt_record STRING') AS v"
        theirs = read_topic(topic).selectExpr("offset", read).select("offset", "v.*").toArrow().sort_by("offset")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert len(ours) == len(theirs) == len(values)
    stricter = ("follows the value", "not UTF-8")
    for index, reason in enumerate(ours["_corrupt_record"].to_pylist()):
        if reason is not None and any(words in reason for words in stricter):
            assert all(ours[name][index].as_py() is None for name in fields)
            continue
        assert (reason is None) == (theirs["_corrupt_record"][index].as_py() is None), values[index]
        for name in fields:
            assert repr(ours[name][index]) == repr(theirs[name][index]), (name, values[index])


def test_decoded_columns_of_csv_are_those_of_from_csv(
    filled: Callable[..., str], read_topic: Callable[..., DataFrame]
) -> None:
    schema = "id INT, x DOUBLE, s STRING, at TIMESTAMP"
    values = [
        *(b"1,2.5,a,2026-11-18T09:00:00Z", b'2, 3 ,"a \\"b\\"",2026-11-18', b"3,x,a", b"4,5,6,,8", b"a,b,c,d"),
        *(b'5,NaN,"a" b,', b"", None),
    ]
    topic = filled(values)
    chosen = {"value.format": "csv", "value.schema": schema}
    ours = read_topic(topic, **chosen).toArrow().sort_by("offset")
    read = f"from_csv(cast(value AS STRING), '{schema}') AS v"
    theirs = read_topic(topic).selectExpr("offset", read).select("offset", "v.*").toArrow().sort_by("offset")
    for name in ("id", "x", "s", "at"):
        assert repr(ours[name].to_pylist()) == repr(theirs[name].to_pylist())  # NaN is not equal to itself
    assert [reason is not None for reason in ours["_corrupt_record"].to_pylist()] == [
        False,
        False,
        *[True] * 3,
        False,
        True,
        False,
    ]
    some = read_topic(topic, columns="at,_corrupt_record", **chosen).toArrow()
    assert some.num_columns == 2
    assert some["at"].equals(ours["at"])


def test_columns_of_record_and_value_stand_side_by_side(
    filled: Callable[..., str], read_topic: Callable[..., DataFrame]
) -> None:
    frame = read_topic(filled(VALUES), **JSON)
    assert frame.columns == [
        "key", "topic", "partition", "offset", "timestamp", "timestampType",
        "id", "amount", "at", "place", "_corrupt_record",
    ]  # fmt: skip
    rows = [tuple(row) for row in frame.selectExpr("id", "amount", "at", "place", "_corrupt_record").collect()]
    assert [row[0] for row in rows] == [1, None, None, None, None, None, None]
    assert str(rows[0][1]) == "2.50"
    assert str(rows[1][1]) == "2.51"
    assert tuple(rows[1][3]) == ("7", None)
    reasons = [row[4] for row in rows]
    assert reasons[0] is None
    assert reasons[1] == "id: 'x' is no BIGINT"
    assert reasons[2] is None
    assert reasons[3].startswith("not JSON: ")
    assert reasons[4] == "not JSON: 'junk' follows the value"
    assert reasons[5].startswith("not UTF-8: ")
    assert reasons[6] is None


def test_malformed_values_are_dropped_on_request(
    filled: Callable[..., str], read_topic: Callable[..., DataFrame]
) -> None:
    frame = read_topic(filled(VALUES), mode="DROPMALFORMED", **JSON)
    assert [row.offset for row in frame.select("offset").collect()] == [0, 2, 6]
    assert frame.count() == 3


def test_failfast_names_the_record_and_the_reason(
    filled: Callable[..., str], read_topic: Callable[..., DataFrame]
) -> None:
    topic = filled(VALUES)
    with pytest.raises(PySparkException, match=rf"topic '{topic}', partition 0, offset 1: .* id: 'x' is no BIGINT"):
        read_topic(topic, mode="failfast", columns="id", **JSON).collect()
    assert read_topic(topic, mode="failfast", endingOffsets=json.dumps({topic: {"0": 1}}), **JSON).count() == 1


def test_columns_option_decodes_and_judges_only_named_fields(
    filled: Callable[..., str], read_topic: Callable[..., DataFrame]
) -> None:
    topic = filled([GOOD, BAD_FIELD])
    frame = read_topic(topic, columns="offset,amount,_corrupt_record,value", **JSON)
    assert frame.columns == ["offset", "amount", "_corrupt_record", "value"]
    rows = frame.collect()
    assert [(row.offset, str(row.amount), row[2]) for row in rows] == [(0, "2.50", None), (1, "2.51", None)]
    assert bytes(rows[1].value) == BAD_FIELD
    assert read_topic(topic, columns="value", **JSON).count() == 2


def test_schema_of_user_selects_decoded_columns(
    spark: SparkSession, spark_broker: Broker, filled: Callable[..., str]
) -> None:
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", spark_broker.address).options(**JSON)
    reader = reader.option("subscribe", filled([GOOD]))
    assert [tuple(row) for row in reader.schema("id BIGINT, offset BIGINT").load().collect()] == [(1, 0)]
    with pytest.raises(PySparkException, match="schema has id:int where the source has id:bigint"):
        reader.schema("id INT").load().collect()
    with pytest.raises(PySparkException, match="no column 'idd'; did you mean 'id'"):
        reader.schema("idd BIGINT").load().collect()


def test_streams_decode_values(
    spark: SparkSession, spark_broker: Broker, filled: Callable[..., str], checkpoint: str
) -> None:
    seen: list[Any] = []
    reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", spark_broker.address)
    frame = reader.options(**JSON, subscribe=filled(VALUES), startingOffsets="earliest").load()
    spark.conf.set("spark.sql.session.timeZone", "+01:00")
    try:
        query = (
            frame.selectExpr("offset", "unix_seconds(at) AS at", "_corrupt_record")
            .writeStream.foreachBatch(lambda rows, _: seen.extend(rows.collect()))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert sorted((row.offset, row.at, row[2] is None) for row in seen) == [
        (0, 1_794_960_000 + 8 * 3600, True), (1, None, False), (2, None, True), (3, None, False), (4, None, False),
        (5, None, False), (6, None, True),
    ]  # fmt: skip


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


@pytest.mark.parametrize("framing", ["confluent", "none"])
def test_avro_values_become_columns(
    filled: Callable[..., str], read_topic: Callable[..., DataFrame], tmp_path: Path, framing: str
) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(AVRO))
    head = b"\0\0\0\0\7" if framing == "confluent" else b""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), {"id": 5, "note": "é", "at": 1_000})
    values = [head + stream.getvalue(), None, b"\0\0\0\0\x09\2", head + stream.getvalue()[:-1], head + b"\2\2\4ab\2!"]
    options = {"value.format": "avro", "value.schema": json.dumps(AVRO), "value.framing": framing}
    if framing == "confluent":
        options["value.registry"] = str(tmp_path)
    frame = read_topic(filled(values), **options)
    assert frame.selectExpr("id", "note", "at", "_corrupt_record").schema == StructType.fromDDL(
        "id BIGINT, note STRING, at TIMESTAMP, _corrupt_record STRING"
    )
    rows = frame.selectExpr("id", "note", "unix_micros(at) AS at", "_corrupt_record").collect()
    assert tuple(rows[0]) == (5, "é", 1_000_000, None)
    assert tuple(rows[1]) == (None, None, None, None)
    assert all(row.id is None and row[3].startswith("not Avro of this schema: ") for row in rows[2:])
    assert "1 bytes are left over" in rows[4][3]
    if framing == "confluent":
        assert "has no schema with the id 9" in rows[2][3]
    assert [tuple(row) for row in read_topic(filled(values[:1]), columns="note", **options).collect()] == [("é",)]


def test_wrong_options_are_reported_by_the_read(
    filled: Callable[..., str], read_topic: Callable[..., DataFrame]
) -> None:
    with pytest.raises(AnalysisException, match="field 'offset', which is the name of a column of the record"):
        read_topic(filled([GOOD]), **{"value.format": "json", "value.schema": "offset BIGINT"})


@pytest.mark.parametrize(
    "text",
    [
        SCHEMA,
        "a int,b: integer , `odd name``s` array<array<string>>",
        "m MAP<STRING, STRUCT<x: DECIMAL, y: DEC(5), z: NUMERIC(38,38)>> COMMENT 'it''s' ",
        "a TINYINT NOT NULL, b SHORT, c REAL, d DOUBLE, e BINARY, f DATE, g TIMESTAMP_NTZ, h TIMESTAMP_LTZ, i BYTE",
        's STRUCT<a INT NOT NULL COMMENT "x", b: BOOLEAN>, l LONG, f FLOAT',
    ],
)
def test_ddl_means_what_it_means_to_spark(spark: SparkSession, text: str) -> None:
    """But for comments, and for what may be null: everything may."""
    assert _types(parse_ddl(text)) == _types(StructType.fromDDL(text))


def _types(schema: Any) -> str:
    return str(schema.simpleString())
