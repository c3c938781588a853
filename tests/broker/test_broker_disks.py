"""What a broker's disks mean for its clients: flushes, failing directories, retention, crashes."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.records.compression import Compression
from barnabas.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from tests.broker.metrics import Metrics
from tests.broker.servers import barnabas_only
from tests.broker.test_broker_fetch import FOREVER_MS, request_for
from tests.broker.test_broker_offsets import delete_records
from tests.broker.wire_client import EARLIEST, LATEST, Client, batch, now_ms, produce_request
from tests.peers import BarnabasServer, eventually, free_port, kafka_tool

pytestmark = barnabas_only("how a broker keeps its files is its own affair")

# flushing


def test_nothing_is_acknowledged_before_its_fsync_and_many_share_one(tmp_path: Path) -> None:
    metrics = Metrics(free_port())
    with BarnabasServer(tmp_path / "data", arguments=metrics.arguments) as broker, Client(broker.address) as client:
        topic = client.create_topic(config={"flush.messages": "1"})
        before = metrics.value("barnabas_fsync_seconds_count")
        for number in range(10):
            assert client.produce(topic, batch(), acks=1 if number % 2 else -1).base_offset == number
        assert metrics.value("barnabas_fsync_seconds_count") - before >= 10  # who waits for answers shares with nobody

        producers = [Client(broker.address) for _ in range(6)]
        before = metrics.value("barnabas_fsync_seconds_count")
        request = produce_request(topic, batch())
        sent = [(producer, [producer.send(request, 12) for _ in range(20)]) for producer in producers]
        for producer, ids in sent:
            for correlation_id in ids:
                (result,) = producer.receive(request, 12, correlation_id).responses[0].partition_responses
                assert result.error_code == ErrorCode.NONE
            producer.close()
        assert 1 <= metrics.value("barnabas_fsync_seconds_count") - before <= 60  # for 120 batches
        assert client.list_offset(topic, LATEST).offset == 130


def test_by_default_no_producer_waits_for_the_disk(tmp_path: Path) -> None:
    metrics = Metrics(free_port())
    with BarnabasServer(tmp_path / "data", arguments=metrics.arguments) as broker, Client(broker.address) as client:
        topic = client.create_topic()
        before = metrics.value("barnabas_fsync_seconds_count")
        for _ in range(20):
            client.produce(topic, batch())
        assert metrics.value("barnabas_fsync_seconds_count") == before


def test_a_flush_interval_counts_at_once(tmp_path: Path) -> None:
    metrics = Metrics(free_port())
    with BarnabasServer(tmp_path / "data", arguments=metrics.arguments) as broker, Client(broker.address) as client:
        topic = client.create_topic()
        client.produce(topic, batch())
        before = metrics.value("barnabas_fsync_seconds_count")
        client.alter_topic(topic, flush_ms="100")
        eventually(lambda: metrics.value("barnabas_fsync_seconds_count") > before, True)


# a directory that fails


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 4 MB."""
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", path], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting a file system is not allowed here: {mounted.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def two_directories(tmp_path: Path, small: Path) -> dict[str, str]:
    return {"log.dirs": f"{tmp_path / 'data'},{small}"}


def topics_by_directory(client: Client, sound: Path, small: Path) -> tuple[str, str]:
    """A topic in each directory; a broker puts new partitions where there are fewest."""
    places = {}
    for _ in range(2):
        topic = client.create_topic()
        for directory in (sound, small):
            if (directory / f"{topic}-0").exists():
                places[directory] = topic
    return places[sound], places[small]


