"""Functions from Arrow batch to Arrow batch that pipelines of tests name."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pyarrow
import pyarrow.compute


def dear(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """The rows whose amount is above 1, with a column that doubles it."""
    kept = rows.filter(pyarrow.compute.greater(rows.column("amount"), 1.0))
    return kept.append_column("twice", pyarrow.compute.multiply(kept.column("amount"), 2.0))


def doubled(orders: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Orders in large letters at twice the amount, but for every tenth."""
    tenths = pyarrow.compute.multiply(pyarrow.compute.divide(orders.column("id"), 10), 10)
    kept = orders.filter(pyarrow.compute.not_equal(orders.column("id"), tenths))
    for name, column in (
        ("customer", pyarrow.compute.utf8_upper(kept.column("customer"))),
        ("amount", pyarrow.compute.multiply(kept.column("amount"), 2.0)),
    ):
        kept = kept.set_column(kept.schema.get_field_index(name), name, column)
    return kept


def doubled_records(orders: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """The same orders as records of a topic: JSON, by customer."""
    rows = doubled(orders).select(["id", "customer", "amount"]).to_pylist()
    return pyarrow.RecordBatch.from_pydict(
        {"key": [row["customer"].encode() for row in rows], "value": [json.dumps(row).encode() for row in rows]},
        schema=pyarrow.schema([("key", pyarrow.binary()), ("value", pyarrow.binary())]),
    )


def without_origin(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """The rows with their own columns only."""
    return rows.select([name for name in rows.schema.names if not name.startswith("_")])


def twice(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Each row once as it is, and once after it with a name that says so."""
    again = [index for index in range(len(rows)) for _ in range(2)]
    doubled = rows.take(pyarrow.array(again, pyarrow.int64()))
    marks = pyarrow.array(["", " again"] * len(rows), pyarrow.string())
    name = pyarrow.compute.binary_join_element_wise(doubled.column("name"), marks, "")
    return doubled.set_column(doubled.schema.get_field_index("name"), "name", name)


def as_records(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Records with a header that says where each comes from. Where a text is the path of a file that is not there, make
    it, and kill the process: the next attempt goes on."""
    text = rows.column("text")
    for path in text.filter(pyarrow.compute.starts_with(text, "/").fill_null(False)).to_pylist():
        if not Path(path).exists():
            Path(path).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    at = pyarrow.compute.binary_join_element_wise(
        rows.column("_partition").cast(pyarrow.string()), rows.column("_offset").cast(pyarrow.string()), "/"
    )
    pair = pyarrow.StructArray.from_arrays(
        [pyarrow.repeat("at", len(rows)), at.cast(pyarrow.binary())], names=["key", "value"]
    )
    headers = pyarrow.ListArray.from_arrays(pyarrow.array(range(len(rows) + 1), pyarrow.int32()), pair)
    columns = {"key": rows.column("key"), "value": text, "headers": headers, "partition": rows.column("part")}
    return pyarrow.RecordBatch.from_pydict(columns)
