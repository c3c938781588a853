"""Which path a sink's rows take, and the reason that `pipeline plan` gives."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType, TimestampType

from barnabas.spark.database.sink import DatabaseSettings, DatabaseSink, WriteMode
from barnabas.spark.decoding import Decoding
from barnabas.spark.lake.formats import FileFormat
from barnabas.spark.lake.local_files import LocalFiles
from barnabas.spark.lake.sink import LakeSettings, LakeSink
from barnabas.spark.pipeline.avro import AvroReader, load_schema, spark_type
from barnabas.spark.pipeline.definition import (
    Cluster,
    Format,
    Pipeline,
    SinkDefinition,
    SinkHead,
    Source,
    Transform,
)
from barnabas.spark.pipeline.delta_sink import DeltaSettings
from barnabas.spark.pipeline.formats import Decoder
from barnabas.spark.pipeline.paths import Choice, Path, choose_path, decoding_of, direct_chain, is_direct_by_design
from barnabas.spark.pipeline.sinks import ORIGIN_COLUMNS, SinkContext
from barnabas.spark.pipeline.topic_sink import TopicSettings, ValueFormat

DDL = "id BIGINT, at TIMESTAMP"
SCHEMA = StructType().add("id", LongType(), nullable=False).add("at", TimestampType())
CLICKS = Source("clicks", ("t",), schema=DDL)


def session(**settings: str) -> Any:
    known = {"spark.sql.session.timeZone": "UTC", "spark.sql.legacy.timeParserPolicy": "CORRECTED"}
    return SimpleNamespace(conf=SimpleNamespace(get={**known, **settings}.__getitem__))


@pytest.fixture(autouse=True)
def _without_a_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake's path is taken as it is; what Hadoop makes of it is not asked."""

    def open_filesystem(spark: Any, path: str) -> Any:
        return LocalFiles(path) if path.startswith("/") else SimpleNamespace(root=path)

    monkeypatch.setattr("barnabas.spark.lake.sink.open_filesystem", open_filesystem)


def choice(
    source: Source = CLICKS,
    transforms: tuple[Transform, ...] = (),
    view: str = "clicks",
    schema: StructType = SCHEMA,
    avro: AvroReader | None = None,
    spark: Any = None,
    sink: Any = None,
    **settings: Any,
) -> Choice:
    lake = LakeSettings(**{"path": "/tmp/lake", **settings})
    definition = SinkDefinition(SinkHead("lake", "lake", view), lake)
    pipeline = Pipeline("p", Cluster("h:1"), (source,), (definition,), transforms=transforms)
    decoders = {source.name: Decoder(source, schema, avro)}
    columns = [*schema.fieldNames(), *ORIGIN_COLUMNS]
    return choose_path(pipeline, definition, sink or LakeSink("lake", lake, {}), columns, decoders, spark or session())


def csv(options: dict[str, str]) -> Source:
    return Source("clicks", ("t",), schema=DDL, format=Format.CSV, options=options)


@pytest.mark.parametrize(
    ("kind", "settings", "source", "expected"),
    [
        ("lake", LakeSettings("/lake"), CLICKS, True),
        ("lake", LakeSettings("/lake", format=FileFormat.ORC), CLICKS, False),
        ("lake", LakeSettings("/lake"), csv({"sep": "|"}), True),
        ("lake", LakeSettings("/lake"), csv({"sep": "|", "quote": "'"}), False),
        ("database", DatabaseSettings(url="shop.db", table="t"), CLICKS, True),
        ("topic", TopicSettings("t", format=ValueFormat.COLUMNS), CLICKS, True),
        ("topic", TopicSettings("t"), CLICKS, False),
        ("delta", DeltaSettings("/table"), CLICKS, False),
    ],
)
def test_what_is_announced_before_spark_starts(kind: str, settings: Any, source: Source, expected: bool) -> None:
    pipeline = Pipeline("p", Cluster("h:1"), (source,), (SinkDefinition(SinkHead("s", kind, "clicks"), settings),))
    assert is_direct_by_design(pipeline) is expected


def test_a_source_goes_directly_into_a_parquet_lake() -> None:
    assert choice().path is Path.DIRECT


