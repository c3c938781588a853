"""The slow way of decoding CSV gives what Spark's from_csv gives, field by field: Spark itself is the judge."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

from barnabas.spark.ddl import parse_ddl
from barnabas.spark.lenient.csv_values import LenientCsv
from barnabas.spark.lenient.times import find_zone
from tests.csv_values import SEPARATORS, random_schema, random_value
from tests.json_values import ddl
from tests.spark.time_texts import random_time_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = range(8)
MANY_SEEDS = range(8, 108)
VALUES = 2_000
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "+05:30")
STRUCTURE = [
    letter.encode() for letter in ('"', "\\", ",", ";", "|", "\t", " ", "\n", "\0", "#", "a", '"\\', '""', '\\"')
]
TIME_TYPES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")


def random_bytes(random: Random, fields: dict[str, str], separator: str) -> bytes:
    """Every other one with quotes, escapes and separators where none should be, and odd texts where times are."""
    if random.random() < 0.1:
        tokens = [random_time_text(random) if kind in TIME_TYPES else "1" for kind in fields.values()]
        return separator.join(tokens).encode(errors="replace")
    if random.random() < 0.1:
        return b"".join(random.choices(STRUCTURE, k=random.randrange(1, 12)))
    data = random_value(random, fields, separator) or b""
    for _ in range(random.choice((0, 0, 1, 3))):
        at = random.randint(0, len(data))
        data = data[:at] + random.choice(STRUCTURE) + data[at + random.randint(0, 2) :]
    return data


def by_spark(spark: SparkSession, values: list[bytes], schema: str, zone: str, separator: str) -> pyarrow.Table:
    table = pyarrow.table({"value": pyarrow.array(values, pyarrow.binary())})
    options = f"map('timeZone', '{zone}', 'sep', '{separator}')"
    read = f"from_csv(cast(value AS STRING), '{schema}, _corrupt_record STRING', {options}) AS v"
    return spark.createDataFrame(table).coalesce(1).selectExpr(read).select("v.*").toArrow()


def differences(spark: SparkSession, seed: int) -> list[Any]:
    random = Random(seed)
    fields, zone, separator = random_schema(random), random.choice(ZONES), random.choice(SEPARATORS)
    # What follows U+FFFF is the next value to Spark, and the first value loses its byte order mark.
    some = (random_bytes(random, fields, separator) for _ in range(VALUES))
    values = [b"x", *(value for value in some if is_text(value) and b"\xef\xbf\xbf" not in value)]
    theirs = by_spark(spark, values, ddl(fields), zone, separator)
    kind = pyarrow.struct([theirs.schema.field(name) for name in fields])
    tz = find_zone(zone)
    assert tz is not None
    reader = LenientCsv(parse_ddl(ddl(fields)), tz, separator)
    found = [reader.read(value) for value in values]
    ours = pyarrow.array([row for row, _ in found], kind)
    columns = [(name, ours.field(name), theirs[name].combine_chunks()) for name in fields]
    wrong: list[Any] = []
    for index, (value, (_, reason)) in enumerate(zip(values, found)):
        for name, mine, other in columns:
            if mine[index] != other[index] and repr(mine[index]) != repr(other[index]):
                wrong.append((seed, index, value, name, mine[index], other[index], reason))
        if value and (reason is None) != (not theirs["_corrupt_record"][index].is_valid):
            wrong.append((seed, index, value, "_corrupt_record", reason, theirs["_corrupt_record"][index]))
    return wrong


def is_text(value: bytes) -> bool:
    try:
        return value.decode() is not None
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.proof) for seed in MANY_SEEDS)])
def test_values_mean_what_they_mean_to_from_csv(spark: SparkSession, seed: int) -> None:
    wrong = differences(spark, seed)
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"
