"""Rows that are fitted to a table with more columns, or wider ones."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow
import pytest

from barnabas.spark.direct.fitting import fit

NARROW = pyarrow.struct([("x", pyarrow.int32())])
WIDE = pyarrow.struct([("new", pyarrow.string()), ("x", pyarrow.int64())])


def test_rows_that_fit_are_not_copied() -> None:
    rows = pyarrow.RecordBatch.from_pydict({"a": [1, 2]})
    assert fit(rows, rows.schema) is rows


def test_columns_are_put_in_order_added_and_widened() -> None:
    rows = pyarrow.RecordBatch.from_pydict({"b": pyarrow.array([1, None], pyarrow.int32()), "a": ["x", "y"]})
    schema = pyarrow.schema([("a", pyarrow.string()), ("b", pyarrow.int64()), ("c", pyarrow.float64())])
    found = fit(rows, schema)
    assert found.schema == schema
    assert found.to_pylist() == [{"a": "x", "b": 1, "c": None}, {"a": "y", "b": None, "c": None}]


@pytest.mark.parametrize("start", [0, 1], ids=["whole", "slice"])
@pytest.mark.parametrize(
    ("narrow", "wide", "values", "expected"),
    [
        (NARROW, WIDE, [{"x": 1}, None, {"x": None}], [{"new": None, "x": 1}, None, {"new": None, "x": None}]),
        (
            pyarrow.list_(NARROW),
            pyarrow.list_(WIDE),
            [[{"x": 1}, None], None, []],
            [[{"new": None, "x": 1}, None], None, []],
        ),
        (
            pyarrow.map_(pyarrow.string(), pyarrow.int32()),
            pyarrow.map_(pyarrow.string(), pyarrow.int64()),
            [[("k", 1)], None, []],
            [[("k", 1)], None, []],
        ),
    ],
    ids=["struct", "list", "map"],
)
def test_nested_columns_are_fitted_too(
    narrow: pyarrow.DataType, wide: pyarrow.DataType, values: list[object], expected: list[object], start: int
) -> None:
    rows = pyarrow.RecordBatch.from_arrays([pyarrow.array(values, narrow)], names=["a"]).slice(start)
    found = fit(rows, pyarrow.schema([("a", wide)]))
    found.validate(full=True)
    assert found.column("a").to_pylist() == expected[start:]


def test_nanoseconds_are_cut_off() -> None:
    times = pyarrow.array([1_700_000_000_123_456_789], pyarrow.timestamp("ns", "UTC"))
    rows = pyarrow.RecordBatch.from_arrays([times], names=["at"])
    found = fit(rows, pyarrow.schema([("at", pyarrow.timestamp("us", "UTC"))]))
    assert found.column("at").to_pylist() == [datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)]


def test_a_number_that_does_not_fit_is_an_error() -> None:
    rows = pyarrow.RecordBatch.from_pydict({"a": [1 << 40]})
    with pytest.raises(pyarrow.ArrowInvalid):
        fit(rows, pyarrow.schema([("a", pyarrow.int32())]))
