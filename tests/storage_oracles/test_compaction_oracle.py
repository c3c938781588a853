"""Apache Kafka and librdkafka judge compaction: its tool reads cleaned files, clients see each key's last value."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.records.control import ControlType, EndMarker
from barnabas.records.reader import records_of
from barnabas.storage.disk import RealDisk
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.recovery import LogState, create_log, open_log
from tests.peers import BarnabasServer, kafka_tool
from tests.storage_oracles.clients import consume, end_offset, producer, write
from tests.storage_oracles.compaction import compact

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=6000, index_interval_bytes=500, delete_retention_ms=1000)
COMPLAINTS = re.compile(
    r"mismatch|out of order|not found|corrupt|invalid|exception|failed|error|is not valid|isvalid: false",
    re.IGNORECASE,
)


def _fill(log: Log, seed: int, rounds: int = 150) -> None:
    rng = random.Random(seed)
    sequences = {producer_id: entry.last_sequence + 1 for producer_id, entry in log.producers.entries.items()}
    for number in range(rounds):
        producer_id = rng.randrange(-1, 4)
        builder = BatchBuilder(rng.choice(list(Compression)), transactional=producer_id >= 2)
        if producer_id >= 0:
            builder.producer_id, builder.producer_epoch = producer_id, 0
            builder.base_sequence = sequences.get(producer_id, 0)
        for _ in range(rng.randrange(1, 8)):
            value = None if rng.random() < 0.15 else rng.randbytes(rng.randrange(100))
            headers = [("h", b"x")] if rng.random() < 0.1 else []
            builder.append(b"%d" % rng.randrange(60), value, headers, NOW_MS + number * 10 + rng.randrange(50))
        sequences[producer_id] = builder.base_sequence + len(builder)
        log.append_as_leader(memoryview(builder.build()), number // 60, NOW_MS)
        if producer_id >= 2 and rng.random() < 0.7:
            outcome = rng.choice(list(ControlType))
            log.append_end_marker(EndMarker(outcome, 1), producer_id, 0, number // 60, NOW_MS + number * 10)
    for producer_id in (2, 3):
        log.append_end_marker(EndMarker(ControlType.COMMIT, 1), producer_id, 0, rounds // 60, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    log.roll(log.log_end_offset, NOW_MS)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Logs that were cleaned once, several times, and so that tombstones and markers have gone."""
    root = tmp_path_factory.mktemp("logs")
    for name, rounds in (("once", [0]), ("often", [0, 500, 900]), ("late", [0, 1500, 3000, 4500])):
        (root / name).mkdir()
        log = create_log(RealDisk(), str(root / name), "topic", 0, bytes(16), CONFIG, random.Random(1), NOW_MS)
        before = 0
        for seed, delay_ms in enumerate(rounds):
            _fill(log, seed)
            before = log.size_bytes
            compact(log, NOW_MS + delay_ms)
            assert log.size_bytes < before
        log.close()
    return {path.name: path for path in root.iterdir()}


def _open(directory: Path) -> Log:
    disk = RealDisk()
    state = LogState(is_clean=True)
    return open_log(disk, str(directory), "topic", 0, bytes(16), CONFIG, random.Random(1), NOW_MS, state)[0]


def _dump(directories: dict[str, Path], pattern: str, *options: str) -> dict[str, str]:
    files = [str(path) for directory in directories.values() for path in sorted(directory.glob(pattern))]
    printed = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(files), *options)
    parts = re.split(r"^Dumping (.+)$", printed, flags=re.MULTILINE)
    dumped = dict(zip(parts[1::2], parts[2::2]))
    assert set(dumped) == set(files)
    for file, text in dumped.items():
        # that offsets are not consecutive is the point of compaction, and all that may be said of it
        told = re.sub(r"^Non-consecutive offsets in .*\n(?:  -?\d+ is followed by \d+\n)+", "", text, flags=re.M)
        assert not COMPLAINTS.search(told), f"{file}:\n{told[-2000:]}"
    return dumped


