"""Apache Kafka and librdkafka judge compaction: the tool reads cleaned files, clients see the last value of every key,
and a Kafka broker serves a directory that was cleaned here."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.records.control import ControlType, EndMarker
from barnabas.records.reader import records_of
from barnabas.storage import swap
from barnabas.storage.cleaner import examine, job_for
from barnabas.storage.cleaning import clean
from barnabas.storage.disk import RealDisk
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.recovery import LogState, create_log, open_log
from tests.peers import QUICK_JVM, BarnabasServer, KafkaServer, eventually, kafka_tool

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=6000, index_interval_bytes=500, delete_retention_ms=1000)
SETTINGS = {
    "log.cleaner.dedupe.buffer.size": 1 << 20,
    "log.cleaner.io.buffer.load.factor": 0.9,
    "log.cleaner.io.buffer.size": 1 << 16,
}
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


def _compact(log: Log, now_ms: int) -> None:
    job = log.prepare_flush()
    job.run(log.disk)
    log.complete_flush(job)
    for group in clean(log.disk, job_for(examine(log, now_ms), now_ms, SETTINGS, b"a secret")):
        old = [segment for segment in log.segments if segment.base_offset in group.base_offsets]
        swap.replace_segments(log, old, group.size)
        log.first_dirty_offset = group.end_offset


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
            _compact(log, NOW_MS + delay_ms)
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


def _producer(address: str, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": address, "linger.ms": 5, "batch.num.messages": 50, **settings})


def _consume(address: str, topic: str, end: int, **settings: object) -> list[Message]:
    """All that a consumer sees from offset 0, up to the end of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + 30
    at_end = False
    while not at_end:
        assert time.monotonic() < deadline
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                at_end = message.offset() == end
    consumer.close()
    return found


def _end_offset(address: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    try:
        end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)[1]
    except KafkaException:  # for a moment after its start, Kafka knows of no leader
        return -1
    finally:
        consumer.close()
    return end


def _write(address: str, topic: str, rng: random.Random, count: int) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = _producer(address, **{"compression.type": codec, "enable.idempotence": codec != "gzip"})
        for _ in range(count // 5):
            value = None if rng.random() < 0.1 else rng.randbytes(1200)
            producer.produce(topic, value, key=b"%d" % rng.randrange(300))
            producer.poll(0)
        assert producer.flush(30) == 0


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
            _write(broker.address, "topic", rng, 2500)
        end = _end_offset(broker.address, "topic")
        messages = _wait_until_compacted(broker.address, directory, end)
        broker.kill()
    with BarnabasServer(tmp_path / "data", settings) as broker:
        assert _end_offset(broker.address, "topic") == end
        again = _consume(broker.address, "topic", end)
        assert [(m.offset(), m.key(), m.value()) for m in again] == [(m.offset(), m.key(), m.value()) for m in messages]
        _write(broker.address, "topic", rng, 2500)
        end = _end_offset(broker.address, "topic")
        _wait_until_compacted(broker.address, directory, end)
        log = (tmp_path / "data.log").read_text()
    assert "log compacted" in log
    assert " error " not in log.lower()


def _wait_until_compacted(address: str, directory: Path, end: int) -> list[Message]:
    deadline = time.monotonic() + 30
    while True:
        active = _segments(directory)[-1]
        messages = _consume(address, "topic", end)
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

        producer = _producer(broker.address)
        for _ in range(6000):
            value = None if rng.random() < 0.1 else rng.randbytes(1000)
            producer.produce("topic", value, key=b"%d" % rng.randrange(500), on_delivery=remember)
            producer.poll(0)
        assert producer.flush(30) == 0
        assert len(written) == 6000
        directory = broker.data_dir / "topic-0"
        messages = _wait_until_compacted(broker.address, directory, 6000)
        active = _segments(directory)[-1]
    newest = {key: offset for offset, (key, _) in sorted(written.items()) if offset < active}
    expected = sorted([*newest.values(), *range(active, 6000)])
    assert [message.offset() for message in messages] == expected
    assert [(message.key(), message.value()) for message in messages] == [written[offset] for offset in expected]


def test_kafka_serves_a_directory_that_was_cleaned_here(tmp_path: Path) -> None:
    """Written by Kafka with transactions that commit and that abort, cleaned here, and given back."""
    config = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
    rng = random.Random(5)
    kafka_settings = {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "3600000"}
    with KafkaServer(tmp_path, kafka_settings, jvm=(*QUICK_JVM, "-Xmx512m")) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_topics([NewTopic("topic", 1, 1, config=config)])["topic"].result(30)
        _write(kafka.address, "topic", rng, 2000)
        transactional = _producer(kafka.address, **{"transactional.id": "t"})
        transactional.init_transactions(30)
        for number in range(10):
            transactional.begin_transaction()
            for _ in range(100):
                transactional.produce("topic", rng.randbytes(1000), key=b"%d" % rng.randrange(300))
            transactional.flush(30)  # or an abort would have nothing to abort
            if number % 2:
                transactional.abort_transaction(30)
            else:
                transactional.commit_transaction(30)
        _write(kafka.address, "topic", rng, 2000)
        end = _end_offset(kafka.address, "topic")
        before = _consume(kafka.address, "topic", end, **{"isolation.level": "read_committed"})
    directory = tmp_path / "data" / "topic-0"
    state = LogState(is_clean=True, recovery_point=end, high_watermark=end)
    settings = LogConfig(cleanup_policy=("compact",), segment_bytes=1 << 20)
    log, _ = open_log(RealDisk(), str(directory), "topic", 0, bytes(16), settings, random.Random(1), NOW_MS, state)
    active = log.segments.active.base_offset
    segments, size = len(log.segments), log.size_bytes
    for _ in range(2):  # the second puts together what the first has left of the segments
        log.first_dirty_offset = 0
        _compact(log, int(time.time() * 1000))
    assert (len(log.segments) < segments, log.size_bytes < size / 2) == (True, True)
    log.close()
    newest = {message.key(): message.offset() for message in before if message.offset() < active}
    expected = [m for m in before if m.offset() >= active or newest[m.key()] == m.offset()]
    with KafkaServer(tmp_path, jvm=(*QUICK_JVM, "-Xmx512m")) as kafka:
        eventually(lambda: _end_offset(kafka.address, "topic"), end)
        for isolation in ("read_committed", "read_uncommitted"):
            found = _consume(kafka.address, "topic", end, **{"isolation.level": isolation})
            below = [(m.offset(), m.key(), m.value()) for m in found if m.offset() < active]
            assert below == [(m.offset(), m.key(), m.value()) for m in expected if m.offset() < active]
        _write(kafka.address, "topic", rng, 1000)
    assert "ERROR" not in (tmp_path / "kafka.log").read_text()
