"""Texts of dates and timestamps mean what they mean to Spark."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.lenient.times import find_zone, parse_date, parse_timestamp, parse_timestamp_ntz
from tests.spark.time_texts import random_clock, random_time_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = 4_000
SCHEMA = "t TIMESTAMP, n TIMESTAMP_NTZ, d DATE"
FOUND = ["unix_micros(v.t)", "unix_micros(cast(v.n AS TIMESTAMP))", "unix_date(v.d)"]


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns", pytest.param("Europe/Dublin", marks=pytest.mark.proof)])
def test_time_texts_mean_what_they_mean_to_spark(spark: SparkSession, zone: str) -> None:
    random = Random(zone)
    texts = [random_time_text(random) for _ in range(TEXTS)]
    values = [(json.dumps({"t": text, "n": text, "d": text}),) for text in texts]
    frame = spark.createDataFrame(values, "text STRING").coalesce(1)
    decoded = frame.selectExpr(f"from_json(text, '{SCHEMA}', map('timeZone', '{zone}')) AS v")
    by_spark = [tuple(row) for row in decoded.selectExpr(*FOUND).collect()]
    ours_zone = find_zone(zone)
    assert ours_zone is not None
    wrong = []
    for text, row in zip(texts, by_spark):
        ours = (parse_timestamp(text, ours_zone), parse_timestamp_ntz(text), parse_date(text))
        if ours != row and not _is_day_number(text, ours, row):
            wrong.append((text, ours, row))
    assert not wrong, f"{len(wrong)} of {len(texts)}: {wrong[:20]}"
    assert sum(row[0] is not None for row in by_spark) > TEXTS // 5


def test_times_without_a_day_are_of_today(spark: SparkSession) -> None:
    """Of the hour that is now, twice, should the day have changed between."""
    random = Random(1)
    clocks = [random.choice(["", "T"]) + random_clock(random) for _ in range(300)]
    frame = spark.createDataFrame([(json.dumps({"t": clock}),) for clock in clocks], "text STRING").coalesce(1)
    zone = find_zone("UTC")
    assert zone is not None
    before = [parse_timestamp(clock, zone) for clock in clocks]
    by_spark = [row[0] for row in frame.selectExpr("unix_micros(from_json(text, 't TIMESTAMP').t)").collect()]
    after = [parse_timestamp(clock, zone) for clock in clocks]
    for clock, *ours, theirs in zip(clocks, before, after, by_spark):
        assert theirs in ours, clock


def _is_day_number(text: str, ours: tuple[int | None, ...], theirs: tuple[int | None, ...]) -> bool:
    """JSON alone takes the number of a day for a date."""
    return ours[:2] == theirs[:2] and ours[2] is None and text.strip("+-").isdecimal()
