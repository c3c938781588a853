"""What a reader hands to Spark where tasks decode values: a struct of fields, and the raw value of what is unsure.

parsed   the fields of the schema; null where the value is unsure
value    null where it is not
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.compute

from barnabas.spark.decoding import Decoding, value_reader
from barnabas.spark.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PARSED = "parsed"


def decoded_schema(columns: Sequence[str], decoding: Decoding) -> StructType:
    """Of the rows, in Spark."""
    import json

    from pyspark.sql.types import StructType

    from barnabas.spark.schema import spark_schema

    return spark_schema(columns).add(PARSED, StructType.fromJson(json.loads(decoding.fields)))


def decode_batches(
    batches: Iterator[pyarrow.RecordBatch], columns: Sequence[str], decoding: Decoding
) -> Iterator[pyarrow.RecordBatch]:
    read = value_reader(decoding)
    kind = pyarrow.struct(list(decoding.schema))
    schema = pyarrow.schema([*arrow_schema(columns), pyarrow.field(PARSED, kind)])
    at = list(columns).index("value")
    for batch in batches:
        fields, unsure = read(batch.column(at))
        parsed = pyarrow.StructArray.from_arrays(fields.columns, fields=list(kind))
        rows = len(batch)
        values = pyarrow.nulls(rows, pyarrow.binary())
        if unsure:
            is_unsure = pyarrow.compute.is_in(
                pyarrow.array(range(rows), pyarrow.int64()), value_set=pyarrow.array(unsure, pyarrow.int64())
            )
            # A row of the struct for each sure value in turn, null for the others.
            sure_before = pyarrow.compute.cumulative_sum(pyarrow.compute.invert(is_unsure).cast(pyarrow.int64()))
            index = pyarrow.compute.if_else(is_unsure, None, pyarrow.compute.subtract(sure_before, 1))
            parsed = parsed.take(index)
            values = pyarrow.compute.if_else(is_unsure, batch.column(at), None)
        arrays = [values if index == at else column for index, column in enumerate(batch.columns)]
        yield pyarrow.RecordBatch.from_arrays([*arrays, parsed], schema=schema)
