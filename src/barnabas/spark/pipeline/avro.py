"""Avro by fastavro: values into rows, with or without Confluent's framing.

A framed value is a zero byte, the id of the writer's schema in four bytes (big-endian), then the datum. The schema of
that id comes from the registry, which is a directory with files ID.avsc, or a schema registry by its URL; without a
registry every writer is taken to have used the reader's schema.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

from barnabas.records.avro_plans import named_types
from barnabas.spark.pipeline.definition import Framing, Source
from barnabas.spark.pipeline.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import DataType, StructType

_HEAD = 5
_REGISTRY_TIMEOUT_S = 10


def load_schema(source: Source) -> dict[str, Any]:
    """The reader's schema, which has to be a record, as fastavro wants it."""
    given = source.schema or ""
    try:
        return record_schema(given if given.lstrip().startswith("{") else Path(given).read_text())
    except OSError as error:
        raise PipelineError(f"source {source.name!r}: cannot read the Avro schema {given}: {error.strerror}") from None
    except ValueError as error:
        raise PipelineError(f"source {source.name!r}: {error}") from None


def record_schema(text: str) -> dict[str, Any]:
    """The schema of a record, as fastavro wants it; raises ValueError if the text is none."""
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        schema = parse_schema(json.loads(text))
    except (ValueError, SchemaParseException, UnknownType) as error:
        raise ValueError(f"not an Avro schema: {error}") from None
    except KeyError as missing:
        raise ValueError(f"not an Avro schema: it lacks {missing}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("its Avro schema is not a record, so it has no columns")
    return schema


@dataclass
class AvroReader:
    """Reads values, each a whole datum. It travels to the tasks; schemas that it has looked up stay with each."""

    schema: dict[str, Any]
    framing: Framing
    registry: str | None
    _writers: dict[int, Any] = field(default_factory=dict)

    def read(self, value: bytes) -> dict[str, Any]:
        """The datum as a dict; an error of any kind says that the value is not what it should be."""
        from fastavro import schemaless_reader

        writer: Any = self.schema
        if self.framing is Framing.CONFLUENT:
            if len(value) < _HEAD or value[0] != 0:
                raise ValueError("the value does not begin with Confluent's framing, a zero byte and a schema id")
            writer = self.writer_schema(int.from_bytes(value[1:_HEAD], "big"))
            value = value[_HEAD:]
        stream = io.BytesIO(value)
        row = schemaless_reader(stream, writer, self.schema)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left over after the datum")
        assert isinstance(row, dict)
        return row

    def read_column(self, values: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array:
        """Structs of values; null for one that cannot be read, or that the columns cannot take."""
        import pyarrow

        rows = [None if value is None else self._or_none(self.read, value) for value in values.to_pylist()]
        try:
            return pyarrow.array(rows, type=kind)
        except (pyarrow.ArrowException, OverflowError):
            return pyarrow.array([row if _fits(row, kind) else None for row in rows], type=kind)

    def known_writer_schema(self, number: int) -> Any:
        """None if the registry has no schema with that number, or something else under it."""
        return self._or_none(self.writer_schema, number)

    def _or_none(self, function: Callable[[Any], Any], argument: bytes | int) -> Any:
        try:
            return function(argument)
        except OSError:
            raise  # the registry does not answer
        except Exception:  # whatever fastavro makes of bytes or of a schema that are not what they should be
            return None

    def writer_schema(self, number: int) -> Any:
        if self.registry is None:
            return self.schema
        if number not in self._writers:
            from fastavro import parse_schema

            self._writers[number] = parse_schema(json.loads(self._look_up(self.registry, number)))
        return self._writers[number]

    def _look_up(self, registry: str, number: int) -> str:
        """A schema that is not there is a fault of the record; a registry that does not answer is none."""
        try:
            if not registry.startswith(("http://", "https://")):
                return (Path(registry) / f"{number}.avsc").read_text()
            with urlopen(f"{registry.rstrip('/')}/schemas/ids/{number}", timeout=_REGISTRY_TIMEOUT_S) as answer:
                return str(json.load(answer)["schema"])
        except FileNotFoundError:
            pass
        except HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
        raise ValueError(f"the registry {registry} has no schema with the id {number}")


def _fits(row: dict[str, Any] | None, kind: pyarrow.DataType) -> bool:
    import pyarrow

    try:
        pyarrow.array([row], type=kind)
    except (pyarrow.ArrowException, OverflowError):
        return False
    return True


def spark_type(schema: Mapping[str, Any]) -> StructType:
    """The columns of a record's schema."""
    return _Columns(named_types(schema)).struct(schema)


class _Columns:
    def __init__(self, types: Mapping[str, Any]) -> None:
        self._types = types
        self._within: list[str] = []
        """The records that are being looked at, from the outside in."""

    def struct(self, schema: Mapping[str, Any]) -> StructType:
        from pyspark.sql.types import StructField, StructType

        if schema["name"] in self._within:
            raise PipelineError(f"no column type in Spark for the Avro type {schema['name']}, which contains itself")
        self._within.append(schema["name"])
        fields = [(each["name"], *self._nullable(each["type"])) for each in schema["fields"]]
        self._within.pop()
        return StructType([StructField(name, kind, nullable) for name, kind, nullable in fields])

    def _nullable(self, schema: Any) -> tuple[DataType, bool]:
        if not isinstance(schema, list):
            return self._type(schema), False
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise PipelineError(f"a union of several types has no column type in Spark: {json.dumps(schema)}")
        return self._type(others[0]), "null" in schema

    def _type(self, schema: Any) -> DataType:
        from pyspark.sql import types

        simple: dict[str, Callable[[], DataType]] = {
            "boolean": types.BooleanType,
            "int": types.IntegerType,
            "long": types.LongType,
            "float": types.FloatType,
            "double": types.DoubleType,
            "bytes": types.BinaryType,
            "fixed": types.BinaryType,
            "string": types.StringType,
            "enum": types.StringType,
            "date": types.DateType,
            "timestamp-millis": types.TimestampType,
            "timestamp-micros": types.TimestampType,
        }
        if isinstance(schema, str):
            if schema in simple:
                return simple[schema]()
            schema = self._types.get(schema, schema)
        if isinstance(schema, Mapping):
            logical, kind = schema.get("logicalType"), schema["type"]
            if logical == "decimal":
                return types.DecimalType(schema["precision"], schema.get("scale", 0))
            if kind == "record":
                return self.struct(schema)
            if kind == "array":
                return types.ArrayType(*self._nullable(schema["items"]))
            if kind == "map":
                return types.MapType(types.StringType(), *self._nullable(schema["values"]))
            if logical in simple or kind in simple:
                return simple[logical if logical in simple else kind]()
        raise PipelineError(f"no column type in Spark for the Avro type {json.dumps(schema)}")
