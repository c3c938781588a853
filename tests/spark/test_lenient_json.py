"""The slow way of decoding JSON gives what Spark's from_json gives, field by field: Spark itself is the judge."""

from __future__ import annotations

import json
import re
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from pyspark.sql.types import StructType

from barnabas.spark.lenient.json_values import LenientJson
from barnabas.spark.lenient.times import find_zone
from tests.json_values import Kind, ddl, random_schema, random_value
from tests.spark.time_texts import random_time_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = range(20)
MANY_SEEDS = range(20, 220)
VALUES = 1_000
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "+05:30")
STRUCTURE = [bytes([letter]) for letter in b"{}[]:,\"' \\\n\x01/#0-+.eEINtfnx5"]
STRUCTURE += [b"", b"NaN", b"null", b'{"c0":', b"-INF"]
LONG_EXPONENT = re.compile(rb"[eE][+-]?\d{4,}")
"""As a DECIMAL, such a number keeps Spark busy for hours."""


def random_fields(random: Random) -> dict[str, Kind]:
    fields = random_schema(random)
    for name, kind in (("bin", "BINARY"), ("when", "TIMESTAMP"), ("day", "DATE"), ("clock", "TIMESTAMP_NTZ")):
        if random.random() < 0.2:
            fields[name] = kind
    if random.random() < 0.3:
        fields["bins"] = ("array", "BINARY")
    return fields


def random_bytes(random: Random, fields: dict[str, Kind]) -> bytes | None:
    """Every third one with some letter of JSON's grammar in a wrong position, and odd texts where times are."""
    data = random_value(random, fields)
    if data is None:
        return None
    for name in ("when", "day", "clock"):
        if name in fields and random.random() < 0.5:
            text = json.dumps(random_time_text(random), ensure_ascii=random.random() < 0.5)
            data = data.replace(b'"%s":' % name.encode(), b'"%s":%s,"x":' % (name.encode(), text.encode()))
    for _ in range(random.choice((0, 0, 1, 2)) if random.random() < 0.6 else 0):
        at = random.randint(0, len(data))
        data = data[:at] + random.choice(STRUCTURE) + data[at + random.randint(0, 2) :]
    return LONG_EXPONENT.sub(b"e1", data)


def by_spark(spark: SparkSession, values: list[bytes | None], schema: str, zone: str) -> pyarrow.Table:
    table = pyarrow.table({"value": pyarrow.array(values, pyarrow.binary())})
    read = f"from_json(cast(value AS STRING), '{schema}, _corrupt_record STRING', map('timeZone', '{zone}')) AS v"
    return spark.createDataFrame(table).coalesce(1).selectExpr(read).select("v.*").toArrow()


def differences(spark: SparkSession, seed: int, count: int) -> list[Any]:
    random = Random(seed)
    fields, zone = random_fields(random), random.choice(ZONES)
    values = [random_bytes(random, fields) for _ in range(count)]
    theirs = by_spark(spark, values, ddl(fields), zone)
    kind = pyarrow.struct([theirs.schema.field(name) for name in fields])
    tz = find_zone(zone)
    assert tz is not None
    schema = StructType.fromDDL(ddl(fields))
    assert isinstance(schema, StructType)
    reader = LenientJson(schema, tz)
    found = [({}, None) if value is None else reader.read(value) for value in values]
    ours = pyarrow.array([row for row, _ in found], kind)
    wrong: list[Any] = []
    columns = [(name, ours.field(name), theirs[name].combine_chunks()) for name in fields]
    for index, (value, (_, reason)) in enumerate(zip(values, found)):
        if reason is not None and ("follows the value" in reason or reason.startswith("not UTF-8")):
            assert _is_stricter(value), (seed, value, reason)
            continue
        for name, mine, other in columns:
            if mine[index] != other[index] and repr(mine[index]) != repr(other[index]):
                wrong.append((seed, index, value, name, mine[index], other[index], reason))
        if (reason is None) != (not theirs["_corrupt_record"][index].is_valid):
            wrong.append((seed, index, value, "_corrupt_record", reason, theirs["_corrupt_record"][index]))
    return wrong


def _is_stricter(value: bytes | None) -> bool:
    """Python's own decoder finds no JSON there, or something behind it."""
    try:
        json.loads((value or b"").decode())
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("seed", SEEDS)
def test_values_mean_what_they_mean_to_from_json(spark: SparkSession, seed: int) -> None:
    wrong = differences(spark, seed, VALUES)
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"


@pytest.mark.proof
@pytest.mark.parametrize("seed", MANY_SEEDS)
def test_many_values_mean_what_they_mean_to_from_json(spark: SparkSession, seed: int) -> None:
    wrong = differences(spark, seed, 5 * VALUES)
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"
