"""Functions from Arrow batch to Arrow batch that pipelines of tests name."""

from __future__ import annotations

import pyarrow
import pyarrow.compute


def dear(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """The rows whose amount is above 1, with a column that doubles it."""
    kept = rows.filter(pyarrow.compute.greater(rows.column("amount"), 1.0))
    return kept.append_column("twice", pyarrow.compute.multiply(kept.column("amount"), 2.0))
