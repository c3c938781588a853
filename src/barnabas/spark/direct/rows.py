"""Rows of a view that the direct path can load: what the driver knows of them before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from barnabas.spark.decoding import Decoding
    from barnabas.spark.direct.task import ArrowFunction
    from barnabas.spark.direct.unsure import UnsureRecords
    from barnabas.spark.options import ReadOptions


@dataclass(frozen=True)
class Reading:
    """How tasks read records and decode them; is pickled for them."""

    options: ReadOptions
    topic_ids: Mapping[str, bytes]
    columns: Sequence[str]
    """Of the raw records."""
    decoding: Decoding
    key: str | None
    """The column for the record's key, if there is one."""
    functions: Sequence[ArrowFunction] = ()


@dataclass(frozen=True)
class DirectRows:
    reading: Reading
    schema: StructType
    """Of the rows."""
    decode: Callable[[DataFrame], DataFrame]
    """The rows of raw records by way of Spark, for those that the tasks are unsure of."""
    max_records_per_task: int
    source: str
    unsure: UnsureRecords | None = None
    """Where the records are kept that the tasks are unsure of, if somebody looks for bad ones."""
