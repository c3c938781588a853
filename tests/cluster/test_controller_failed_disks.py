"""A broker whose disk fails hands over what it leads there, and all it leads once it has no disk left."""

from __future__ import annotations

import resource
from pathlib import Path

from confluent_kafka import Producer

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages import k19_create_topics as k19
from tests.broker.wire_client import Client
from tests.cluster.three_brokers import NUMBERS, Cluster, leaders, living_brokers
from tests.peers import eventually

LIMIT_BYTES = 512 * 1024
RECORDS = 40
RECORD_BYTES = 30_000
PATIENCE_S = 30


def break_disks(cluster: Cluster, number: int) -> None:
    """From now on no file of this broker can grow beyond a limit; a write that fails is a failed disk to it."""
    resource.prlimit(cluster.brokers[number].pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))


def create(address: str, led: dict[str, int]) -> None:
    """Topics with one partition on every broker, led by these."""
    topics = [
        k19.CreatableTopic(topic, -1, -1, [k19.CreatableReplicaAssignment(0, [leader, *(set(NUMBERS) - {leader})])])
        for topic, leader in led.items()
    ]
    with Client(address) as client:
        results = client.call(k19.CreateTopicsRequest(topics)).topics
    assert {result.error_code for result in results} == {ErrorCode.NONE}


def fill(producer: Producer, topic: str) -> None:
    """More than one file may hold, all of it acknowledged."""
    failures: list[object] = []
    for _ in range(RECORDS):
        producer.produce(
            topic, bytes(RECORD_BYTES), callback=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def test_leaders_move_away_from_failed_disks(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    two_disks, one_disk, sound = NUMBERS
    try:
        cluster.start(sound)  # the first is the controller: no limit must keep it from writing the metadata
        cluster.start(two_disks, {"log.dirs": f"{cluster.data_dir(two_disks)},{tmp_path / 'other'}"})
        cluster.start(one_disk)
        asked = cluster.address(sound)
        led = {"a": two_disks, "b": two_disks, "c": one_disk, "d": one_disk}
        create(asked, led)
        eventually(lambda: len(list((tmp_path / "other").glob("[ab]-0"))), 1)
        (beside,) = (topic for topic in "ab" if (tmp_path / "other" / f"{topic}-0").exists())
        (doomed,) = {"a", "b"} - {beside}
        producer = Producer(
            {"bootstrap.servers": asked, "enable.idempotence": True, "log_level": 0, "compression.type": "none"}
        )

        break_disks(cluster, two_disks)
        fill(producer, doomed)
        eventually(lambda: leaders(asked, doomed)[0] in (one_disk, sound), True, PATIENCE_S)
        assert leaders(asked, beside) == {0: two_disks}
        assert living_brokers(asked) == set(NUMBERS)
        producer.produce(beside, b"still written")
        assert producer.flush(PATIENCE_S) == 0

        break_disks(cluster, one_disk)
        fill(producer, "c")
        eventually(lambda: living_brokers(asked), {two_disks, sound}, PATIENCE_S)
        eventually(lambda: one_disk in {leaders(asked, topic)[0] for topic in led}, False, PATIENCE_S)
        producer.produce("d", b"still written")
        assert producer.flush(PATIENCE_S) == 0
    finally:
        cluster.close()
