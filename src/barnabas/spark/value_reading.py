"""Decodes values inside a task into columns: quickly those that are sure, one by one the others, with a reason.

A format has an entry in `_ONE_BY_ONE` below: what can be read of a value, and why the rest cannot. It may have one in
`decoding` too, for values that can be decoded in bulk; those that are left out there come here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow
import pyarrow.compute

from barnabas.client.options import WrongOption
from barnabas.records.value_columns import UnsupportedType
from barnabas.spark.decoding import Decoding, ReadValues, value_reader
from barnabas.spark.lenient.times import find_zone, local_zone

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from barnabas.spark.value_fields import ValueFields

ReadOne: TypeAlias = Callable[[bytes], tuple[Mapping[str, Any], str | None]]
"""The fields that can be read, and the reason why others cannot."""

_SESSION_ZONE = "spark.sql.session.timeZone"
_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")


class ValueReader:
    """Reads batch after batch of values into some of their fields."""

    def __init__(self, fields: ValueFields, names: Sequence[str]) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        chosen = chosen_fields(fields, names)
        zone = fields.zone or _session_zone()
        found = find_zone(zone)
        if found is None:
            raise WrongOption(f"the session's time zone {zone!r} is unknown to Python; give the option timeZone")
        decoding = Decoding(fields.format, chosen.json(), (), zone in _UTC, fields.avro)
        self._names = names
        self._schema = to_arrow_schema(chosen, timezone="UTC")
        self._read_sure = _in_bulk(decoding)
        self._read_one = _ONE_BY_ONE[fields.format](fields, chosen, found)

    def read(self, values: pyarrow.Array) -> tuple[pyarrow.RecordBatch, dict[int, str]]:
        """A row for each value, null where it is null or cannot be read; and by index, why it cannot."""
        rows, unsure = self._read_sure(values)
        reasons: dict[int, str] = {}
        if unsure:
            late: list[Mapping[str, Any]] = []
            for index, value in zip(unsure, values.take(pyarrow.array(unsure, pyarrow.int64())).to_pylist()):
                found, reason = ({}, None) if value is None else self._read_one(value)
                late.append(found)
                if reason is not None:
                    reasons[index] = reason
            rows = self._merged(rows, unsure, late, len(values))
        return rows.select(self._names), reasons

    def _merged(
        self, rows: pyarrow.RecordBatch, unsure: list[int], late: list[Mapping[str, Any]], count: int
    ) -> pyarrow.RecordBatch:
        """Rows in the order of the values; those of the unsure ones come from `late`."""
        if not self._schema:
            return rows
        added = pyarrow.array(late, pyarrow.struct(list(self._schema)))
        if not len(rows):
            return pyarrow.RecordBatch.from_struct_array(added)
        left_out = set(unsure)
        sure = [index for index in range(count) if index not in left_out]
        order = pyarrow.compute.sort_indices(pyarrow.array(sure + unsure, pyarrow.int64()))
        both = pyarrow.Table.from_batches([rows, pyarrow.RecordBatch.from_struct_array(added)])
        return both.take(order).combine_chunks().to_batches()[0]


def chosen_fields(fields: ValueFields, names: Sequence[str]) -> StructType:
    """What is decoded for the sake of these fields: only they, but a value of Avro or CSV as a whole."""
    from pyspark.sql.types import StructType

    return StructType([fields.schema[name] for name in names]) if fields.format == "json" else fields.schema


def _session_zone() -> str:
    """Spark sends the session's settings to its tasks. Without one its zone is the machine's."""
    from pyspark import TaskContext

    context = TaskContext.get()
    named = None if context is None else context.getLocalProperty(_SESSION_ZONE)
    return named or local_zone() or "UTC"


def _in_bulk(decoding: Decoding) -> ReadValues:
    try:
        return value_reader(decoding)
    except (UnsupportedType, KeyError):
        nothing = pyarrow.RecordBatch.from_pylist([], schema=decoding.schema)
        return lambda values: (nothing, list(range(len(values))))


def _one_json(fields: ValueFields, chosen: StructType, zone: tzinfo) -> ReadOne:
    from barnabas.spark.lenient.json_values import LenientJson

    return LenientJson(chosen, zone).read


def _one_csv(fields: ValueFields, chosen: StructType, zone: tzinfo) -> ReadOne:
    from barnabas.spark.lenient.csv_values import LenientCsv

    return LenientCsv(chosen, zone).read


def _one_avro(fields: ValueFields, chosen: StructType, zone: tzinfo) -> ReadOne:
    """Neither decoder could read it, so this finds out why."""
    import json

    from barnabas.spark.pipeline.avro import AvroReader
    from barnabas.spark.pipeline.definition import Framing

    assert fields.avro is not None
    reader = AvroReader(json.loads(fields.avro.schema), Framing(fields.avro.framing), fields.avro.registry)

    def read(value: bytes) -> tuple[Mapping[str, Any], str]:
        try:
            reader.read(value)
        except OSError:
            raise  # the registry does not answer
        except Exception as problem:  # whatever fastavro makes of bytes that are not what they should be
            return {}, f"not Avro of this schema: {problem or type(problem).__name__}"
        return {}, "a field is out of the range of its column"

    return read


_ONE_BY_ONE: Mapping[str, Callable[[ValueFields, StructType, tzinfo], ReadOne]] = {
    "json": _one_json,
    "csv": _one_csv,
    "avro": _one_avro,
}
