"""Kafka's own DumpLogSegments reads every kind of file that a log writes, and finds nothing wrong."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.records.control import ControlType, EndMarker
from barnabas.storage.disk import RealDisk
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.recovery import LogState, create_log, open_log
from tests.peers import kafka_tool

NOW_MS = 1_700_000_000_000
CONFIG: dict[str, Any] = {"segment_bytes": 8000, "index_interval_bytes": 600}
COMPLAINTS = re.compile(
    r"mismatch|out of order|not found|corrupt|invalid|exception|failed|error|is not valid|isvalid: false",
    re.IGNORECASE,
)


def _new(directory: Path, **config: Any) -> Log:
    directory.mkdir(parents=True)
    settings = LogConfig(**{**CONFIG, **config})
    return create_log(RealDisk(), str(directory), "topic", 0, bytes(16), settings, random.Random(1), NOW_MS)


def _reopen(directory: Path, *, clean: bool) -> Log:
    state = LogState(is_clean=clean)
    return open_log(
        RealDisk(), str(directory), "topic", 0, bytes(16), LogConfig(**CONFIG), random.Random(1), NOW_MS, state
    )[0]


def _fill(log: Log, seed: int, batches: int = 120, *, producers: int = 3, start: int = 0) -> None:
    rng = random.Random(seed)
    sequences = dict.fromkeys(range(producers), start)
    for number in range(batches):
        producer = rng.randrange(-1, producers)
        builder = BatchBuilder(rng.choice(list(Compression)))
        if producer >= 0:
            builder.producer_id, builder.producer_epoch = producer, 0
            builder.base_sequence = sequences[producer]
        for _ in range(rng.randrange(1, 8)):
            timestamp = NOW_MS + rng.randrange(100_000)
            builder.append(rng.randbytes(5), rng.randbytes(rng.randrange(200)), [("h", b"x")], timestamp)
        if producer >= 0:
            sequences[producer] += len(builder)
        log.append_as_leader(memoryview(builder.build()), number // 50, NOW_MS)
    log.set_high_watermark(log.log_end_offset)


def _transactions(log: Log) -> None:
    sequences = dict.fromkeys(range(4), 0)
    rng = random.Random(9)
    for number in range(80):
        producer = rng.randrange(4)
        builder = BatchBuilder(
            producer_id=producer, producer_epoch=0, base_sequence=sequences[producer], transactional=True
        )
        builder.append(b"key", rng.randbytes(150), timestamp_ms=NOW_MS + number)
        sequences[producer] += 1
        log.append_as_leader(memoryview(builder.build()), 0, NOW_MS + number)
        if rng.random() < 0.4:
            outcome = rng.choice(list(ControlType))
            log.append_end_marker(EndMarker(outcome, 1), producer, 0, 0, NOW_MS + number)
    log.set_high_watermark(log.log_end_offset)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Logs of every make, each closed cleanly in the end."""
    root = tmp_path_factory.mktemp("logs")

    plain = _new(root / "plain")
    _fill(plain, 1)
    plain.close()

    stamped = _new(root / "log-append-time", message_timestamp_type="LogAppendTime")
    _fill(stamped, 2)
    stamped.close()

    recompressed = _new(root / "recompressed", compression_type="zstd")
    _fill(recompressed, 3)
    recompressed.close()

    truncated = _new(root / "truncated")
    _fill(truncated, 4)
    truncated.truncate_to(truncated.log_end_offset * 2 // 3)
    _fill(truncated, 5, 40, producers=0)
    truncated.close()

    crashed = _new(root / "recovered")
    _fill(crashed, 6)
    last = Path(crashed.segments.active.file.path)
    last.write_bytes(last.read_bytes()[:-5])
    recovered = _reopen(root / "recovered", clean=False)
    recovered.set_high_watermark(recovered.log_end_offset)
    recovered.close()

    resumed = _new(root / "resumed")
    _fill(resumed, 7, 30)
    resumed.close()
    resumed = _reopen(root / "resumed", clean=True)
    _fill(resumed, 8, 60, producers=0)
    resumed.close()

    trimmed = _new(root / "trimmed", retention_bytes=10_000)
    _fill(trimmed, 9)
    assert trimmed.delete_old_segments(NOW_MS) > 0
    trimmed.close()

    transactional = _new(root / "transactional")
    _transactions(transactional)
    transactional.close()
    return {path.name: path for path in root.iterdir()}


def _dump(directories: dict[str, Path], pattern: str, *options: str) -> dict[str, str]:
    """What the tool prints of each file that fits the pattern."""
    files = [str(path) for directory in directories.values() for path in sorted(directory.glob(pattern))]
    assert files
    printed = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(files), *options)
    parts = re.split(r"^Dumping (.+)$", printed, flags=re.MULTILINE)
    dumped = dict(zip(parts[1::2], parts[2::2]))
    assert set(dumped) == set(files)
    gaps = re.findall(r"^Non-consecutive offsets in (.+)\n((?:  -?\d+ is followed by \d+\n)+)", printed, re.MULTILINE)
    for file, gap in gaps:  # the tool takes -1 for the offset before a file's first, as with Kafka's own files
        assert gap == f"  -1 is followed by {int(Path(file).stem)}\n", f"{file}: {gap}"
    for file, text in dumped.items():
        assert not COMPLAINTS.search(text), f"{file}:\n{text[-2000:]}"
    assert not COMPLAINTS.search(parts[0])
    return dumped


