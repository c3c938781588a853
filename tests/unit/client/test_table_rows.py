"""Which Arrow tables a producer takes, and what it says about the others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from barnabas.client.produce.table_rows import TableRows, rows_of_table
from barnabas.records.reader import records_of
from barnabas.records.record import Record

pyarrow = pytest.importorskip("pyarrow")
NOW_MS = 1_700_000_000_000
PAIRS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))


def records(part: TableRows) -> list[Record]:
    batch, end = part.rows.cut(None, 0, part.rows.count, 1 << 20)
    assert end == part.rows.count
    return records_of(memoryview(batch))


def only(table: Any) -> TableRows:
    (part,) = rows_of_table(table, NOW_MS)
    return part


def test_all_columns_become_what_they_are_called() -> None:
    table = pyarrow.table(
        {
            "partition": pyarrow.array([1, None], pyarrow.int64()),
            "timestamp": pyarrow.array([datetime(2024, 1, 1, tzinfo=UTC), None], pyarrow.timestamp("us", "UTC")),
            "headers": pyarrow.array([[{"key": "a", "value": b"1"}], None], PAIRS),
            "key": pyarrow.array(["käy", None]),
            "value": pyarrow.array([b"v", None], pyarrow.large_binary()),
        }
    )
    part = only(table)
    assert records(part) == [
        Record(0, 1_704_067_200_000, "käy".encode(), b"v", (("a", b"1"),)),
        Record(1, NOW_MS, None, None, ()),
    ]
    assert part.partitions is not None
    assert list(part.partitions) == [1, -1]


def test_a_table_in_chunks_of_its_own_loses_nothing() -> None:
    chunks = pyarrow.chunked_array([["a", "b"], [], ["c"]])
    keys = pyarrow.chunked_array([["1"], ["2", "3"]])
    table = pyarrow.table({"value": chunks, "key": keys}).slice(1)
    found = [(record.key, record.value) for part in rows_of_table(table, NOW_MS) for record in records(part)]
    assert found == [(b"2", b"b"), (b"3", b"c")]
    assert list(rows_of_table(table.slice(0, 0), NOW_MS)) == []


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pyarrow.binary(2), [b"ab", None]),
        (pyarrow.string_view(), ["ab", None]),
        (pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), ["ab", None]),
    ],
)
def test_every_kind_of_bytes_and_text_is_a_value(kind: Any, values: list[Any]) -> None:
    batch = pyarrow.record_batch({"value": pyarrow.array(values, kind)})
    assert [record.value for record in records(only(batch))] == [b"ab", None]


def test_columns_of_nothing_are_as_if_they_were_not_there() -> None:
    nothing = pyarrow.nulls(1)
    names = ["value", "key", "headers", "timestamp", "partition"]
    part = only(pyarrow.table(dict.fromkeys(names, nothing)))
    assert records(part) == [Record(0, NOW_MS, None, None, ())]
    assert part.partitions is None


@pytest.mark.parametrize("lists", [pyarrow.list_, pyarrow.large_list])
def test_headers_without_values_are_headers(lists: Any) -> None:
    kind = lists(pyarrow.struct([("key", pyarrow.large_string()), ("value", pyarrow.null())]))
    headers = pyarrow.array([[], [{"key": "a", "value": None}]], kind)
    table = pyarrow.table({"value": ["x", "y"], "headers": headers})
    assert [record.headers for record in records(only(table))] == [(), (("a", None),)]


def test_whole_milliseconds_are_a_timestamp() -> None:
    table = pyarrow.table({"value": ["a"], "timestamp": pyarrow.array([5], pyarrow.uint32())})
    assert [record.timestamp_ms for record in records(only(table))] == [5]


def test_a_data_frame_is_a_table() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"value": ["a", "b"], "key": ["k", None]})
    assert [(record.key, record.value) for record in records(only(frame))] == [(b"k", b"a"), (None, b"b")]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"value": ["a"], "user": ["b"], "age": [1]}, "not 'age', 'user'; encode them into value, or drop them"),
        ({"key": ["a"]}, "a column value and, where wanted, key, headers, timestamp, partition"),
        ({"value": [1]}, "column 'value' is of type int64; send_columns takes bytes or text there, so cast it first"),
        ({"value": ["a"], "timestamp": ["now"]}, "column 'timestamp' is of type string"),
        ({"value": ["a"], "partition": [0.5]}, "column 'partition' is of type double"),
        ({"value": ["a"], "headers": ["b"]}, "column 'headers' is of type string"),
        ({"value": ["a"], "headers": [["b"]]}, "column 'headers' is of type list"),
        ({"value": ["a"], "headers": [[{"key": 1, "value": b"b"}]]}, "pairs .*, or maps, of text to bytes there"),
        ({"value": ["a"], "timestamp": [-7]}, "timestamp -7 of row 0 is out of range"),
        ({"value": ["a"], "partition": [2**40]}, "1099511627776"),
    ],
)
def test_other_tables_are_refused_with_what_is_wanted(columns: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        list(rows_of_table(pyarrow.table(columns), NOW_MS))


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(TypeError, match="takes an Arrow table or record batch, not list"):
        list(rows_of_table([b"a"], NOW_MS))
