from __future__ import annotations

import pyarrow as pa
import pytest

from barnabas.spark.database.column_text import COPY, INSERT, LOAD_DATA, hexadecimal, pieces
from barnabas.spark.database.columns import Kind

NUMBERS = [pa.array([1, 2], pa.int64())]


def test_rows_are_written_as_each_database_reads_them() -> None:
    columns = [
        ("text", Kind.TEXT, pa.array(["a\t'b\\", None])),
        ("bytes", Kind.BINARY, pa.array([b"\x00\xff", None])),
        ("flag", Kind.BOOLEAN, pa.array([True, None])),
        ("real", Kind.REAL, pa.array([0.5, None])),
    ]
    assert COPY.rows(NUMBERS, columns).to_pylist() == [
        "1\ta\\t'b\\\\\t\\\\x00ff\ttrue\t0.5\n",
        "2\t\\N\t\\N\t\\N\t\\N\n",
    ]
    assert LOAD_DATA.rows(NUMBERS, columns)[0].as_py() == "1\ta\\t'b\\\\\t00ff\t1\t0.5\n"
    assert INSERT.rows(NUMBERS, columns).to_pylist() == [
        "(1,'a\t\\'b\\\\',X'00ff',1,'0.5'),",
        "(2,NULL,NULL,NULL,NULL),",
    ]


@pytest.mark.parametrize("begin", [0, 1, 3])
def test_bytes_of_a_slice_become_digits(begin: int) -> None:
    values = [b"\x01\x02", None, b"", b"\xff", b"\x00"]
    found = hexadecimal(pa.array(values, pa.binary())[begin:])
    assert found.to_pylist() == [None if value is None else value.hex() for value in values[begin:]]


@pytest.mark.parametrize(
    ("most", "expected"), [(1, [b"aa", b"b", b"cccc", b"d"]), (3, [b"aab", b"cccc", b"d"]), (9, [b"aabccccd"])]
)
def test_text_is_cut_between_rows(most: int, expected: list[bytes]) -> None:
    rows = pa.array(["x", "aa", "b", "cccc", "d"], pa.large_string())[1:]
    assert [bytes(piece) for piece in pieces(rows, most)] == expected


def test_no_rows_have_no_text() -> None:
    assert list(pieces(pa.array([], pa.large_string()), 9)) == []
