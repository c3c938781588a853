"""The rows of a read that decodes values: the record's own columns, the fields of the values, and what was wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.compute

from barnabas.spark.schema import ALL_COLUMNS, CORRUPT, spark_schema
from barnabas.spark.value_fields import Mode, ValueFields
from barnabas.spark.value_reading import ValueReader

if TYPE_CHECKING:
    from barnabas.spark.ranges import OffsetRange


class MalformedValue(ValueError):
    """A value that cannot be read, in a read that is to fail then."""


class ColumnDecoder:
    """Makes rows of the chosen columns from batches of raw records of one partition."""

    def __init__(self, fields: ValueFields, columns: Sequence[str], wanted: OffsetRange) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._fields, self._columns, self._wanted = fields, columns, wanted
        self._schema = to_arrow_schema(spark_schema(columns, fields.schema), timezone="UTC")
        self._names = [name for name in columns if name not in (*ALL_COLUMNS, CORRUPT)]
        needed = [name for name in columns if name in ALL_COLUMNS]
        self._decodes = bool(self._names) or CORRUPT in columns or fields.mode is not Mode.PERMISSIVE
        if self._decodes:
            needed.append("value")
        if fields.mode is Mode.FAILFAST:
            needed.append("offset")
        self.raw_columns = tuple(dict.fromkeys(needed))

    def decode(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        if not self._decodes:
            yield from batches
            return
        reader = ValueReader(self._fields, self._names)
        for batch in batches:
            rows, reasons = reader.read(batch.column("value"))
            if reasons and self._fields.mode is Mode.FAILFAST:
                self._fail(batch, reasons)
            found = dict(zip(batch.schema.names, batch.columns)) | dict(zip(rows.schema.names, rows.columns))
            if CORRUPT in self._columns:
                found[CORRUPT] = _texts(reasons, len(batch))
            arrays = [found[name] for name in self._columns]
            decoded = pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)
            if reasons and self._fields.mode is Mode.DROPMALFORMED:
                decoded = decoded.filter(pyarrow.array([index not in reasons for index in range(len(batch))]))
            yield decoded

    def _fail(self, batch: pyarrow.RecordBatch, reasons: dict[int, str]) -> None:
        first = min(reasons)
        offset = batch.column("offset")[first]
        raise MalformedValue(
            f"topic {self._wanted.topic!r}, partition {self._wanted.partition}, offset {offset}: the value cannot be "
            f"read as {self._fields.format}: {reasons[first]} (mode=FAILFAST; with mode=PERMISSIVE it is a row with "
            f"that reason in {CORRUPT}, with mode=DROPMALFORMED it is left out)"
        )


def _texts(reasons: dict[int, str], count: int) -> pyarrow.Array:
    if not reasons:
        return pyarrow.nulls(count, pyarrow.string())
    return pyarrow.array([reasons.get(index) for index in range(count)], pyarrow.string())
