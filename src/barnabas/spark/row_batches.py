"""Rows on their way into topics: which columns a DataFrame must have, and its Arrow batches cut by topic.

    value      string or binary; must be there
    key        string or binary
    headers    array<struct<key: string, value: binary>>
    topic      string; must be there unless the option `topic` says where all rows go
    partition  int; null leaves the choice to the key

Any other column is left alone, as Spark's own sink does: what was read from a topic can be written to another as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.client.options import WrongOption

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

TOPIC = "topic"
SENT = ("key", "value", "headers", "partition")
"""Columns that become part of a record."""
_TYPES = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    TOPIC: ("string",),
    "partition": ("int",),
}


class WrongColumns(WrongOption):
    """The DataFrame cannot be written as it is."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise what is wrong with the columns of a DataFrame, before anything is written."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in found:
        raise WrongColumns(
            f"there is no column 'value', but {', '.join(map(repr, found))}; select what to write AS value"
        )
    if topic is None and TOPIC not in found:
        raise WrongColumns("set the option topic, or add a column 'topic' that says where each row goes")
    for name, right in _TYPES.items():
        if name in found and found[name] not in right:
            raise WrongColumns(f"column {name!r} is of type {found[name]}; it must be {' or '.join(right)}, so cast it")


def by_topic(batch: pyarrow.RecordBatch, topic: str | None) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
    """The rows of a batch for each topic, in their order, with the columns that a producer sends."""
    sent = batch.select([name for name in SENT if name in batch.schema.names])
    if topic is not None:
        yield topic, sent
        return
    import pyarrow.compute

    topics = batch.column(TOPIC)
    if topics.null_count:
        raise WrongColumns("there is a row whose column 'topic' is null; fill it, or set the option topic for all rows")
    names = topics.unique().to_pylist()
    for name in names:
        yield name, sent if len(names) == 1 else sent.filter(pyarrow.compute.equal(topics, name))
