"""Functions from Arrow batch to Arrow batch that pipelines of tests name."""

from __future__ import annotations

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
