"""A directory that Apache Kafka itself wrote is read record by record, continued, cleaned, and given back to it."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.records.builder import BatchBuilder
from barnabas.records.reader import read_records
from barnabas.storage import checkpoints
from barnabas.storage.disk import RealDisk
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.recovery import LogState, Recovery, open_log
from barnabas.storage.segment import Segment
from tests.peers import QUICK_JVM, KafkaServer, eventually, kafka_tool
from tests.storage_oracles.clients import consume, end_offset, producer, write
from tests.storage_oracles.compaction import compact

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW_MS = 1_700_000_000_000
SMALL_SEGMENTS = {"segment.bytes": str(1 << 20), "index.interval.bytes": "2000"}


COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}


class Written(NamedTuple):
    """What `topic` has, and what a reader of committed records finds in `compacted`, which is not cleaned yet."""

    data_dir: Path
    values: list[bytes]
    keys: list[bytes]
    to_compact: list[Message]
    compacted_end: int


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Topics of several segments: all codecs, idempotent and not, transactions that commit and that abort."""
    directory = tmp_path_factory.mktemp("kafka")
    rng = random.Random(1)
    values: list[bytes] = []
    with KafkaServer(directory, {"log.cleaner.backoff.ms": "3600000"}, jvm=(*QUICK_JVM, "-Xmx512m")) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        for name, config in (("topic", SMALL_SEGMENTS), ("compacted", COMPACTED)):
            admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
        for codec in CODECS:
            for idempotent in (False, True):
                sender = Producer(
                    {
                        "bootstrap.servers": kafka.address,
                        "compression.type": codec,
                        "enable.idempotence": idempotent,
                        "linger.ms": 5,
                        "batch.num.messages": 20,
                    }
                )
                for number in range(300):
                    value = rng.randbytes(500) + b"%d" % number
                    sender.produce("topic", value, key=b"%d" % len(values), timestamp=NOW_MS + len(values))
                    values.append(value)
                    sender.poll(0)
                assert sender.flush(30) == 0
        transactional = Producer({"bootstrap.servers": kafka.address, "transactional.id": "t"})
        transactional.init_transactions(30)
        for number in range(6):
            transactional.begin_transaction()
            transactional.produce("topic", b"transaction %d" % number, key=b"t", timestamp=NOW_MS)
            values.append(b"transaction %d" % number)
            transactional.flush(30)
            if number % 2:
                transactional.abort_transaction(30)
            else:
                transactional.commit_transaction(30)
        _write_to_compact(kafka.address)
        end = end_offset(kafka.address, "compacted")
        to_compact = consume(kafka.address, "compacted", end, **{"isolation.level": "read_committed"})
    keys = [b"%d" % number for number in range(len(values) - 6)] + [b"t"] * 6
    shutil.copytree(directory / "data", directory / "untouched")
    return Written(directory / "data", values, keys, to_compact, end)


def _write_to_compact(address: str) -> None:
    rng = random.Random(5)
    write(address, "compacted", rng, 2000)
    transactional = producer(address, **{"transactional.id": "c"})
    transactional.init_transactions(30)
    for number in range(10):
        transactional.begin_transaction()
        for _ in range(100):
            transactional.produce("compacted", rng.randbytes(1000), key=b"%d" % rng.randrange(300))
        transactional.flush(30)  # or an abort would have nothing to abort
        if number % 2:
            transactional.abort_transaction(30)
        else:
            transactional.commit_transaction(30)
    write(address, "compacted", rng, 2000)


@pytest.fixture
def written(original: Written, tmp_path: Path) -> Written:
    """A copy of what Kafka wrote, to do with as one likes."""
    shutil.copytree(original.data_dir.parent / "untouched", tmp_path / "data")
    return original._replace(data_dir=tmp_path / "data")


def _open(written: Written, *, clean: bool) -> tuple[Log, Recovery]:
    disk, directory = RealDisk(), f"{written.data_dir}/topic-0"
    topic_id = checkpoints.read_topic_id(disk, directory)
    assert topic_id is not None
    recovery_points = checkpoints.read_offsets(disk, f"{written.data_dir}/{checkpoints.RECOVERY_POINTS}")
    state = LogState(clean, recovery_points["topic", 0] if clean else 0, 0, 1 << 60)
    config = LogConfig(segment_bytes=1 << 20, index_interval_bytes=2000)
    return open_log(disk, directory, "topic", 0, topic_id, config, random.Random(1), NOW_MS, state)


def _records(log: Log) -> list[tuple[bytes | None, bytes | None, int]]:
    found, offset = [], 0
    while offset < log.log_end_offset:
        part = log.read(offset, 100_000, log.log_end_offset, True)
        found += [
            (record.key, record.value, record.timestamp_ms)
            for record in read_records(memoryview(part.read()), from_offset=offset)
        ]
        offset = part.next_offset
    return found


def test_files_beside_the_logs_are_understood(written: Written) -> None:
    disk, directory = RealDisk(), str(written.data_dir)
    properties = checkpoints.read_properties(disk, f"{directory}/meta.properties")
    assert (properties["version"], properties["node.id"]) == ("1", "1")
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS):
        offsets = checkpoints.read_offsets(disk, f"{directory}/{name}")
        assert offsets["topic", 0] == len(written.values) + 6  # and a marker for each transaction
    mark = (written.data_dir / ".kafka_cleanshutdown").read_text()
    assert re.fullmatch(r'\{"version":0,"brokerEpoch":-?\d+\}', mark)


