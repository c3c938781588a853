"""Three ways to decode Avro values with Confluent's framing in PySpark by hand: Spark's function, and two libraries."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.avro import functions as avro

if TYPE_CHECKING:
    import pyarrow as pa

_PAYLOAD = "substring(value, 6)"
_TYPES = {"long": "BIGINT", "int": "INT", "string": "STRING", "double": "DOUBLE", "float": "FLOAT",
          "boolean": "BOOLEAN"}  # fmt: skip


def from_avro(frame: DataFrame, schema: str, kept: Sequence[str]) -> DataFrame:
    row = avro.from_avro(f.expr(_PAYLOAD), schema).alias("row")
    return frame.select(*kept, row).select(*kept, "row.*")


def by_pyruhvro(frame: DataFrame, schema: str, kept: Sequence[str]) -> DataFrame:
    assert not kept, "the library gives the fields of values alone"

    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyruhvro

        for batch in batches:
            rows = pyruhvro.deserialize_array(batch.column(0).to_pylist(), schema)
            at = rows.schema.get_field_index("at")
            yield rows.set_column(at, "at", rows.column(at).cast(pa.timestamp("us", "UTC")))  # Spark takes no others

    return frame.select(f.expr(_PAYLOAD)).mapInArrow(decoded, _ddl(schema))


def by_fastavro(frame: DataFrame, schema: str, kept: Sequence[str]) -> DataFrame:
    import fastavro

    parsed: Any = fastavro.parse_schema(json.loads(schema))

    @f.udf(returnType=_ddl(schema), useArrow=True)
    def decoded(value: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(value), parsed)

    return frame.select(*kept, decoded(f.expr(_PAYLOAD)).alias("row")).select(*kept, "row.*")


def _ddl(schema: str) -> str:
    """The columns of a flat record."""
    return ", ".join(f"{field['name']} {_type(field['type'])}" for field in json.loads(schema)["fields"])


def _type(type_: Any) -> str:
    if isinstance(type_, list):
        return _type(next(each for each in type_ if each != "null"))
    return "TIMESTAMP" if isinstance(type_, dict) else _TYPES[type_]