def test_the_tool_reads_every_cleaned_batch_with_deep_iteration(directories: dict[str, Path]) -> None:
    dumped = _dump(directories, "*.log", "--deep-iteration", "--print-data-log")
    everything = "".join(dumped.values())
    assert re.search(r"count: 0 .*isvalid: true", everything)
    assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", everything)
    for directory in directories.values():
        log = _open(directory)
        found = [
            (int(offset), int(timestamp))
            for file in sorted(directory.glob("*.log"))
            for offset, timestamp in re.findall(
                r"^\| offset: (\d+) CreateTime: (\d+) keySize: \d+ valueSize: -?\d+ sequence: -?\d+ headerKeys: \[",
                dumped[str(file)],
                re.MULTILINE,
            )
        ]
        expected = [
            (record.offset, record.timestamp_ms)
            for segment in log.segments
            for position, header in segment.headers()
            for record in records_of(memoryview(segment.file.read(position, header.size)))
        ]
        assert found == expected


def test_the_tool_finds_the_indexes_of_cleaned_segments_sane(directories: dict[str, Path]) -> None:
    assert _dump(directories, "*[0-9].*index", "--index-sanity-check")
    dumped = _dump(directories, "*index", "--verify-index-only")
    assert any(file.endswith(".txnindex") for file in dumped)
    assert _dump(directories, "*.snapshot")


# on brokers


def _is_compacted(messages: list[Message], active_offset: int) -> bool:
    """Below the active segment, no key twice."""
    keys = [message.key() for message in messages if message.offset() < active_offset]
    return len(keys) == len(set(keys))


def _segments(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def test_a_consumer_sees_exactly_the_last_value_of_every_key(tmp_path: Path) -> None:
    """On a broker that compacts while it is written to, and after it was killed and started again."""
    settings = {"log.cleaner.backoff.ms": "50"}
    config = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
    rng = random.Random(3)
    with BarnabasServer(tmp_path / "data", settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("topic", 1, 1, config=config)])["topic"].result(30)
        directory = broker.data_dir / "topic-0"
        for _ in range(3):
            write(broker.address, "topic", rng, 1200)
        end = end_offset(broker.address, "topic")
        messages = _wait_until_compacted(broker.address, directory, end)
        broker.kill()
    with BarnabasServer(tmp_path / "data", settings) as broker:
        assert end_offset(broker.address, "topic") == end
        again = consume(broker.address, "topic", end)
        assert [(m.offset(), m.key(), m.value()) for m in again] == [(m.offset(), m.key(), m.value()) for m in messages]
        write(broker.address, "topic", rng, 1200)
        end = end_offset(broker.address, "topic")
        _wait_until_compacted(broker.address, directory, end)
        log = (tmp_path / "data.log").read_text()
    assert "log compacted" in log
    assert " error " not in log.lower()


def _wait_until_compacted(address: str, directory: Path, end: int) -> list[Message]:
    deadline = time.monotonic() + 30
    while True:
        active = _segments(directory)[-1]
        messages = consume(address, "topic", end)
        if _is_compacted(messages, active) and active == _segments(directory)[-1]:
            return messages
        assert time.monotonic() < deadline, "not compacted"
        time.sleep(0.1)


def test_the_last_values_are_those_that_were_written(tmp_path: Path) -> None:
    """Key by key, against what the producer remembers."""
    config = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
    rng = random.Random(4)
    with BarnabasServer(tmp_path / "data", {"log.cleaner.backoff.ms": "50"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("topic", 1, 1, config=config)])["topic"].result(30)
        written: dict[int, tuple[bytes, bytes | None]] = {}

        def remember(error: object, message: Message) -> None:
            assert error is None
            written[message.offset()] = (message.key(), message.value())

        sender = producer(broker.address)
        for _ in range(6000):
            value = None if rng.random() < 0.1 else rng.randbytes(1000)
            sender.produce("topic", value, key=b"%d" % rng.randrange(500), on_delivery=remember)
            sender.poll(0)
        assert sender.flush(30) == 0
        assert len(written) == 6000
        directory = broker.data_dir / "topic-0"
        messages = _wait_until_compacted(broker.address, directory, 6000)
        active = _segments(directory)[-1]
    newest = {key: offset for offset, (key, _) in sorted(written.items()) if offset < active}
    expected = sorted([*newest.values(), *range(active, 6000)])
    assert [message.offset() for message in messages] == expected
    assert [(message.key(), message.value()) for message in messages] == [written[offset] for offset in expected]
