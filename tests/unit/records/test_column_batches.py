"""Columns become the batches that their records would, and a table that lies is refused before it is read."""

from __future__ import annotations

import random
from array import array

import pytest

from barnabas.records.builder import BatchBuilder
from barnabas.records.column_batches import Rows
from barnabas.records.columns import BinaryColumn, HeadersColumn
from barnabas.records.compression import Compression
from barnabas.records.reader import records_of
from barnabas.records.record import Header

pyarrow = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("either_engine")

WHOLE = 1 << 20
HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
# From Apache Kafka's own test of its hash, signed as Java prints it.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


class Table:
    """Random records, and the same as columns of Arrow."""

    def __init__(self, rows: int, seed: int, keep: slice = slice(None)) -> None:
        chance = random.Random(seed)
        self.keys = [chance.choice([None, b"", chance.randbytes(chance.randint(1, 9))]) for _ in range(rows)][keep]
        self.values = [chance.choice([None, chance.randbytes(chance.randint(0, 300))]) for _ in range(rows)][keep]
        self.times = [chance.randint(-1, 2**41) for _ in range(rows)][keep]
        self.headers: list[list[Header]] = [
            [("naïve", chance.randbytes(3)), ("b", None), ("", b"")][: chance.randint(0, 3)] for _ in range(rows)
        ][keep]

    def batch_builder(self, first: int, last: int, compression: Compression = Compression.NONE) -> BatchBuilder:
        builder = BatchBuilder(compression)
        for row in range(first, last):
            builder.append(self.keys[row], self.values[row], self.headers[row], self.times[row])
        return builder


def rows_of(table: Table, kind: object = None, keep: slice = slice(None), lists: object = HEADERS) -> Rows:
    kind = kind or pyarrow.binary()
    headers = pyarrow.array(table.headers, pyarrow.map_(pyarrow.string(), pyarrow.binary())).cast(lists)
    return Rows(
        BinaryColumn.from_arrow(pyarrow.array(table.keys, kind)[keep]),
        BinaryColumn.from_arrow(pyarrow.array(table.values, kind)[keep]),
        memoryview(array("q", table.times[keep])),
        HeadersColumn.from_arrow(headers[keep]),
    )


@pytest.mark.parametrize("compression", Compression)
def test_a_batch_of_columns_is_the_batch_of_its_records(compression: Compression) -> None:
    table = Table(60, seed=1)
    expected = table.batch_builder(9, 57, compression)
    expected.transactional = True
    assert rows_of(table).cut(None, 9, 57, WHOLE, compression, transactional=True) == (expected.build(), 57)


@pytest.mark.parametrize("kind", [pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary_view()])
def test_a_slice_of_any_kind_of_bytes_is_taken(kind: object) -> None:
    keep = slice(5, 43)
    batch, _ = rows_of(Table(60, seed=2), kind, keep).cut(None, 0, 38, WHOLE)
    assert batch == Table(60, seed=2, keep=keep).batch_builder(0, 38).build()


def test_maps_and_null_lists_are_headers_too() -> None:
    maps = pyarrow.map_(pyarrow.string(), pyarrow.binary())
    batch, _ = rows_of(Table(30, seed=3), lists=maps).cut(None, 0, 30, WHOLE)
    assert batch == Table(30, seed=3).batch_builder(0, 30).build()
    sparse = HeadersColumn.from_arrow(pyarrow.array([None, [{"key": "a", "value": b"1"}], None], HEADERS))
    batch, _ = Rows(None, None, memoryview(array("q", [1, 2, 3])), sparse).cut(None, 0, 3, WHOLE)
    assert [record.headers for record in records_of(memoryview(batch))] == [(), (("a", b"1"),), ()]


def test_batches_are_cut_where_the_next_record_would_not_fit() -> None:
    table = Table(200, seed=4)
    rows, position, seen = rows_of(table), 0, []
    while position < rows.count:
        batch, end = rows.cut(None, position, rows.count, 2000)
        assert len(batch) <= 2000
        if end < rows.count:
            assert table.batch_builder(position, end + 1).estimated_size > 2000
        seen += [record.value for record in records_of(memoryview(batch))]
        position = end
    assert seen == table.values


