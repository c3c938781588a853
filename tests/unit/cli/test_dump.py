"""`log dump` shows every entry of every kind of file, and marks what cannot be right."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from barnabas.cli.dump import dump_file
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression

LOG = "00000000000000000100.log"


def batch(base_offset: int, *values: bytes, compression: Compression = Compression.NONE) -> bytes:
    builder = BatchBuilder(compression)
    for value in values:
        builder.append(b"k", value, [("h", b"v")], 1000)
    return bytes(builder.build(base_offset, leader_epoch=3))


def write(directory: Path, name: str, data: bytes) -> Path:
    path = directory / name
    path.write_bytes(data)
    return path


def problems(path: Path) -> list[str | None]:
    return [row["problem"] for row in dump_file(path)]


def test_batches_are_shown_with_their_place_and_codec(tmp_path: Path) -> None:
    first = batch(100, b"a", b"b")
    path = write(tmp_path, LOG, first + batch(102, b"c", compression=Compression.ZSTD))
    rows = list(dump_file(path))
    assert [(row["base_offset"], row["last_offset"], row["records"], row["position"]) for row in rows] == [
        (100, 101, 2, 0),
        (102, 102, 1, len(first)),
    ]
    assert [row["compression"] for row in rows] == ["none", "zstd"]
    assert [row["leader_epoch"] for row in rows] == [3, 3]
    assert problems(path) == [None, None]


def test_records_are_shown_on_request(tmp_path: Path) -> None:
    path = write(tmp_path, LOG, batch(100, b"a", b"b", compression=Compression.LZ4))
    rows = list(dump_file(path, records=True))
    assert [(row["offset"], row["value"], row["headers"]) for row in rows] == [
        (100, b"a", {"h": b"v"}),
        (101, b"b", {"h": b"v"}),
    ]


def test_a_flipped_byte_is_marked_and_the_next_batch_still_shown(tmp_path: Path) -> None:
    damaged = bytearray(batch(100, b"a"))
    damaged[-1] ^= 1
    path = write(tmp_path, LOG, bytes(damaged) + batch(101, b"b"))
    first, second = problems(path)
    assert first is not None
    assert "CRC" in first
    assert second is None


@pytest.mark.parametrize("kept_bytes", [3, 60, 65])
def test_a_torn_tail_is_marked(tmp_path: Path, kept_bytes: int) -> None:
    path = write(tmp_path, LOG, batch(100, b"a") + batch(101, b"b")[:kept_bytes])
    first, second = problems(path)
    assert first is None
    assert second is not None


def test_offsets_that_do_not_follow_are_marked(tmp_path: Path) -> None:
    path = write(tmp_path, LOG, batch(105, b"a") + batch(104, b"b"))
    assert problems(path) == [None, "base offset 104 does not follow 105"]


def test_an_empty_log_has_no_rows(tmp_path: Path) -> None:
    assert list(dump_file(write(tmp_path, LOG, b""))) == []


def test_index_entries_are_absolute_and_must_rise(tmp_path: Path) -> None:
    entries = struct.pack(">iiiiii", 5, 100, 9, 200, 8, 300)
    path = write(tmp_path, "00000000000000000100.index", entries + bytes(80))
    rows = list(dump_file(path))
    assert [(row["offset"], row["position"]) for row in rows] == [(105, 100), (109, 200), (108, 300)]
    assert [row["problem"] for row in rows] == [None, None, "does not rise"]


def test_time_index_entries_must_rise(tmp_path: Path) -> None:
    path = write(tmp_path, "00000000000000000100.timeindex", struct.pack(">qiqi", 1000, 5, 999, 9) + b"\x01")
    assert [(row.get("timestamp"), row.get("offset")) for row in dump_file(path)] == [
        (1000, 105),
        (999, 109),
        (None, None),
    ]
    assert problems(path) == [None, "does not rise", "1 bytes are left, less than an entry of 12"]


def test_aborted_transactions_are_shown(tmp_path: Path) -> None:
    path = write(tmp_path, "00000000000000000100.txnindex", struct.pack(">hqqqq", 0, 7, 100, 110, 111))
    (row,) = dump_file(path)
    assert (row["producer_id"], row["first_offset"], row["last_offset"], row["last_stable_offset"]) == (
        7,
        100,
        110,
        111,
    )


def test_a_snapshot_shows_its_producers_and_a_wrong_crc(tmp_path: Path) -> None:
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 1, 4, 120, 2, 1000, -1, -1)
    good = write(tmp_path, "00000000000000000123.snapshot", struct.pack(">hI", 1, crc32c(body)) + body)
    (row,) = dump_file(good)
    assert (row["producer_id"], row["last_sequence"], row["last_offset"], row["problem"]) == (7, 4, 120, None)
    bad = write(tmp_path, "00000000000000000124.snapshot", struct.pack(">hI", 1, 1) + body)
    assert problems(bad) == ["the CRC is wrong"]


def test_checkpoints_are_shown_and_a_wrong_count_marked(tmp_path: Path) -> None:
    good = write(tmp_path, "recovery-point-offset-checkpoint", b"0\n1\norders 3 17\n")
    assert list(dump_file(good)) == [{"topic": "orders", "partition": 3, "offset": 17, "problem": None}]
    short = write(tmp_path, "leader-epoch-checkpoint", b"0\n2\n0 0\n")
    assert problems(short) == [None, "1 lines, but 2 announced"]
    damaged = write(tmp_path, "cleaner-offset-checkpoint", b"0\n1\norders 3\n")
    assert problems(damaged) == ["line 'orders 3' is damaged"]
    empty = write(tmp_path, "replication-offset-checkpoint", b"")
    assert all(problems(empty))


def test_another_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"notes\.txt is no file of a log"):
        dump_file(write(tmp_path, "notes.txt", b""))