def test_a_full_disk_takes_its_partitions_away_and_leaves_the_others(tmp_path: Path, small_disk: Path) -> None:
    sound_directory = tmp_path / "data"
    with BarnabasServer(sound_directory, two_directories(tmp_path, small_disk)) as broker:
        with Client(broker.address) as client, Client(broker.address) as waiting:
            sound, doomed = topics_by_directory(client, sound_directory, small_disk)
            assert client.produce(doomed, batch(b"kept")).base_offset == 0
            poll = request_for((doomed, 0, 1), wait_ms=FOREVER_MS)
            correlation_id = waiting.send(poll, 12)
            codes = [client.produce(doomed, batch(b"x" * 900_000)).error_code for _ in range(6)]
            assert codes[-1] == ErrorCode.KAFKA_STORAGE_ERROR
            waiting.receive(poll, 12, correlation_id)  # data came, or the error; it does not wait for the time-out
            assert client.fetch(doomed, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert client.list_offset(doomed, LATEST).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert client.produce(sound, batch(b"good")).base_offset == 0
            assert [record.value for record in client.read_all(sound)] == [b"good"]
            told = {result.log_dir: result for result in client.call(DescribeLogDirsRequest(None)).results}
            assert told[str(small_disk)].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert [topic.name for topic in told[str(sound_directory)].topics] == [sound]
            newest = client.create_topic()  # in the directory that is left
            assert client.produce(newest, batch()).base_offset == 0
        assert broker.stop() == 0
        assert "Traceback" not in broker.tail()


def test_a_lost_disk_is_noticed_at_the_start(tmp_path: Path, small_disk: Path) -> None:
    sound_directory = tmp_path / "data"
    settings = two_directories(tmp_path, small_disk)
    with BarnabasServer(sound_directory, settings) as broker, Client(broker.address) as client:
        sound, doomed = topics_by_directory(client, sound_directory, small_disk)
        client.produce(sound, batch(b"good"))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with BarnabasServer(sound_directory, settings) as broker, Client(broker.address) as client:
        assert client.produce(doomed, batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.fetch(doomed, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert [record.value for record in client.read_all(sound)] == [b"good"]
        assert client.produce(sound, batch()).base_offset == 1
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    with BarnabasServer(sound_directory, settings) as broker, Client(broker.address) as client:
        assert client.produce(doomed, batch()).base_offset == 0


@pytest.mark.parametrize("request_kind", ["fetch", "list offsets"])
def test_a_segment_that_cannot_be_read_is_a_failed_disk(tmp_path: Path, request_kind: str) -> None:
    data = tmp_path / "data"
    settings = {"log.segment.bytes": str(1024 * 1024), "log.dirs": f"{data},{tmp_path / 'other'}"}
    with BarnabasServer(data, settings) as broker, Client(broker.address) as client:
        doomed, sound = client.create_topic(), client.create_topic()
        for _ in range(2):
            client.produce(doomed, batch(b"x" * 600_000))
    with BarnabasServer(data, settings) as broker, Client(broker.address) as client:
        (segment,) = tmp_path.glob(f"*/{doomed}-0/{0:020}.log")
        segment.unlink()
        assert client.fetch(doomed, 1).error_code == ErrorCode.NONE  # nobody has noticed so far
        answer = client.fetch(doomed, 0) if request_kind == "fetch" else client.list_offset(doomed, 1)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.produce(doomed, batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.produce(sound, batch()).error_code == ErrorCode.NONE


def test_partitions_spread_over_directories(tmp_path: Path) -> None:
    directories = [tmp_path / name for name in ("data", "b", "c")]
    settings = {"log.dirs": ",".join(map(str, directories))}
    with BarnabasServer(directories[0], settings) as broker, Client(broker.address) as client:
        topic = client.create_topic(partitions=9)
        for partition in range(9):
            client.produce(topic, batch(b"%d" % partition), partition)
        assert [len(list(directory.glob(f"{topic}-*"))) for directory in directories] == [3, 3, 3]
        told = {result.log_dir: result for result in client.call(DescribeLogDirsRequest(None)).results}
        assert told.keys() == {str(directory) for directory in directories}
    with BarnabasServer(directories[0], settings) as broker, Client(broker.address) as client:
        for partition in range(9):
            assert [record.value for record in client.read_all(topic, partition)] == [b"%d" % partition]


# retention


def test_segments_are_renamed_before_they_are_removed(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": "100", "log.segment.bytes": str(1024 * 1024)}
    with BarnabasServer(tmp_path / "data", settings) as broker, Client(broker.address) as client:
        topic = client.create_topic(config={"file.delete.delay.ms": "3000"})
        directory = broker.data_dir / f"{topic}-0"
        for _ in range(4):
            client.produce(topic, batch(b"x" * 600_000))
        client.alter_topic(topic, retention_ms="1")
        eventually(lambda: client.list_offset(topic, EARLIEST).offset, 4)
        assert len(list(directory.glob("*.log.deleted"))) == 4
        assert [path.name for path in directory.glob("*.log")] == [f"{4:020}.log"]
        eventually(lambda: any(directory.glob("*.deleted")), False)


def test_old_records_go_by_their_own_time(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": "100", "log.retention.ms": "3600000"}
    with BarnabasServer(tmp_path / "data", settings) as broker, Client(broker.address) as client:
        old, new = client.create_topic(), client.create_topic()
        client.produce(old, batch(timestamp_ms=now_ms() - 7_200_000))
        client.produce(new, batch(timestamp_ms=now_ms()))
        eventually(lambda: client.list_offset(old, EARLIEST).offset, 1)
        assert client.list_offset(new, EARLIEST).offset == 0


def test_segments_below_deleted_records_go(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": "100", "log.segment.bytes": str(1024 * 1024)}
    with BarnabasServer(tmp_path / "data", settings) as broker, Client(broker.address) as client:
        topic = client.create_topic(config={"file.delete.delay.ms": "0"})
        for _ in range(4):
            client.produce(topic, batch(b"x" * 600_000))
        directory = broker.data_dir / f"{topic}-0"
        assert len(list(directory.glob("*.log"))) == 4
        assert delete_records(client, topic, 3).low_watermark == 3
        eventually(lambda: sorted(path.name for path in directory.glob("*.log")), [f"{3:020}.log"])


# crashes


def test_a_crash_under_load_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: dict[int, bytes] = {}
    settings = {"log.segment.bytes": str(1024 * 1024)}
    stop = threading.Event()

    def produce(address: str, topic: str, name: int) -> None:
        codecs = list(Compression)
        with Client(address) as own:
            number = 0
            while not stop.is_set():
                value = b"%d:%d:" % (name, number) + os.urandom(500)
                try:
                    result = own.produce(topic, batch(value, compression=codecs[number % len(codecs)]))
                except OSError:
                    return
                assert result.error_code == ErrorCode.NONE
                acknowledged[result.base_offset] = value
                number += 1

    topic = ""
    for _ in range(2):
        with BarnabasServer(tmp_path / "data", settings) as broker:
            with Client(broker.address) as client:
                topic = topic or client.create_topic()
            threads = [threading.Thread(target=produce, args=(broker.address, topic, name)) for name in range(4)]
            for thread in threads:
                thread.start()
            goal = len(acknowledged) + 200
            eventually(lambda: len(acknowledged) > goal, True)  # noqa: B023
            broker.kill()
            for thread in threads:
                thread.join(60)
    with BarnabasServer(tmp_path / "data", settings) as broker, Client(broker.address) as client:
        found = {record.offset: record.value for record in client.read_all(topic)}
        assert {offset: found.get(offset) for offset in acknowledged} == acknowledged
        assert sorted(found) == list(range(len(found)))
        client.produce(topic, batch(b"after"))
    segments = sorted((tmp_path / "data" / f"{topic}-0").glob("*.log"))
    told = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, segments))
    )
    assert "isvalid: false" not in told
    assert told.count("isvalid: true") == len(found) + 1


def test_a_torn_tail_is_cut_and_told(tmp_path: Path) -> None:
    metrics = Metrics(free_port())
    with BarnabasServer(tmp_path / "data") as broker:
        with Client(broker.address) as client:
            topic = client.create_topic()
            client.produce(topic, batch(b"whole"))
        broker.kill()
    with (tmp_path / "data" / f"{topic}-0" / f"{0:020}.log").open("ab") as log:
        log.write(batch(b"torn")[:50])
    with BarnabasServer(tmp_path / "data", arguments=metrics.arguments) as broker, Client(broker.address) as client:
        assert [record.value for record in client.read_all(topic)] == [b"whole"]
        assert metrics.value("barnabas_recovery_dropped_bytes_total") == 50
        assert "50" in next(line for line in broker.tail().splitlines() if topic in line)
        assert client.produce(topic, batch(b"next")).base_offset == 1


def test_after_a_clean_stop_nothing_is_scanned(tmp_path: Path) -> None:
    metrics = Metrics(free_port())
    with BarnabasServer(tmp_path / "data") as broker, Client(broker.address) as client:
        topic = client.create_topic()
        client.produce(topic, batch(b"x" * 100_000))
    with BarnabasServer(tmp_path / "data", arguments=metrics.arguments) as broker, Client(broker.address) as client:
        assert len(client.read_all(topic)) == 1
        assert metrics.value("barnabas_recovery_scanned_bytes_total") == 0
        assert metrics.value("barnabas_recovery_seconds_count") == 0


def test_requests_under_way_at_a_stop_are_kept_or_refused(tmp_path: Path) -> None:
    """What was acknowledged before a clean stop is there after it."""
    with BarnabasServer(tmp_path / "data") as broker, Client(broker.address) as client:
        topic = client.create_topic()
        request = produce_request(topic, batch(b"x" * 1000), acks=1)
        ids = [client.send(request, 12) for _ in range(200)]
        first = client.receive(request, 12, ids[0])
        broker.process.terminate()
        answered = 1
        try:
            for correlation_id in ids[1:]:
                client.receive(request, 12, correlation_id)
                answered += 1
        except OSError:
            pass
        assert first.responses[0].partition_responses[0].base_offset == 0
        assert broker.stop() == 0
    with BarnabasServer(tmp_path / "data") as broker, Client(broker.address) as client:
        assert client.list_offset(topic, LATEST).offset >= answered