def test_arrow_functions_keep_to_the_direct_path() -> None:
    transforms = (Transform("a", arrow="m.f", from_="clicks"), Transform("b", arrow="m.g", from_="a"))
    assert choice(transforms=transforms, view="b").path is Path.DIRECT
    pipeline = Pipeline(
        "p", Cluster("h:1"), (CLICKS,), (SinkDefinition(SinkHead("l", "lake", "b"), None),), transforms=transforms
    )
    assert direct_chain(pipeline, "b") == (CLICKS, list(transforms))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"transforms": (Transform("v", sql="SELECT * FROM clicks"),), "view": "v"}, "view 'v' is made by sql"),
        ({"transforms": (Transform("v", python="m.f", from_="clicks"),), "view": "v"}, "view 'v' is made by python"),
        ({"source": Source("clicks", ("t",), schema=DDL, options={"mode": "x"})}, "has options of Spark's reader"),
        ({"source": Source("clicks", ("t",), schema=DDL, options={"sep": ";"})}, "has options of Spark's reader"),
        ({"source": csv({"sep": "||"})}, "has options of Spark's reader"),
        ({"source": csv({"sep": ";", "quote": "'"})}, "has options of Spark's reader"),
        ({"schema": StructType([*SCHEMA, StructField("b", BinaryType())])}, "column 'b' is binary"),
        ({"format": FileFormat.ORC}, "orc files are written by Spark"),
        ({"path": "s3a://bucket/lake"}, "files on s3a are written by Spark"),
        ({"options": {"parquet.block.size": "1"}}, "'parquet.block.size' is for Spark's writer"),
        ({"spark": session(**{"spark.sql.legacy.timeParserPolicy": "legacy"})}, "is LEGACY"),
        ({"sink": object()}, "sinks of kind lake are written by Spark"),
    ],
)  # fmt: skip
def test_what_only_spark_can_do_takes_its_path(changes: dict[str, Any], reason: str) -> None:
    found = choice(**changes)
    assert found.path is Path.SPARK
    assert reason in found.reason


@pytest.mark.parametrize(("zone", "is_utc"), [("UTC", True), ("Europe/Berlin", False)])
def test_times_without_a_zone_are_in_that_of_the_session(zone: str, is_utc: bool) -> None:
    decoding = decoding_of(session(**{"spark.sql.session.timeZone": zone}), Decoder(CLICKS, SCHEMA, None))
    assert (decoding.is_utc, decoding.required) == (is_utc, ("id",))
    assert decoding.schema.names == ["id", "at"]


def test_a_text_source_has_its_one_column() -> None:
    source = Source("clicks", ("t",), format=Format.TEXT)
    assert choice(source=source, schema=StructType().add("value", StringType())).path is Path.DIRECT


@pytest.mark.parametrize("options", [{}, {"sep": ";"}, {"sep": "\t"}])
def test_a_csv_source_goes_directly_with_its_separator(options: dict[str, str]) -> None:
    source = csv(options)
    assert choice(source=source).path is Path.DIRECT
    decoding = decoding_of(session(), Decoder(source, SCHEMA, None))
    assert decoding.separator == options.get("sep", ",")
    assert Decoding.load(decoding.dump()) == decoding


def test_a_csv_source_with_nested_columns_takes_the_path_of_spark() -> None:
    schema = StructType([*SCHEMA, StructField("a", ArrayType(StringType()))])
    assert "column 'a' is list" in choice(source=csv({}), schema=schema).reason


def test_an_avro_source_goes_directly_with_its_schema_framing_and_registry() -> None:
    text = '{"type": "record", "name": "Click", "fields": [{"name": "id", "type": "long"}]}'
    source = Source("clicks", ("t",), format=Format.AVRO, schema=text, registry="/schemas")
    schema = load_schema(source)
    reader = AvroReader(schema, source.framing, source.registry)
    assert choice(source=source, schema=spark_type(schema), avro=reader).path is Path.DIRECT
    avro = decoding_of(session(), Decoder(source, spark_type(schema), reader)).avro
    assert avro is not None
    assert (json.loads(avro.schema), avro.framing, avro.registry) == (schema, "confluent", "/schemas")


def test_a_source_goes_directly_into_a_table() -> None:
    assert choice(sink=table(), view="clicks").path is Path.DIRECT
    assert choice(sink=table(mode=WriteMode.UPSERT, key=("id",))).path is Path.DIRECT


def test_an_upsert_without_the_origin_of_its_rows_takes_the_path_of_spark() -> None:
    upsert = table(mode=WriteMode.UPSERT, key=("id",))
    assert upsert.direct_obstacle(session(), ["id", "_topic", "_partition"]) == (
        "an upsert finds the last row of a key by _topic, _partition, _offset, which the rows lack"
    )
    assert table().direct_obstacle(session(), ["id"]) is None


def table(**settings: Any) -> DatabaseSink:
    return DatabaseSink(DatabaseSettings("shop.db", "orders", **settings), SinkContext("p", "table", {}))
