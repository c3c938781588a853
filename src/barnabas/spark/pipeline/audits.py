"""Dead letters in an audit: a record that could not be read is in no lake, and yet not lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from barnabas.spark import register
from barnabas.spark.pipeline.dead_letters import OFFSET, PARTITION, PIPELINE, TIMESTAMP, TOPIC
from barnabas.spark.pipeline.definition import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Place = tuple[str, int, str]
"""Topic, partition and hour, such as 2026-11-16T10."""
_ALL_HOURS = ("all", "without a time")
"""In rows that stand for a whole partition."""


def count_letters(spark: SparkSession, pipeline: Pipeline) -> Counter[Place]:
    """How many records lie among the dead letters of a pipeline, by their place; a backfill may bring one once more."""
    from pyspark.sql import functions as f

    if pipeline.dead_letters is None:
        return Counter()
    register(spark)
    options = {**pipeline.cluster.source_options(), "subscribePattern": _literally(pipeline.dead_letters.topic)}
    letters = spark.read.format("barnabas").options(columns="headers", **options).load()

    def header(name: str) -> Any:
        return f.filter("headers", lambda each: each["key"] == name)[0]["value"].cast("string")

    hour = f.floor(header(TIMESTAMP).cast("bigint") / 3_600_000)
    own = letters.where(header(PIPELINE) == pipeline.name)
    places = own.groupBy(header(TOPIC).alias("topic"), header(PARTITION).cast("int").alias("part"), hour.alias("hour"))
    counts = places.agg(f.countDistinct(header(OFFSET)).alias("records"))
    return Counter({(row.topic, row.part, _hour(row.hour)): row.records for row in counts.collect()})


def with_letters(rows: Iterable[Mapping[str, Any]], letters: Mapping[Place, int]) -> list[dict[str, Any]]:
    """The rows of an audit, where what is missing in the lake is as it should be if it lies among the dead letters."""
    found = []
    for row in rows:
        place, hour = (row["topic"], row["partition"]), row["hour"]
        dead = sum(count for key, count in letters.items() if key[:2] == place and hour in (key[2], *_ALL_HOURS))
        is_right = row["ok"] or (dead > 0 and row["in_topic"] == row["in_lake"] + dead)
        found.append({**row, "dead_letters": dead, "ok": is_right})
    return found


def _hour(number: int) -> str:
    return datetime.fromtimestamp(number * 3600, UTC).strftime("%Y-%m-%dT%H")


def _literally(topic: str) -> str:
    """A pattern, because a topic that is not there yet is an error by name, and nothing by pattern."""
    return topic.replace(".", "[.]")