def test_a_row_that_fits_no_batch_is_known_beforehand() -> None:
    values = pyarrow.array([b"", b"x" * 5000, None], pyarrow.binary())
    rows = Rows(None, BinaryColumn.from_arrow(values), memoryview(array("q", [0, 0, 0])))
    row, size = rows.largest()
    assert row == 1
    assert 5000 < size < 5120
    with pytest.raises(ValueError, match="too few for the record at place 1"):
        rows.cut(None, 1, 3, 2000)


def partition_of(key: bytes | None) -> int:
    return 7 if key is None else (JAVA_HASHES[key] & 0x7FFFFFFF) % 7


def test_rows_go_to_the_partitions_of_their_keys_in_their_order() -> None:
    keys = [*JAVA_HASHES, None] * 3
    column = BinaryColumn.from_arrow(pyarrow.array(keys, pyarrow.binary()))
    rows = Rows(column, None, memoryview(array("q", range(len(keys)))))
    order, ends = rows.by_partition(7)
    assert len(ends) == 7
    for partition, (first, last) in enumerate(zip([0, *ends], [*ends, len(order)])):
        assert list(order[first:last]) == [row for row, key in enumerate(keys) if partition_of(key) == partition]
    first, last = [0, *ends][partition_of(b"abc")], ends[partition_of(b"abc")]
    batch, _ = rows.cut(order, first, last, WHOLE)
    assert [record.timestamp_ms for record in records_of(memoryview(batch))] == list(order[first:last])


def test_a_chosen_partition_goes_before_the_key() -> None:
    column = BinaryColumn.from_arrow(pyarrow.array([b"abc", b"abc", None], pyarrow.binary()))
    rows = Rows(column, None, memoryview(array("q", [0, 0, 0])))
    order, ends = rows.by_partition(7, memoryview(array("i", [6, -1, -1])))
    assert partition_of(b"abc") < 6
    assert list(order) == [1, 0, 2]
    assert list(ends) == [int(partition >= partition_of(b"abc")) for partition in range(6)] + [2]
    with pytest.raises(ValueError, match="row 2 is for partition 7; there are 7"):
        rows.by_partition(7, memoryview(array("i", [1, -1, 7])))


@pytest.mark.parametrize(
    ("ends", "complaint"),
    [
        ([0, 5, 3, 10], "row 1 ends before it begins"),
        ([0, 5, 5, 11], "not within 10"),
        ([-1, 5, 5, 10], "not within 10"),
        ([0, 5, 10], "column of 2 rows does not fit a table of 3"),
    ],
)
def test_columns_with_wrong_bounds_are_refused(ends: list[int], complaint: str) -> None:
    for number in "iq":
        column = BinaryColumn(memoryview(b"0123456789"), memoryview(array(number, ends)), None, 0)
        with pytest.raises(ValueError, match=complaint):
            Rows(None, column, memoryview(array("q", [1, 2, 3])))


def test_rows_that_are_not_there_are_refused() -> None:
    rows = Rows(None, None, memoryview(array("q", [1, 2, 3])))
    for first, last in ((0, 4), (-1, 2), (1, 1)):
        with pytest.raises(ValueError, match="not within 3"):
            rows.cut(None, first, last, WHOLE)
    with pytest.raises(ValueError, match="there is no row 3"):
        rows.cut(memoryview(array("i", [0, 3])), 0, 2, WHOLE)


def test_timestamps_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="timestamp -2 of row 1"):
        Rows(None, None, memoryview(array("q", [1, -2])))


def test_a_header_without_a_key_is_refused() -> None:
    headers = HeadersColumn.from_arrow(pyarrow.array([[], [{"key": None, "value": b""}]], HEADERS))
    with pytest.raises(ValueError, match="header of row 1 has no key"):
        Rows(None, None, memoryview(array("q", [1, 2])), headers)