def test_kafkas_own_segments_draw_the_same_remark_from_the_tool(written: Written) -> None:
    """DumpLogSegments takes -1 for the offset before a file's first; that is no fault of the file."""
    log, _ = _open(written, clean=True)
    last = f"{written.data_dir}/topic-0/{log.segments.active.base_offset:020d}.log"
    printed = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", last, "--deep-iteration")
    remarks = re.findall(r"(-?\d+) is followed by (\d+)", printed)
    assert remarks == [("-1", str(log.segments.active.base_offset))]


def test_a_clean_directory_is_read_back_identically_without_a_scan(written: Written) -> None:
    log, recovery = _open(written, clean=True)
    assert (recovery.scanned_segments, len(log.segments) > 1) == (0, True)
    records = _records(log)
    assert [value for _, value, _ in records] == written.values
    assert [key for key, _, _ in records] == written.keys
    assert len(log.producers.entries) == len(CODECS) + 1
    assert [
        (txn.producer_id >= 0, txn.last_offset - txn.first_offset) for txn in log.aborted_transactions(0, 1 << 60)
    ] == [(True, 1)] * 3
    assert log.last_stable_offset == log.log_end_offset
    assert log.leader_epochs.entries[0].start_offset == 0
    for offset in range(0, len(written.values) - 6, 97):
        found = log.offset_for_timestamp(NOW_MS + offset)
        assert found is not None
        assert (found.offset, found.timestamp) == (offset, NOW_MS + offset)


def test_what_a_scan_rebuilds_is_what_kafka_had_written(written: Written) -> None:
    theirs, _ = _open(written, clean=True)
    kept = {segment.base_offset: _indexes(segment) for segment in theirs.segments}
    ours, recovery = _open(written, clean=False)
    assert (recovery.scanned_segments, recovery.dropped_bytes) == (len(kept), 0)
    for segment in ours.segments:
        segment.seal()
    assert {segment.base_offset: _indexes(segment) for segment in ours.segments} == kept
    assert _producers(ours) == _producers(theirs)
    assert ours.leader_epochs.entries == theirs.leader_epochs.entries
    assert [value for _, value, _ in _records(ours)] == written.values


def _indexes(segment: Segment) -> tuple[object, ...]:
    return segment.indexes.offset.entries(), segment.indexes.time.entries(), segment.txn_index.aborted


def _producers(log: Log) -> dict[int, tuple[int, ...]]:
    return {
        entry.producer_id: (
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in log.producers.entries.values()
    }


class GivenBack(NamedTuple):
    """A Kafka that was started on a directory in which Barnabas had worked, and what it must serve."""

    kafka: KafkaServer
    values: list[bytes]
    end: int
    newest: list[tuple[int, bytes, bytes | None]]
    active_offset: int


@pytest.fixture(scope="module")
def given_back(original: Written) -> Iterator[GivenBack]:
    """`topic` was appended to, rolled and closed, `compacted` was cleaned."""
    values, end = _go_on(original)
    newest, active_offset = _clean(original)
    with KafkaServer(original.data_dir.parent, jvm=(*QUICK_JVM, "-Xmx512m")) as kafka:
        yield GivenBack(kafka, values, end, newest, active_offset)
    assert "ERROR" not in (original.data_dir.parent / "kafka.log").read_text()


def _go_on(original: Written) -> tuple[list[bytes], int]:
    log, _ = _open(original, clean=True)
    entry = next(iter(log.producers.entries.values()))
    sequence = entry.last_sequence + 1
    added = [b"added %d " % number + bytes(20_000) for number in range(120)]
    for number, value in enumerate(added):
        builder = BatchBuilder(
            producer_id=entry.producer_id, producer_epoch=entry.epoch, base_sequence=sequence + number
        )
        builder.append(b"k", value, timestamp_ms=NOW_MS)
        log.append_as_leader(memoryview(builder.build()), log.leader_epochs.latest, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    segments, end = len(log.segments), log.log_end_offset
    log.close()
    assert segments > 4
    return original.values + added, end


def _clean(original: Written) -> tuple[list[tuple[int, bytes, bytes | None]], int]:
    """The last record of each key below the active segment, and where that begins."""
    directory, end = original.data_dir / "compacted-0", original.compacted_end
    state = LogState(is_clean=True, recovery_point=end, high_watermark=end)
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=1 << 20)
    log, _ = open_log(RealDisk(), str(directory), "compacted", 0, bytes(16), config, random.Random(1), NOW_MS, state)
    active = log.segments.active.base_offset
    segments, size = len(log.segments), log.size_bytes
    for _ in range(2):  # the second puts together what the first has left of the segments
        log.first_dirty_offset = 0
        compact(log, int(time.time() * 1000))
    assert (len(log.segments) < segments, log.size_bytes < size / 2) == (True, True)
    log.close()
    return sorted({m.key(): _row(m) for m in original.to_compact if m.offset() < active}.values()), active


def _row(message: Message) -> tuple[int, bytes, bytes | None]:
    return message.offset(), message.key(), message.value()


def test_kafka_serves_a_directory_that_barnabas_went_on_with(given_back: GivenBack) -> None:
    address = given_back.kafka.address
    eventually(lambda: end_offset(address, "topic"), given_back.end)
    found = consume(address, "topic", given_back.end, **{"isolation.level": "read_uncommitted"})
    assert [message.value() for message in found] == given_back.values


def test_kafka_serves_a_directory_that_was_cleaned_here(original: Written, given_back: GivenBack) -> None:
    address = given_back.kafka.address
    eventually(lambda: end_offset(address, "compacted"), original.compacted_end)
    for isolation in ("read_committed", "read_uncommitted"):
        found = consume(address, "compacted", original.compacted_end, **{"isolation.level": isolation})
        assert [_row(m) for m in found if m.offset() < given_back.active_offset] == given_back.newest
    write(address, "compacted", random.Random(6), 1000)
