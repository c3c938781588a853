"""Decodes the values of records into columns, inside a task.

A value that cannot be decoded with certainty is *unsure*: it is left to Spark and to the decoder that pipelines have
always had. So whatever is decoded here gives the same rows, and the same records are rejected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import pyarrow

    from barnabas.records.csv_columns import CsvReader
    from barnabas.records.json_columns import JsonReader


@dataclass(frozen=True)
class AvroDecoding:
    """What Avro values are, besides their columns."""

    schema: str
    """The reader's, as JSON of what fastavro has parsed."""
    framing: str
    registry: str | None


@dataclass(frozen=True)
class Decoding:
    """What values are; goes to the tasks, also as text."""

    format: str
    fields: str
    """The columns as Spark's JSON of a schema."""
    required: tuple[str, ...]
    """Columns that are never null."""
    is_utc: bool
    """Timestamps without a zone are in UTC."""
    avro: AvroDecoding | None = None
    separator: str = ","
    """Between the tokens of CSV."""

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Self:
        found = json.loads(text)
        avro = None if found["avro"] is None else AvroDecoding(**found["avro"])
        return cls(**{**found, "required": tuple(found["required"]), "avro": avro})

    @cached_property
    def schema(self) -> pyarrow.Schema:
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructType

        return to_arrow_schema(StructType.fromJson(json.loads(self.fields)), timezone="UTC")


ReadValues = Callable[["pyarrow.Array"], "tuple[pyarrow.RecordBatch, list[int]]"]
"""The fields of the values that are sure, and the indexes of those that are not."""


def value_reader(decoding: Decoding) -> ReadValues:
    """Raises UnsupportedType for a schema of which all values would be unsure."""
    return _READERS[decoding.format](decoding)


def without(array: pyarrow.Array | pyarrow.RecordBatch, indexes: list[int]) -> pyarrow.Array | pyarrow.RecordBatch:
    """All rows but some."""
    import pyarrow
    import pyarrow.compute

    everything = pyarrow.array(range(len(array)), pyarrow.int64())
    left_out = pyarrow.array(indexes, pyarrow.int64())
    return array.filter(pyarrow.compute.invert(pyarrow.compute.is_in(everything, value_set=left_out)))


def as_text(values: pyarrow.Array) -> pyarrow.Array:
    """Bytes as text without a look at them: so Spark casts."""
    import pyarrow

    return pyarrow.Array.from_buffers(pyarrow.string(), len(values), values.buffers(), values.null_count, values.offset)


def _json(decoding: Decoding) -> ReadValues:
    from barnabas.records.json_columns import JsonReader

    return _pairs(JsonReader(decoding.schema, decoding.required, is_utc=decoding.is_utc))


def _csv(decoding: Decoding) -> ReadValues:
    from barnabas.records.csv_columns import CsvReader

    return _pairs(CsvReader(decoding.schema, decoding.required, separator=decoding.separator, is_utc=decoding.is_utc))


def _pairs(reader: JsonReader | CsvReader) -> ReadValues:
    def read(values: pyarrow.Array) -> tuple[pyarrow.RecordBatch, list[int]]:
        found = reader.read(values)
        return found.rows, found.unsure

    return read


def _avro(decoding: Decoding) -> ReadValues:
    from barnabas.spark.avro_values import AvroValues
    from barnabas.spark.pipeline.avro import AvroReader
    from barnabas.spark.pipeline.definition import Framing

    assert decoding.avro is not None
    given = decoding.avro
    by_fastavro = AvroReader(json.loads(given.schema), Framing(given.framing), given.registry)
    return AvroValues(decoding.schema, decoding.required, by_fastavro).read


def _one_text(decoding: Decoding) -> ReadValues:
    import pyarrow

    def read(values: pyarrow.Array) -> tuple[pyarrow.RecordBatch, list[int]]:
        unsure: list[int] = []
        try:
            texts = values.cast(pyarrow.string())
        except pyarrow.ArrowInvalid:
            unsure = [index for index, value in enumerate(values) if not _is_text(value.as_py())]
            texts = as_text(without(values, unsure))
        return pyarrow.RecordBatch.from_arrays([texts], schema=decoding.schema), unsure

    return read


def _one_binary(decoding: Decoding) -> ReadValues:
    import pyarrow

    return lambda values: (pyarrow.RecordBatch.from_arrays([values], schema=decoding.schema), [])


_READERS: Mapping[str, Callable[[Decoding], ReadValues]] = {
    "json": _json,
    "csv": _csv,
    "avro": _avro,
    "text": _one_text,
    "bytes": _one_binary,
}


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False
