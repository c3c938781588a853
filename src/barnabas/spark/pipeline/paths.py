"""Which path the rows of a sink take, and why.

    direct   tasks fetch, decode and write with Arrow; Spark plans, distributes and retries, and no row enters the JVM
    spark    rows are columns of a DataFrame: for SQL, windows, joins, and for what the direct path cannot do

Both give the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from barnabas.spark.decoding import AvroDecoding, Decoding, value_reader
from barnabas.spark.pipeline.definition import Format, Pipeline, SinkDefinition, Source, Transform
from barnabas.spark.pipeline.sinks import DirectSink, Sink, sink_kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.spark.pipeline.formats import Decoder

_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")
_TIME_ZONE, _TIME_PARSER = "spark.sql.session.timeZone", "spark.sql.legacy.timeParserPolicy"


class Path(StrEnum):
    DIRECT = "direct"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Choice:
    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class SinkFeed:
    """How a sink of a run gets its rows, for people."""

    sink: str
    view: str
    fed_by: str
    """offsets, tasks, or a query with state."""
    path: Path
    reason: str


OF_BAD_RECORDS = Choice(Path.SPARK, "bad records are sent by Spark")


def is_direct_by_design(pipeline: Pipeline) -> bool:
    """Whether neither views nor sinks need Spark's engine; a file system or the type of a column may still need it."""
    return (
        all(each.arrow is not None for each in pipeline.transforms)
        and not any(each.is_table or _options_for_spark(each) for each in pipeline.sources)
        and all(sink_kind(each.head.kind).may_be_direct(each.settings) for each in pipeline.sinks)
    )


def choose_path(
    pipeline: Pipeline,
    definition: SinkDefinition,
    sink: Sink,
    columns: Collection[str],
    decoders: dict[str, Decoder],
    spark: SparkSession,
) -> Choice:
    """The direct path, unless something speaks against it; `columns` are those of the rows."""
    obstacle = _obstacle(pipeline, definition, sink, columns, decoders, spark)
    if obstacle is not None:
        return Choice(Path.SPARK, obstacle)
    return Choice(Path.DIRECT, "tasks decode and write with Arrow")


def direct_chain(pipeline: Pipeline, view: str) -> tuple[Source, list[Transform]]:
    """The one source behind a view, and the Arrow functions between them, in their order."""
    views = {each.name: each for each in pipeline.views}
    transforms: list[Transform] = []
    while isinstance(found := views[view], Transform):
        assert found.from_ is not None
        transforms.insert(0, found)
        view = found.from_
    return found, transforms


def decoding_of(spark: SparkSession, decoder: Decoder) -> Decoding:
    """What tasks have to know to decode the values of a source."""
    reader = decoder.avro
    avro = None if reader is None else AvroDecoding(json.dumps(reader.schema), reader.framing.value, reader.registry)
    return Decoding(
        format=decoder.source.format.value,
        fields=decoder.schema.json(),
        required=tuple(each.name for each in decoder.schema if not each.nullable),
        is_utc=spark.conf.get(_TIME_ZONE) in _UTC,
        avro=avro,
        separator=decoder.source.options.get("sep", ","),
    )


def _obstacle(
    pipeline: Pipeline,
    definition: SinkDefinition,
    sink: Sink,
    columns: Collection[str],
    decoders: dict[str, Decoder],
    spark: SparkSession,
) -> str | None:
    for each in pipeline.views_behind(definition.head.from_):
        if isinstance(each, Transform) and each.arrow is None:
            kind = next(kind for kind in ("sql", "python", "window") if getattr(each, kind) is not None)
            return f"view {each.name!r} is made by {kind}"
    source, _ = direct_chain(pipeline, definition.head.from_)
    if source.is_table:
        return f"source {source.name!r} is a table"
    if not isinstance(sink, DirectSink):
        return f"sinks of kind {definition.head.kind} are written by Spark"
    return undecodable(spark, decoders[source.name]) or sink.direct_obstacle(spark, columns)


def _options_for_spark(source: Source) -> list[str]:
    """Those that only Spark's readers know."""
    from barnabas.records.csv_columns import SEPARATORS

    is_known = source.format is Format.CSV and source.options.get("sep") in SEPARATORS
    return [name for name in source.options if not (is_known and name == "sep")]


def undecodable(spark: SparkSession, decoder: Decoder) -> str | None:
    """Why tasks cannot decode the values of a source, if they cannot."""
    from barnabas.records.value_columns import UnsupportedType

    source = decoder.source
    if _options_for_spark(source):
        return f"source {source.name!r} has options of Spark's reader"
    if str(spark.conf.get(_TIME_PARSER)).upper() == "LEGACY":
        return f"{_TIME_PARSER} is LEGACY"
    try:
        value_reader(decoding_of(spark, decoder))
    except UnsupportedType as problem:
        return f"source {source.name!r}: {problem}"
    return None
