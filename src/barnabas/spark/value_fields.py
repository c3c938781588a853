"""The options by which a read decodes values into columns: `value.format`, `value.schema`, `mode` and their like.

A format is an entry in two tables: `_FORMATS` here, for its schema and options, and that of `value_reading`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from barnabas.client.options import WrongOption
from barnabas.spark.decoding import AvroDecoding
from barnabas.spark.lenient.times import find_zone
from barnabas.spark.option_values import Parse, one_of, parse_all, text, wrong
from barnabas.spark.schema import ALL_COLUMNS, CORRUPT

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


class Mode(StrEnum):
    """What becomes of a value that cannot be read."""

    PERMISSIVE = "PERMISSIVE"
    """A row with the fields that can be read, and the reason."""
    DROPMALFORMED = "DROPMALFORMED"
    """No row."""
    FAILFAST = "FAILFAST"
    """The job fails."""


@dataclass(frozen=True)
class ValueFields:
    """What values are, and which fields they have. Goes to the tasks."""

    format: str
    schema: StructType
    """Of all fields, which may be null."""
    mode: Mode
    zone: str | None
    """Of timestamps that name none; None: that of the session."""
    avro: AvroDecoding | None = None


def _zone(option: str, given: str) -> str:
    if find_zone(given) is None:
        raise wrong(option, given, "a time zone such as Europe/Berlin, UTC or +01:00")
    return given


def _ddl(given: Mapping[str, Any]) -> tuple[StructType, None]:
    from barnabas.spark.ddl import parse_ddl

    for option in ("value.framing", "value.registry"):
        if option in given:
            raise WrongOption(f"{option} is for value.format=avro")
    try:
        return parse_ddl(given["value.schema"]), None
    except ValueError as problem:
        raise wrong("value.schema", given["value.schema"], f"Spark's DDL, such as 'id BIGINT': {problem}") from None


def _csv(given: Mapping[str, Any]) -> tuple[StructType, None]:
    from barnabas.spark.lenient.csv_values import READABLE_TYPES

    schema, _ = _ddl(given)
    for each in schema:
        if not isinstance(each.dataType, READABLE_TYPES):
            kind = each.dataType.simpleString()
            raise WrongOption(f"value.schema has the field {each.name!r} of type {kind}; CSV has only simple types")
    return schema, None


def _avro(given: Mapping[str, Any]) -> tuple[StructType, AvroDecoding]:
    from barnabas.spark.pipeline.avro import record_schema, spark_type
    from barnabas.spark.pipeline.errors import PipelineError

    try:
        schema = record_schema(given["value.schema"])
        kind = _nullable(spark_type(schema))
    except (ValueError, PipelineError) as problem:
        raise wrong("value.schema", given["value.schema"], f"the Avro schema of a record as JSON: {problem}") from None
    framing = given.get("value.framing", "confluent")
    return kind, AvroDecoding(json.dumps(schema), framing, given.get("value.registry"))


_FORMATS: Mapping[str, Callable[[Mapping[str, Any]], tuple[StructType, AvroDecoding | None]]] = {
    "json": _ddl,
    "csv": _csv,
    "avro": _avro,
}
VALUE_OPTIONS: Mapping[str, Parse[Any]] = {
    "value.format": one_of({name: name for name in _FORMATS}),
    "value.schema": text,
    "value.framing": one_of({"confluent": "confluent", "none": "none"}),
    "value.registry": text,
    "mode": one_of({mode.value.lower(): mode for mode in Mode}),
    "timeZone": _zone,
}


def parse_value_fields(options: Mapping[str, str]) -> ValueFields | None:
    """None if values are to be left as they are."""
    given = parse_all(options, VALUE_OPTIONS)
    if "value.format" not in given:
        for name in given:
            raise WrongOption(f"{name} is for values that are decoded; give value.format, one of {', '.join(_FORMATS)}")
        return None
    if "value.schema" not in given:
        raise WrongOption(f"value.format={given['value.format']} needs value.schema, the fields of the values")
    schema, avro = _FORMATS[given["value.format"]](given)
    _check_names(schema.fieldNames())
    return ValueFields(given["value.format"], schema, given.get("mode", Mode.PERMISSIVE), given.get("timeZone"), avro)


def _check_names(names: Sequence[str]) -> None:
    """Spark takes names that differ in case only for the same."""
    taken = {name.lower() for name in (*ALL_COLUMNS, CORRUPT)}
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in taken:
            raise WrongOption(
                f"value.schema has the field {name!r}, which is the name of a column of the record; leave it out, name "
                f"`value` in `columns` and take the field from there under another name, such as "
                f"from_json(CAST(value AS STRING), '...').{name} AS value_{name}"
            )
        if name.lower() in seen:
            raise WrongOption(
                f"value.schema has the fields {seen[name.lower()]!r} and {name!r}, which Spark takes for one"
            )
        seen[name.lower()] = name


def _nullable(kind: Any) -> Any:
    """The same type, in which everything may be null."""
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        return types.StructType([types.StructField(each.name, _nullable(each.dataType)) for each in kind])
    if isinstance(kind, types.ArrayType):
        return types.ArrayType(_nullable(kind.elementType))
    if isinstance(kind, types.MapType):
        return types.MapType(kind.keyType, _nullable(kind.valueType))
    found: DataType = kind
    return found
