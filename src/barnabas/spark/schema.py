"""The columns of a topic: their types in Spark, and the Arrow schema that Spark wants to the letter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.client.options import WrongOption
from barnabas.spark.option_values import check_known

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

PLAIN_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
ALL_COLUMNS = (*PLAIN_COLUMNS, HEADERS)
CORRUPT = "_corrupt_record"
"""Where values are decoded: why one cannot be read."""


def known_columns(fields: StructType | None = None) -> tuple[str, ...]:
    """The columns that there are: those of records, and where values are decoded, their fields."""
    return ALL_COLUMNS if fields is None else (*ALL_COLUMNS, *fields.fieldNames(), CORRUPT)


def spark_schema(columns: Sequence[str], fields: StructType | None = None) -> StructType:
    """The schema of these columns, in their order; everything may be null, as with Spark's own source."""
    from pyspark.sql import types

    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    kinds: dict[str, types.DataType] = {
        "key": types.BinaryType(),
        "value": types.BinaryType(),
        "topic": types.StringType(),
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestampType(),
        "timestampType": types.IntegerType(),
        "headers": types.ArrayType(header),
    }
    if fields is not None:
        kinds |= {field.name: field.dataType for field in fields} | {CORRUPT: types.StringType()}
    return types.StructType([types.StructField(name, kinds[name]) for name in columns])


def chosen_columns(
    schema: StructType, named: Sequence[str] | None = None, fields: StructType | None = None
) -> tuple[str, ...]:
    """The columns of a schema, which may be the user's: some of ours, with their types; `columns` names the same."""
    known = known_columns(fields)
    check_known(schema.fieldNames(), known, "column")
    right = {name.lower(): name for name in known}
    for given, ours in zip(schema, spark_schema([right[name.lower()] for name in schema.fieldNames()], fields)):
        if given.name != ours.name or given.dataType != ours.dataType or not given.nullable:
            raise WrongOption(
                f"the schema has {given.simpleString()}{'' if given.nullable else ' not null'} where the source has "
                f"{ours.simpleString()}, which may be null; convert it in the DataFrame"
            )
    if named is not None and list(named) != schema.fieldNames():
        raise WrongOption(f"columns={','.join(named)} and a schema of other columns exclude each other; give one")
    return tuple(schema.fieldNames())


def arrow_schema(columns: Sequence[str]) -> pyarrow.Schema:
    """What `spark_schema` is in Arrow, as Spark translates it."""
    import pyarrow

    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    kinds = {
        "key": pyarrow.binary(),
        "value": pyarrow.binary(),
        "topic": pyarrow.string(),
        "partition": pyarrow.int32(),
        "offset": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
        "timestampType": pyarrow.int32(),
        "headers": pyarrow.list_(pyarrow.field("element", header)),
    }
    return pyarrow.schema([(name, kinds[name]) for name in columns])
