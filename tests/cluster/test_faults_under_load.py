"""Three brokers, three replicas, two of them in sync at least, producers and a consumer at work: no fault shows.

Every acknowledged record is there once, where its producer was told, in the order in which it was sent; nothing that
was read vanishes; the replicas' files are the same up to the watermark, and clean for Kafka's own tool.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.faults import FAULTS, Fault, Scene
from tests.cluster.faults_replicas import check_with_kafkas_tool, diverging
from tests.cluster.faults_traffic import Traffic
from tests.cluster.three_brokers import NUMBERS, three_brokers
from tests.peers import ZooKeeperServer

PARTITIONS = 3
SETTINGS = {
    "min.insync.replicas": "2",
    "log.roll.ms": "1000",  # several segments
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(params=["embedded", "zookeeper"])
def store(request: pytest.FixtureRequest, topic_name: str) -> dict[str, str]:
    """The settings that choose a metadata store."""
    if request.param == "embedded":
        return {}
    server: ZooKeeperServer = request.getfixturevalue("zookeeper")
    return {"zookeeper.connect": f"{server.address}/{topic_name}", "zookeeper.session.timeout.ms": "2000"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_no_record_is_lost_doubled_moved_or_different_elsewhere(
    fault: Fault, store: dict[str, str], tmp_path: Path, topic_name: str
) -> None:
    with three_brokers(tmp_path, {**SETTINGS, **store}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(topic_name, PARTITIONS, len(NUMBERS))])[topic_name].result(20)
        with Traffic(cluster.bootstrap, topic_name, PARTITIONS) as traffic:
            scene = Scene(cluster, traffic, topic_name, random.Random(random.getrandbits(32)))
            traffic.until_all_move()
            fault(scene)
            scene.until_all_are_in_sync()
            traffic.until_all_move()
        high_watermarks = traffic.read_all()
        for number in NUMBERS:
            cluster.stop(number)
        assert traffic.anomalies() == []
        assert diverging(cluster, topic_name, high_watermarks) == []
        check_with_kafkas_tool(cluster, topic_name, high_watermarks)
