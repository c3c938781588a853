"""A directory that Apache Kafka itself wrote is opened, read back record by record, and continued."""

from __future__ import annotations

import random
import re
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.records.builder import BatchBuilder
from barnabas.records.reader import read_records
from barnabas.storage import checkpoints
from barnabas.storage.disk import RealDisk
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.recovery import LogState, Recovery, open_log
from barnabas.storage.segment import Segment
from tests.peers import QUICK_JVM, KafkaServer, kafka_tool

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW_MS = 1_700_000_000_000
SMALL_SEGMENTS = {"segment.bytes": str(1 << 20), "index.interval.bytes": "2000"}


class Written(NamedTuple):
    data_dir: Path
    values: list[bytes]
    keys: list[bytes]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """One topic of several segments: all codecs, idempotent and not, transactions that commit and that abort."""
    directory = tmp_path_factory.mktemp("kafka")
    rng = random.Random(1)
    values: list[bytes] = []
    with KafkaServer(directory, jvm=(*QUICK_JVM, "-Xmx512m")) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_topics([NewTopic("topic", 1, 1, config=SMALL_SEGMENTS)])["topic"].result(30)
        for codec in CODECS:
            for idempotent in (False, True):
                producer = Producer(
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
                    producer.produce("topic", value, key=b"%d" % len(values), timestamp=NOW_MS + len(values))
                    values.append(value)
                    producer.poll(0)
                assert producer.flush(30) == 0
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
    keys = [b"%d" % number for number in range(len(values) - 6)] + [b"t"] * 6
    shutil.copytree(directory / "data", directory / "untouched")
    return Written(directory / "data", values, keys)


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


def test_kafka_serves_a_directory_that_barnabas_went_on_with(original: Written) -> None:
    """The other way round: Kafka starts on what this log appended, rolled and closed, and reads it all."""
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
    with KafkaServer(original.data_dir.parent, jvm=(*QUICK_JVM, "-Xmx512m")) as kafka:
        consumer = Consumer(
            {"bootstrap.servers": kafka.address, "group.id": "g", "isolation.level": "read_uncommitted"}
        )
        consumer.assign([TopicPartition("topic", 0, 0)])
        found: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(found) < len(original.values) + len(added) and time.monotonic() < deadline:
            messages = consumer.consume(1000, 1.0)
            assert not [message.error() for message in messages if message.error()]
            found += [message.value() for message in messages]
        low, high = consumer.get_watermark_offsets(TopicPartition("topic", 0), 10)
        consumer.close()
    assert found == original.values + added
    assert (low, high) == (0, end)
    assert "ERROR" not in (original.data_dir.parent / "kafka.log").read_text()
