"""Columns of a DataFrame are checked before a write, and its rows go to their topics in order."""

from __future__ import annotations

import pyarrow
import pytest
from pyspark.sql import types

from barnabas.spark.row_batches import WrongColumns, by_topic, check_columns

KINDS: dict[str, types.DataType] = {
    "binary": types.BinaryType(),
    "string": types.StringType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "timestamp": types.TimestampType(),
    "map": types.MapType(types.StringType(), types.BinaryType()),
    "headers": types.ArrayType(types.StructType().add("key", "string").add("value", "binary")),
}


def schema(**columns: str) -> types.StructType:
    return types.StructType([types.StructField(name, KINDS[kind]) for name, kind in columns.items()])


def test_what_was_read_from_a_topic_can_be_written_as_it_is() -> None:
    read = schema(key="binary", value="binary", topic="string", partition="int", offset="bigint", timestamp="timestamp")
    check_columns(read.add("headers", KINDS["headers"]), None)
    check_columns(schema(value="string"), "orders")


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"id": "bigint", "name": "string"}, "t", "there is no column 'value', but 'id', 'name'"),
        ({"value": "string"}, None, "set the option topic, or add a column 'topic'"),
        ({"value": "int"}, "t", "column 'value' is of type int; it must be string or binary, so cast it"),
        ({"value": "string", "key": "bigint"}, "t", "column 'key' is of type bigint; it must be string or binary"),
        ({"value": "string", "topic": "binary"}, None, "column 'topic' is of type binary; it must be string"),
        ({"value": "string", "partition": "bigint"}, "t", "column 'partition' is of type bigint; it must be int"),
        ({"value": "string", "headers": "map"}, "t", "column 'headers' is of type map<string,binary>"),
    ],
)
def test_columns_that_cannot_be_written_are_named(columns: dict[str, str], topic: str | None, message: str) -> None:
    with pytest.raises(WrongColumns, match=message):
        check_columns(schema(**columns), topic)


def rows(**columns: list[object]) -> pyarrow.RecordBatch:
    return pyarrow.RecordBatch.from_pydict(columns)


def test_rows_go_to_the_topics_that_they_name_in_their_order() -> None:
    batch = rows(topic=["b", "a", "b"], value=["1", "2", "3"], offset=[7, 8, 9], partition=[0, None, 1])
    found = {name: part.to_pydict() for name, part in by_topic(batch, None)}
    assert found == {
        "b": {"value": ["1", "3"], "partition": [0, 1]},
        "a": {"value": ["2"], "partition": [None]},
    }


def test_the_option_goes_before_the_column() -> None:
    batch = rows(topic=["b", None], value=["1", "2"])
    assert [(name, part.to_pydict()) for name, part in by_topic(batch, "all")] == [("all", {"value": ["1", "2"]})]


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(WrongColumns, match="a row whose column 'topic' is null"):
        list(by_topic(rows(topic=["b", None], value=["1", "2"]), None))