def test_every_batch_and_record_is_read_with_deep_iteration(directories: dict[str, Path]) -> None:
    dumped = _dump(directories, "*.log", "--deep-iteration", "--print-data-log")
    for name, directory in directories.items():
        offsets = [
            int(offset)
            for file in sorted(directory.glob("*.log"))
            for offset in re.findall(r"^\| offset: (\d+)", dumped[str(file)], re.MULTILINE)
        ]
        log = _reopen(directory, clean=True)
        assert offsets == list(range(log.log_start_offset, log.log_end_offset)), name


def test_the_offset_and_time_indexes_agree_with_the_log(directories: dict[str, Path]) -> None:
    dumped = _dump(directories, "*index", "--verify-index-only")
    assert any(file.endswith(".timeindex") for file in dumped)
    assert any(file.endswith(".txnindex") for file in dumped)


def test_the_indexes_are_sane_and_hold_what_our_own_hold(directories: dict[str, Path]) -> None:
    sane = _dump(directories, "*[0-9].*index", "--index-sanity-check")
    assert sane
    dumped = _dump(directories, "*.index")
    for name, directory in directories.items():
        for segment in _reopen(directory, clean=True).segments:
            text = dumped[f"{directory}/{segment.base_offset:020d}.index"]
            found = [tuple(map(int, pair)) for pair in re.findall(r"offset: (\d+) position: (\d+)", text)]
            assert found == segment.indexes.offset.entries() or not segment.indexes.offset.entries(), name


def test_producer_snapshots_are_read(directories: dict[str, Path]) -> None:
    dumped = _dump(directories, "*.snapshot")
    directory = directories["plain"]
    log = _reopen(directory, clean=True)
    text = dumped[f"{directory}/{log.log_end_offset:020d}.snapshot"]
    line = r"producerId: (\d+) producerEpoch: (\d+) .*firstSequence: (\d+) lastSequence: (\d+) lastOffset: (\d+)"
    found = [tuple(map(int, fields)) for fields in re.findall(line, text)]
    expected = [
        (entry.producer_id, entry.epoch, batch.base_sequence, batch.last_sequence, batch.last_offset)
        for entry in log.producers.entries.values()
        for batch in entry.batches
    ]
    assert len(log.producers.entries) == 3
    assert found == expected


def test_aborted_transactions_are_read(directories: dict[str, Path]) -> None:
    dumped = _dump(directories, "*.txnindex")
    directory = directories["transactional"]
    log = _reopen(directory, clean=True)
    found = [
        tuple(map(int, fields))
        for file in sorted(dumped)
        if file.startswith(str(directory))
        for fields in re.findall(
            r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", dumped[file]
        )
    ]
    expected = [tuple(txn) for segment in log.segments for txn in segment.txn_index.aborted]
    assert len(expected) > 5
    assert found == expected, dumped
