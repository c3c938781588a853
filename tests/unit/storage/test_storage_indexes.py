"""Indexes, leader epochs and checkpoints: their bytes, and their look-ups."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from barnabas.storage import checkpoints
from barnabas.storage.disk import RealDisk
from barnabas.storage.leader_epochs import EpochEntry, LeaderEpochs
from barnabas.storage.offset_index import CorruptIndex, OffsetIndex
from barnabas.storage.time_index import TimeEntry, TimeIndex
from barnabas.storage.txn_index import AbortedTxn, TxnIndex


def test_offset_index_is_pairs_of_big_endian_numbers() -> None:
    index = OffsetIndex(1000)
    index.append(1009, 4100)
    index.append(1020, 8300)
    assert index.encode() == struct.pack(">iiii", 9, 4100, 20, 8300)
    assert OffsetIndex.decode(1000, index.encode()).entries() == [(1009, 4100), (1020, 8300)]


@pytest.mark.parametrize(("offset", "position"), [(1000, 0), (1008, 0), (1009, 4100), (1019, 4100), (5000, 8300)])
def test_offset_index_gives_the_last_batch_that_ends_by_an_offset(offset: int, position: int) -> None:
    index = OffsetIndex.decode(1000, struct.pack(">iiii", 9, 4100, 20, 8300))
    assert index.lookup(offset) == position


@pytest.mark.parametrize("data", [b"1234567", struct.pack(">iiii", 9, 4100, 0, 0), struct.pack(">ii", -1, 5)])
def test_an_offset_index_that_cannot_be_right_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndex):
        OffsetIndex.decode(1000, data)


def test_time_index_keeps_rising_times_only() -> None:
    index = TimeIndex(100)
    for timestamp, offset in ((50, 103), (50, 105), (40, 107), (60, 109)):
        index.maybe_append(timestamp, offset)
    assert index.encode() == struct.pack(">qiqi", 50, 3, 60, 9)
    assert TimeIndex.decode(100, index.encode()).entries() == [(50, 103), (60, 109)]
    assert [index.lookup(time).offset for time in (0, 50, 51, 60, 61)] == [100, 100, 103, 103, 109]
    index.truncate_to(109)
    assert index.last_entry() == TimeEntry(50, 103)
    with pytest.raises(CorruptIndex):
        TimeIndex.decode(100, b"12345")


def test_transaction_index_has_entries_of_34_bytes() -> None:
    index = TxnIndex()
    index.aborted = [AbortedTxn(7, 10, 20, 15), AbortedTxn(8, 15, 30, 31)]
    data = index.encode()
    assert data[:34] == struct.pack(">hqqqq", 0, 7, 10, 20, 15)
    assert TxnIndex.decode(data).aborted == index.aborted
    index.truncate_to(30)
    assert index.aborted == [AbortedTxn(7, 10, 20, 15)]
    for damaged in (data[:-1], struct.pack(">hqqqq", 1, 0, 0, 0, 0)):
        with pytest.raises(CorruptIndex):
            TxnIndex.decode(damaged)


def _epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*entry) for entry in entries])


def test_leader_epochs_are_text() -> None:
    epochs = _epochs((0, 0), (3, 1042))
    assert epochs.encode() == b"0\n2\n0 0\n3 1042\n"
    assert LeaderEpochs.decode(epochs.encode()).entries == epochs.entries


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 5)), (1, (1, 10)), (2, (2, 20)), (3, (2, 20)), (4, (4, 30)), (5, (5, 99)), (6, (-1, -1))],
)
def test_an_epoch_ends_where_the_next_begins(asked: int, answer: tuple[int, int]) -> None:
    assert _epochs((1, 5), (2, 10), (4, 20), (5, 30)).end_offset_for(asked, 99) == answer


def test_assigning_an_epoch_forgets_what_contradicts_it() -> None:
    epochs = _epochs((1, 5), (2, 10), (4, 20))
    epochs.assign(4, 25)
    assert epochs.entries == [(1, 5), (2, 10), (4, 20)]
    epochs.assign(5, 10)
    assert (epochs.entries, epochs.latest) == ([(1, 5), (5, 10)], 5)


def test_a_record_of_an_earlier_epoch_takes_back_where_a_later_one_began() -> None:
    epochs = _epochs((0, 0), (2, 29), (3, 142), (4, 170))
    epochs.witness(2, 141)
    assert epochs.entries == [(0, 0), (2, 29), (3, 142), (4, 170)]
    epochs.witness(2, 142)
    assert epochs.entries == [(0, 0), (2, 29), (4, 170)]
    epochs.witness(1, 200)
    assert (epochs.entries, epochs.latest, epochs.saved) == ([(0, 0)], 0, False)


def test_leader_epochs_are_cut_at_both_ends() -> None:
    epochs = _epochs((1, 5), (2, 10), (4, 20))
    epochs.truncate_from_end(20)
    assert (epochs.entries, epochs.latest) == ([(1, 5), (2, 10)], 2)
    epochs.truncate_from_start(12)
    assert epochs.entries == [(2, 12)]
    assert [epochs.epoch_of(offset) for offset in (11, 12, 99)] == [-1, 2, 2]


def test_checkpoints_are_kafkas_text(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "recovery-point-offset-checkpoint")
    assert checkpoints.read_offsets(disk, path) == {}
    checkpoints.write_offsets(disk, path, {("a.b-c", 0): 5, ("x", 12): 7})
    assert Path(path).read_text() == "0\n2\na.b-c 0 5\nx 12 7\n"
    assert checkpoints.read_offsets(disk, path) == {("a.b-c", 0): 5, ("x", 12): 7}
    for damaged in ("", "0\n2\na 0 5\n", "1\n0\n", "0\n1\na 0\n", "0\n1\na 0 x\n"):
        Path(path).write_text(damaged)
        with pytest.raises(checkpoints.CorruptCheckpoint, match="recovery-point"):
            checkpoints.read_offsets(disk, path)


def test_the_mark_of_a_clean_stop_is_found_once(tmp_path: Path) -> None:
    disk = RealDisk()
    assert checkpoints.take_clean_shutdown(disk, str(tmp_path)) is None
    checkpoints.write_clean_shutdown(disk, str(tmp_path), 17)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":17}'
    assert checkpoints.take_clean_shutdown(disk, str(tmp_path)) == 17
    assert checkpoints.take_clean_shutdown(disk, str(tmp_path)) is None


def test_a_topic_id_is_written_as_kafka_does(tmp_path: Path) -> None:
    disk = RealDisk()
    assert checkpoints.read_topic_id(disk, str(tmp_path)) is None
    checkpoints.write_topic_id(disk, str(tmp_path), bytes(range(16)))
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoints.read_topic_id(disk, str(tmp_path)) == bytes(range(16))
    (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: short")
    with pytest.raises(checkpoints.CorruptCheckpoint):
        checkpoints.read_topic_id(disk, str(tmp_path))
    (tmp_path / "partition.metadata").write_bytes(b"")
    assert checkpoints.read_topic_id(disk, str(tmp_path)) is None
