"""What a leader takes, what it refuses and why, and what it writes into a batch."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import CONTROL, LOG_APPEND_TIME, check_batch, headers, write_crc
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from tests.unit.storage.storage_helpers import NOW_MS, append, batch, new_log, read_all, values


def test_offsets_are_dense_and_the_leader_epoch_is_in_the_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    first = append(log, b"a", b"b", epoch=3)
    second = append(log, b"c", epoch=4)
    assert (first.first_offset, first.last_offset, first.record_count) == (0, 1, 2)
    assert (second.first_offset, second.last_offset, second.leader_epoch) == (2, 2, 4)
    stored = memoryview(log.read(0, 1 << 20, 3, True).read())
    assert [(h.base_offset, h.partition_leader_epoch) for _, h in headers(stored)] == [(0, 3), (2, 4)]
    for position, _ in headers(stored):
        check_batch(stored, position)
    assert [record.offset for record in read_all(log)] == [0, 1, 2]
    assert [log.epoch_of(offset) for offset in range(3)] == [3, 3, 4]


def _patched(position: int, form: str, value: int, **options: Any) -> memoryview:
    records = batch((b"a", b"b"), **options)
    struct.pack_into(form, records, position, value)
    if position >= 21:
        write_crc(records)
    return records


REFUSALS: list[tuple[str, Callable[[], memoryview], ErrorCode]] = [
    ("too short for a header", lambda: batch()[:60], ErrorCode.CORRUPT_MESSAGE),
    ("cut at the end", lambda: batch()[:-1], ErrorCode.INVALID_RECORD),
    ("length less than a header", lambda: _patched(8, ">i", 48), ErrorCode.INVALID_RECORD),
    ("negative length", lambda: _patched(8, ">i", -1), ErrorCode.INVALID_RECORD),
    ("old magic", lambda: _patched(16, ">b", 1), ErrorCode.INVALID_RECORD),
    ("wrong CRC", lambda: _patched(17, ">I", 12345), ErrorCode.CORRUPT_MESSAGE),
    ("two batches", lambda: memoryview(bytearray(bytes(batch()) + bytes(batch()))), ErrorCode.INVALID_RECORD),
    ("base offset", lambda: _patched(0, ">q", 7), ErrorCode.INVALID_RECORD),
    ("count below the delta", lambda: _patched(57, ">i", 1), ErrorCode.INVALID_RECORD),
    ("count above the delta", lambda: _patched(57, ">i", 3), ErrorCode.INVALID_RECORD),
    ("negative delta", lambda: _patched(23, ">i", -1), ErrorCode.INVALID_RECORD),
    ("control batch", lambda: _patched(21, ">h", CONTROL), ErrorCode.INVALID_RECORD),
    ("claims append time", lambda: _patched(21, ">h", LOG_APPEND_TIME), ErrorCode.INVALID_TIMESTAMP),
    ("unknown codec", lambda: _patched(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("too large", lambda: batch((bytes(2000),)), ErrorCode.MESSAGE_TOO_LARGE),
    ("from the future", lambda: batch(timestamp_ms=NOW_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
    ("from the past", lambda: batch(timestamp_ms=NOW_MS - 1001), ErrorCode.INVALID_TIMESTAMP),
    ("producer without sequence", lambda: batch(producer=(1, 0, -1)), ErrorCode.INVALID_RECORD),
]


@pytest.mark.parametrize(("records", "code"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_a_refused_batch_leaves_nothing_behind(
    tmp_path: Path, records: Callable[[], memoryview], code: ErrorCode
) -> None:
    log = new_log(tmp_path, max_message_bytes=1000, message_timestamp_before_max_ms=1000)
    append(log, b"before")
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(records(), 9, NOW_MS)
    assert refused.value.code is code
    assert refused.value.message
    assert (log.log_end_offset, log.leader_epochs.latest, log.producers.entries) == (1, 0, {})
    append(log, b"after")
    assert values(log) == [b"before", b"after"]


def test_a_batch_beyond_the_segment_size_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=500)
    with pytest.raises(KafkaError) as refused:
        append(log, bytes(600))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert (log.log_end_offset, len(log.segments)) == (0, 1)


def test_log_append_time_replaces_the_producers_time(tmp_path: Path) -> None:
    log = new_log(tmp_path, message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=0)
    info = append(log, b"a", b"b", timestamp_ms=5, now_ms=NOW_MS)
    assert (info.log_append_time_ms, info.max_timestamp) == (NOW_MS, NOW_MS)
    assert [record.timestamp_ms for record in read_all(log)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", list(Compression))
def test_the_topics_codec_is_enforced(tmp_path: Path, codec: str, sent: Compression) -> None:
    log = new_log(tmp_path, compression_type=codec)
    append(log, b"x" * 300, b"y" * 300, compression=sent)
    header = check_batch(memoryview(log.read(0, 1 << 20, 2, True).read()))
    assert header.compression == (0 if codec == "uncompressed" else Compression[codec.upper()])
    assert values(log) == [b"x" * 300, b"y" * 300]


def test_damaged_records_are_refused_where_they_must_be_opened(tmp_path: Path) -> None:
    log = new_log(tmp_path, compression_type="zstd")
    records = batch((b"x" * 300,), compression=Compression.GZIP)
    records[70:80] = bytes(10)
    write_crc(records)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(records, 0, NOW_MS)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


def test_a_compacted_topic_wants_keys(tmp_path: Path) -> None:
    log = new_log(tmp_path, cleanup_policy=("compact",))
    append(log, b"a")
    with pytest.raises(KafkaError) as refused:
        append(log, b"b", key=None)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert values(log) == [b"a"]


KEYLESS = "Compacted topic cannot accept message without key in topic partition topic-0"
FRESH_MS, OLD_MS = NOW_MS, NOW_MS - 2000


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize(
    ("records", "code", "blamed"),
    [
        ([(b"k", FRESH_MS), (None, FRESH_MS), (b"k", FRESH_MS)], ErrorCode.INVALID_RECORD, {1: KEYLESS}),
        ([(None, OLD_MS), (b"k", FRESH_MS), (None, FRESH_MS)], ErrorCode.INVALID_RECORD, {0: KEYLESS, 2: KEYLESS}),
        ([(None, FRESH_MS), (b"k", OLD_MS)], ErrorCode.INVALID_TIMESTAMP, {0: KEYLESS, 1: "Timestamp"}),
        ([(b"k", OLD_MS), (None, FRESH_MS)], ErrorCode.INVALID_TIMESTAMP, {0: "Timestamp", 1: KEYLESS}),
    ],
)
def test_a_rejected_batch_names_each_invalid_record(
    tmp_path: Path,
    records: list[tuple[bytes | None, int]],
    code: ErrorCode,
    blamed: dict[int, str],
    compression: Compression,
) -> None:
    log = new_log(tmp_path, cleanup_policy=("compact",), message_timestamp_before_max_ms=1000)
    builder = BatchBuilder(compression)
    for key, timestamp_ms in records:
        builder.append(key, b"v", timestamp_ms=timestamp_ms)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(memoryview(builder.build()), 0, NOW_MS)
    error = refused.value
    assert (error.code, [index for index, _ in error.record_errors]) == (code, list(blamed))
    assert all(message.startswith(blamed[index]) for index, message in error.record_errors)
    assert log.log_end_offset == 0


def test_a_batch_of_millions_of_invalid_records_names_only_the_first_ones(tmp_path: Path) -> None:
    log = new_log(tmp_path, cleanup_policy=("compact",))
    builder = BatchBuilder(Compression.ZSTD)
    builder.extend([None] * 100_000, timestamp_ms=NOW_MS)
    with pytest.raises(KafkaError, match="due to 100000 record errors in total") as refused:
        log.append_as_leader(memoryview(builder.build()), 0, NOW_MS)
    assert [index for index, _ in refused.value.record_errors] == list(range(10_000))


def test_times_out_of_range_in_the_header_alone_are_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    records = batch((b"a",))
    struct.pack_into(">q", records, 35, NOW_MS + 2 * 3_600_000)  # max timestamp
    write_crc(records)
    with pytest.raises(KafkaError, match="none of its records has") as refused:
        log.append_as_leader(records, 0, NOW_MS)
    assert (refused.value.code, refused.value.record_errors) == (ErrorCode.INVALID_TIMESTAMP, ())


def test_a_failed_write_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(tmp_path)
    append(log, b"a")

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.write", fail)
        with pytest.raises(OSError, match="No space"):
            append(log, b"lost", producer=(7, 0, 0))
    assert (log.log_end_offset, log.producers.entries) == (1, {})
    append(log, b"b")
    assert values(log) == [b"a", b"b"]


def test_a_follower_keeps_offsets_and_epochs_and_drops_a_cut_batch(tmp_path: Path) -> None:
    leader = new_log(tmp_path / "leader")
    for number in range(5):
        append(leader, b"%d" % number, epoch=number // 2, producer=(9, 0, number))
    copied = bytearray(leader.read(0, 1 << 20, 5, True).read())
    follower = new_log(tmp_path / "follower")
    info = follower.append_as_follower(memoryview(copied)[:-1])
    assert (info.first_offset, info.last_offset, info.record_count) == (0, 3, 4)
    assert follower.leader_epochs.entries == leader.leader_epochs.entries[:2]
    follower.append_as_follower(memoryview(leader.read(4, 1 << 20, 5, True).read()))
    assert values(follower) == values(leader)
    assert follower.producers.encode() == leader.producers.encode()
    with pytest.raises(KafkaError):  # offsets that are there already
        follower.append_as_follower(memoryview(copied))
    assert follower.log_end_offset == 5


def test_a_follower_forgets_an_epoch_that_its_leaders_records_contradict(tmp_path: Path) -> None:
    """As one has that came back without its log's end, and took itself for the leader that it had been."""
    leader = new_log(tmp_path / "leader")
    for number in range(6):
        append(leader, b"%d" % number, epoch=2 if number < 5 else 4)
    follower = new_log(tmp_path / "follower")
    follower.append_as_follower(memoryview(leader.read(0, 1 << 20, 3, True).read()))
    follower.leader_epochs.assign(3, 3)
    follower.append_as_follower(memoryview(leader.read(3, 1 << 20, 6, True).read()))
    assert follower.leader_epochs.entries == leader.leader_epochs.entries == [(2, 0), (4, 5)]


def test_segments_roll_by_size_time_and_full_index(tmp_path: Path) -> None:
    by_size = new_log(tmp_path / "size", segment_bytes=1000)
    for _ in range(10):
        append(by_size, bytes(300))
    assert all(segment.size <= 1000 for segment in by_size.segments)
    assert len(by_size.segments) == 5

    by_time = new_log(tmp_path / "time", segment_ms=1000)
    for age in (0, 500, 1000, 1001, 1500, 2002):
        append(by_time, timestamp_ms=NOW_MS + age)
    assert [segment.base_offset for segment in by_time.segments] == [0, 3, 5]

    by_index = new_log(tmp_path / "index", segment_index_bytes=48, index_interval_bytes=0)
    for number in range(20):
        append(by_index, timestamp_ms=NOW_MS + number)
    assert len(by_index.segments) > 4
    assert values(by_size) == [bytes(300)] * 10
    assert len(read_all(by_index)) == 20


def test_roll_of_a_log_without_times_goes_by_the_segments_age(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_ms=1000)
    append(log, timestamp_ms=-1, now_ms=NOW_MS)
    append(log, timestamp_ms=-1, now_ms=NOW_MS + 1000)
    append(log, timestamp_ms=-1, now_ms=NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
