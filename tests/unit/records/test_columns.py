"""Columns hold what the records hold, in a layout that pyarrow accepts."""

from __future__ import annotations

import builtins
import random
import sys
from typing import Any

import pytest

from barnabas.records import columns
from barnabas.records.batch import CorruptBatch, write_crc
from barnabas.records.builder import BatchBuilder
from barnabas.records.columns import Column, ColumnReader, decode_columns
from barnabas.records.compression import Compression, DecompressedTooLarge
from barnabas.records.reader import read_records, records_of
from barnabas.records.record import Record

pyarrow = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("either_engine")


def fetched(batches: int = 6, seed: int = 1) -> bytes:
    chance = random.Random(seed)
    result, offset = b"", 50
    for number in range(batches):
        builder = BatchBuilder(Compression(number % 5))
        for _ in range(chance.randint(1, 40)):
            headers = [("naïve", chance.randbytes(3)), ("b", None), ("", b"")][: chance.randint(0, 3)]
            key = chance.choice([None, b"", chance.randbytes(5)])
            value = chance.choice([None, chance.randbytes(chance.randint(0, 2000))])
            builder.append(key, value, headers, chance.randint(0, 2**41))
        result += builder.build(offset)
        offset += len(builder) + number  # a gap, as compaction leaves it
    return result


def rows_of(found: columns.Columns) -> list[Record]:
    table = found.to_arrow()
    table.validate(full=True)
    timestamps = table["timestamp"].cast(pyarrow.int64()).to_pylist()
    return [
        Record(
            row["offset"], timestamp, row["key"], row["value"], tuple((h["key"], h["value"]) for h in row["headers"])
        )
        for row, timestamp in zip(table.drop_columns(["timestamp"]).to_pylist(), timestamps)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_columns_and_objects_tell_the_same(seed: int) -> None:
    data = memoryview(fetched(seed=seed))
    assert rows_of(decode_columns(data)) == list(read_records(data))


def test_only_records_in_the_range_of_offsets_are_taken() -> None:
    data = memoryview(fetched())
    records = list(read_records(data))
    first, last = records[7].offset, records[-5].offset
    reader = ColumnReader()
    assert reader.add(data, from_offset=first, until_offset=last) == len(records) - 12
    assert reader.next_offset == last
    assert rows_of(reader.finish()) == records[7:-5]
    assert rows_of(reader.finish()) == []


def test_a_reader_gathers_several_fetches_and_knows_where_the_next_begins() -> None:
    data = memoryview(fetched())
    reader = ColumnReader()
    reader.add(data)
    after = BatchBuilder()
    after.append(b"k", b"v")
    reader.add(memoryview(after.build(5000)))
    assert reader.next_offset == 5001
    assert rows_of(reader.finish()) == [*read_records(data), Record(5000, -1, b"k", b"v")]


def test_a_reader_tells_how_many_bytes_it_holds_decompressed() -> None:
    builder = BatchBuilder(Compression.ZSTD)
    builder.append(None, bytes(100_000))
    reader = ColumnReader(Column.OFFSET)
    reader.add(memoryview(builder.build(0)))
    assert 100_000 < reader.size_bytes < 100_100
    reader.finish()
    assert reader.size_bytes == 0


@pytest.mark.parametrize("wanted", [Column.KEY, Column.VALUE, Column.OFFSET, Column.TIMESTAMP, Column.HEADERS])
def test_a_column_alone_is_as_it_is_among_all(wanted: Column) -> None:
    data = memoryview(fetched())
    table, all_of_them = decode_columns(data, wanted).to_arrow(), decode_columns(data).to_arrow()
    (name,) = table.column_names
    assert name.upper() == wanted.name
    assert table[name].equals(all_of_them[name])


def test_control_batches_and_declined_batches_are_passed_over() -> None:
    control = BatchBuilder(control=True)
    control.append(b"\x00\x00\x00\x00", b"")
    aborted = BatchBuilder(producer_id=8, transactional=True)
    aborted.append(None, b"aborted")
    kept = BatchBuilder(producer_id=9, transactional=True)
    kept.append(None, b"kept")
    data = aborted.build(0) + kept.build(1) + control.build(2)
    reader = ColumnReader()
    reader.add(memoryview(data), keep=lambda header: header.producer_id != 8)
    assert reader.next_offset == 3
    assert [record.value for record in rows_of(reader.finish())] == [b"kept"]


def test_a_corrupt_batch_adds_nothing_and_leaves_what_was_there() -> None:
    good = fetched()
    builder = BatchBuilder()
    for _ in range(20):
        builder.append(b"key", None, [("h", b"1")])
    bad = builder.build(9000)
    bad[-2] = 0x7F  # the last header's value is longer than its record
    write_crc(memoryview(bad))
    reader = ColumnReader()
    with pytest.raises(CorruptBatch):
        reader.add(memoryview(good + bad))
    reader.add(memoryview(builder.build(9000)))
    expected = [*read_records(memoryview(good)), *records_of(memoryview(builder.build(9000)))]
    assert rows_of(reader.finish()) == expected


def test_a_bomb_is_refused_within_the_limit() -> None:
    builder = BatchBuilder(Compression.ZSTD)
    builder.append(None, bytes(1 << 20))
    with pytest.raises(DecompressedTooLarge):
        decode_columns(memoryview(builder.build()), limit_bytes=1 << 20)


def test_header_keys_that_are_not_utf8_become_text_all_the_same() -> None:
    builder = BatchBuilder()
    builder.append(None, None, [("header", b"v"), ("good", b"w")])
    batch = builder.build()
    batch[batch.index(b"header")] = 0xFF
    write_crc(memoryview(batch))
    assert rows_of(decode_columns(memoryview(batch)))[0].headers == (("�eader", b"v"), ("good", b"w"))


def test_more_than_two_gibibytes_take_wide_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "WIDEST_INT32", 1000)
    data = memoryview(fetched())
    found = decode_columns(data)
    assert found.value is not None
    assert found.value.to_arrow().type == pyarrow.large_binary()
    assert rows_of(found) == list(read_records(data))


def test_arrow_is_asked_for_only_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def without_pyarrow(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "pyarrow":
            raise ModuleNotFoundError("No module named 'pyarrow'")
        return real_import(name, *arguments, **named)

    monkeypatch.delitem(sys.modules, "pyarrow")
    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    found = decode_columns(memoryview(fetched()))
    assert found.rows
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'barnabas\[arrow\]'"):
        found.to_arrow()
