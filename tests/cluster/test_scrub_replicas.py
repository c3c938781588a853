"""Files of real brokers go bad, and librdkafka, which checks every CRC, judges what is left.

A damaged replica resigns, leaves the in-sync replicas and is fetched anew; the only copy is told of, and kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas import CorruptRecords
from barnabas.core.errors import ErrorCode
from barnabas.records.batch import HEADER_SIZE, headers
from barnabas.sync import Consumer as SyncConsumer
from barnabas.wire.messages import k19_create_topics as k19
from tests.broker.metrics import Metrics
from tests.broker.wire_client import Client
from tests.cluster.three_brokers import NUMBERS, Cluster, in_sync, leaders, three_brokers
from tests.peers import eventually, free_port

VALUES = [b"%04d %s" % (number, bytes(10_000)) for number in range(250)]
PATIENCE_S = 30
QUICKLY = {"barnabas.scrub.interval.ms": "100", "barnabas.scrub.bytes.per.second": str(1 << 30)}
NOT_AT_ALL = {"barnabas.scrub.interval.ms": "-1"}
SETTINGS = {"log.segment.bytes": str(1 << 20), "log.segment.delete.delay.ms": "0", "min.insync.replicas": "2"}


def create(cluster: Cluster, replicas: dict[str, tuple[int, ...]]) -> None:
    """Topics with one partition, on these brokers."""
    topics = [
        k19.CreatableTopic(topic, -1, -1, [k19.CreatableReplicaAssignment(0, list(brokers))])
        for topic, brokers in replicas.items()
    ]
    with Client(cluster.some_address) as client:
        results = client.call(k19.CreateTopicsRequest(topics)).topics
    assert {result.error_code for result in results} == {ErrorCode.NONE}


def write(cluster: Cluster, topics: Iterable[str], values: list[bytes] = VALUES) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0, "batch.size": 50_000}
    )
    for topic in topics:
        for value in values:
            producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def read(cluster: Cluster, topic: str, count: int = len(VALUES)) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "log_level": 0, "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), 60)
            assert messages, f"{len(found)} of {count} came"
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                found.append(message.value() or b"")
    finally:
        consumer.close()
    return found


def read_to_the_damage(cluster: Cluster, topic: str) -> tuple[list[bytes | None], int]:
    """With our own client: librdkafka aborts the process at a wrong CRC."""
    found: list[bytes | None] = []
    with SyncConsumer(cluster.bootstrap, topics=[topic], auto_offset_reset="earliest") as consumer:
        try:
            while True:
                found += [record.value for record in consumer.poll(PATIENCE_S * 1000)]
        except CorruptRecords as error:
            return found, error.position


def segments(cluster: Cluster, number: int, topic: str) -> list[Path]:
    return sorted((cluster.data_dir(number) / f"{topic}-0").glob("*.log"))


def flip_a_bit(segment: Path) -> None:
    """In the value of the second batch."""
    _, (position, _), *_ = headers(memoryview(segment.read_bytes()))
    flip(segment, position + HEADER_SIZE + 100)


def flip(file: Path, position: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        (byte,) = opened.read(1)
        opened.seek(position)
        opened.write(bytes([byte ^ 8]))


def cut(file: Path, size: int) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - size)


def check_replicas_are_the_same(cluster: Cluster, topic: str) -> None:
    eventually(lambda: in_sync(cluster.some_address, topic), {0: set(NUMBERS)}, PATIENCE_S)
    for files in zip(*(segments(cluster, number, topic) for number in NUMBERS), strict=True):
        assert len({file.read_bytes() for file in files}) == 1, f"{files} differ"


def test_damaged_replicas_are_found_given_up_and_fetched_anew(tmp_path: Path) -> None:
    metrics = {number: Metrics(free_port()) for number in NUMBERS}
    cluster = Cluster(tmp_path, {**SETTINGS, **QUICKLY})
    try:
        for number in NUMBERS:
            cluster.start(number, {"barnabas.metrics.port": str(metrics[number].port)})
        create(cluster, {"led": (1, 2, 3), "followed": (1, 2, 3), "short": (2, 3, 1), "alone": (3,)})
        write(cluster, ("led", "followed", "short", "alone"))

        flip_a_bit(segments(cluster, 1, "led")[1])
        flip_a_bit(segments(cluster, 2, "followed")[0])
        cut(segments(cluster, 3, "short")[1], 5000)
        cut(segments(cluster, 2, "short")[0].with_suffix(".index"), 8)
        eventually(lambda: metrics[1].value("barnabas_renewed_logs_total"), 1.0, PATIENCE_S)
        eventually(lambda: metrics[2].value("barnabas_renewed_logs_total"), 1.0, PATIENCE_S)
        eventually(lambda: metrics[3].value("barnabas_renewed_logs_total"), 1.0, PATIENCE_S)
        eventually(lambda: leaders(cluster.some_address, "led")[0] in (2, 3), True, PATIENCE_S)
        write(cluster, ["led"], [b"goes on"])
        for topic, values in {"led": [*VALUES, b"goes on"], "followed": VALUES, "short": VALUES}.items():
            check_replicas_are_the_same(cluster, topic)
            assert read(cluster, topic, len(values)) == values
        eventually(lambda: [stray.name for stray in tmp_path.glob("*/*-stray")], list[str](), PATIENCE_S)
        assert sum(each.value("barnabas_damaged_logs") for each in metrics.values()) == 0

        only = segments(cluster, 3, "alone")
        flip_a_bit(only[1])
        eventually(lambda: metrics[3].value("barnabas_damaged_logs"), 1.0, PATIENCE_S)
        eventually(lambda: "damaged replica is the only copy" in cluster.brokers[3].log.read_text(), True, PATIENCE_S)
        assert segments(cluster, 3, "alone") == only
        write(cluster, ["alone"], [b"goes on"])
        readable, damaged_at = read_to_the_damage(cluster, "alone")
        assert damaged_at >= int(only[1].stem)
        assert readable == VALUES[: len(readable)]
    finally:
        cluster.close()


def test_a_follower_that_cannot_use_what_it_is_sent_makes_its_leader_resign(tmp_path: Path) -> None:
    with three_brokers(tmp_path, {**SETTINGS, **NOT_AT_ALL}) as cluster:
        create(cluster, {"led": (1, 2, 3)})
        cluster.stop(3)
        write(cluster, ["led"])
        flip_a_bit(segments(cluster, 1, "led")[-1])
        cluster.start(3)
        eventually(lambda: leaders(cluster.some_address, "led"), {0: 2}, PATIENCE_S)
        check_replicas_are_the_same(cluster, "led")
        assert read(cluster, "led") == VALUES


def test_a_client_that_cannot_use_what_it_is_sent_makes_the_leader_resign(tmp_path: Path) -> None:
    """It asks again for the same, which is how the leader comes to look at it."""
    with three_brokers(tmp_path, {**SETTINGS, **NOT_AT_ALL}) as cluster:
        create(cluster, {"led": (1, 2, 3)})
        write(cluster, ["led"])
        flip_a_bit(segments(cluster, 1, "led")[1])
        found: list[bytes | None] = []
        errors = 0
        deadline = time.monotonic() + PATIENCE_S
        with SyncConsumer(cluster.bootstrap, topics=["led"], auto_offset_reset="earliest") as consumer:
            while len(found) < len(VALUES) and time.monotonic() < deadline:
                try:
                    found += [record.value for record in consumer.poll(1000)]
                except CorruptRecords:
                    errors += 1
        assert found == VALUES
        assert errors > 0
        eventually(lambda: leaders(cluster.some_address, "led") == {0: 1}, False, PATIENCE_S)
        check_replicas_are_the_same(cluster, "led")
        assert read(cluster, "led") == VALUES


def test_a_replica_that_lost_its_end_while_all_were_down_does_not_lead_those_that_have_it(tmp_path: Path) -> None:
    with three_brokers(tmp_path, {**SETTINGS, **NOT_AT_ALL}) as cluster:
        create(cluster, {"cut": (1, 2, 3), "flipped": (1, 2, 3), "gone": (1, 2, 3)})
        write(cluster, ["cut", "flipped", "gone"], VALUES[:50])
        cluster.kill(*NUMBERS)
        cut(segments(cluster, 1, "cut")[-1], 25_000)
        flip_a_bit(segments(cluster, 1, "flipped")[-1])
        for file in (cluster.data_dir(1) / "gone-0").iterdir():
            file.unlink()
        (cluster.data_dir(1) / "gone-0").rmdir()
        for file in cluster.data_dir(1).glob("*-checkpoint"):
            flip(file, 0)
        for number in NUMBERS:
            cluster.start(number)
        for topic in ("cut", "flipped", "gone"):
            check_replicas_are_the_same(cluster, topic)
            assert read(cluster, topic, 50) == VALUES[:50]
