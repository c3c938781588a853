"""Decodes Avro values inside a task: by the compiled decoder, and by fastavro where that one is unsure.

fastavro takes what the compiled decoder does not cover, such as recursive types of a writer or wide decimals. What it
rejects as well is returned as unsure, and the pipeline's decoder says what becomes of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow
import pyarrow.compute

from barnabas.records.avro_columns import AvroColumnReader
from barnabas.spark.pipeline.avro import AvroReader
from barnabas.spark.pipeline.definition import Framing


class AvroValues:
    def __init__(self, schema: pyarrow.Schema, required: Sequence[str], by_fastavro: AvroReader) -> None:
        self._required = required
        self._kind = pyarrow.struct(list(schema))
        self._by_fastavro = by_fastavro
        self._compiled = AvroColumnReader(
            schema,
            by_fastavro.schema,
            required,
            is_framed=by_fastavro.framing is Framing.CONFLUENT,
            find_writer=None if by_fastavro.registry is None else by_fastavro.known_writer_schema,
        )

    def read(self, values: pyarrow.Array) -> tuple[pyarrow.RecordBatch, list[int]]:
        """The rows that can be read, in the order of the values, and the indexes of the other values."""
        found = self._compiled.read(values)
        if not found.unsure:
            return found.rows, []
        structs = self._by_fastavro.read_column(values.take(pyarrow.array(found.unsure, pyarrow.int64())), self._kind)
        is_good = structs.is_valid()
        for name in self._required:
            is_good = pyarrow.compute.and_(is_good, structs.field(name).is_valid())
        by_fastavro = [index for index, good in zip(found.unsure, is_good.to_pylist()) if good]
        if not by_fastavro:
            return found.rows, found.unsure
        left_out = set(found.unsure)
        compiled = [index for index in range(len(values)) if index not in left_out]
        order = pyarrow.compute.sort_indices(pyarrow.array(compiled + by_fastavro, pyarrow.int64()))
        late = pyarrow.RecordBatch.from_struct_array(structs.filter(is_good))
        rows = pyarrow.Table.from_batches([found.rows, late]).take(order).combine_chunks().to_batches()
        return rows[0], sorted(left_out.difference(by_fastavro))
