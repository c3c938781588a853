"""Raw records as the rows of a source: its fields, and the columns of where each record comes from."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow

from barnabas.spark.decoding import Decoding, as_text, value_reader, without
from barnabas.spark.pipeline.sinks import OFFSET, PARTITION, TIMESTAMP, TOPIC

_ORIGIN = {"topic": TOPIC, "partition": PARTITION, "offset": OFFSET, "timestamp": TIMESTAMP}


@dataclass(frozen=True, slots=True)
class Decoded:
    rows: pyarrow.RecordBatch
    unsure: pyarrow.RecordBatch | None
    """Raw records, if there are any."""


class RowDecoder:
    def __init__(self, decoding: Decoding, key: str | None) -> None:
        """`key` names the column that takes a record's key, as text."""
        self._decoding = decoding
        self._key = key
        self._read_values = value_reader(decoding)

    def decode(self, records: pyarrow.RecordBatch) -> Decoded:
        """The rows of raw records that have at least the columns value, topic, partition, offset and timestamp."""
        fields, unsure = self._read_values(records.column("value"))
        raw = None
        if unsure:
            raw = records.take(pyarrow.array(unsure, pyarrow.int64()))
            records = without(records, unsure)
        arrays = {} if self._key is None else {self._key: as_text(records.column("key"))}
        arrays.update(zip(self._decoding.schema.names, fields.columns))
        arrays.update((name, records.column(column)) for column, name in _ORIGIN.items())
        return Decoded(pyarrow.RecordBatch.from_pydict(arrays), raw)
