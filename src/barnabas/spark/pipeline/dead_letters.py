"""Records that cannot be read go to a topic as they are, with what is known about them in headers.

They take the same road as the rows of a topic sink, so each arrives exactly once, and none is passed over: their
offsets are committed with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from barnabas.spark.pipeline.explain import Expectation, explain
from barnabas.spark.pipeline.formats import Decoder
from barnabas.spark.pipeline.sinks import Sink, SinkContext
from barnabas.spark.pipeline.topic_sink import TopicSettings, TopicSink, ValueFormat

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql._typing import UserDefinedFunctionLike

PREFIX = "barnabas.dead."
"""Of the headers: all that begin with it are ours."""
TOPIC, PARTITION, OFFSET = f"{PREFIX}topic", f"{PREFIX}partition", f"{PREFIX}offset"
TIMESTAMP = f"{PREFIX}timestamp"
"""In milliseconds since 1970."""
PIPELINE, SOURCE, CAUSE, STACK = f"{PREFIX}pipeline", f"{PREFIX}source", f"{PREFIX}cause", f"{PREFIX}stack"
REPLAYS = "barnabas.replays"
"""How often a record has been sent round again: a header of the replayed record."""


def open_sink(topic: str, context: SinkContext) -> Sink:
    """Makes the topic if it is not there."""
    return TopicSink(TopicSettings(topic, format=ValueFormat.COLUMNS, create=True), context)


def dead_letters(bad: Mapping[str, DataFrame], decoders: Mapping[str, Decoder], pipeline: str) -> DataFrame:
    """Rows with key, value and headers for the topic, from the bad records of each source."""
    letters = [_letters(frame, decoders[name], pipeline) for name, frame in bad.items()]
    return reduce(lambda some, more: some.unionByName(more), letters)


def _letters(bad: DataFrame, decoder: Decoder, pipeline: str) -> DataFrame:
    from pyspark.sql import functions as f

    explained = bad.withColumn("_why", _explaining(decoder.expectation)("value"))
    told: dict[str, Column] = {
        TOPIC: f.col("topic"),
        PARTITION: f.col("partition"),
        OFFSET: f.col("offset"),
        TIMESTAMP: f.unix_millis("timestamp"),
        PIPELINE: f.lit(pipeline),
        SOURCE: f.lit(decoder.source.name),
        CAUSE: f.col("_why.cause"),
        STACK: f.col("_why.stack"),
    }
    own = f.array(*(_header(name, value) for name, value in told.items()))
    before = f.coalesce(f.col("headers"), f.array().cast(_HEADERS))
    kept = f.filter(before, lambda header: ~header["key"].startswith(PREFIX))  # of a letter that came back
    return explained.select("key", "value", f.concat(kept, own).cast(_HEADERS).alias("headers"))


_HEADERS = "array<struct<key: string, value: binary>>"


def _header(name: str, value: Column) -> Column:
    from pyspark.sql import functions as f

    return f.struct(f.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def _explaining(expected: Expectation) -> UserDefinedFunctionLike:
    from pyspark.sql import functions as f

    return f.udf(lambda value: explain(expected, value), "struct<cause: string, stack: string>", useArrow=False)
