"""Three brokers, three replicas, two of them in sync at least, producers and a consumer at work: no fault shows.

Each fault is seen on one of the two metadata stores, in turns. `make proof` has every fault on both, under more load.
Every acknowledged record is there once, where its producer was told, in the order in which it was sent; nothing that
was read vanishes; the replicas' files are the same up to the watermark, and clean for Kafka's own tool.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.faults import FAULTS, Fault, Scene
from tests.cluster.faults_replicas import check_with_kafkas_tool, diverging
from tests.cluster.faults_traffic import Traffic
from tests.cluster.three_brokers import NUMBERS, Cluster, three_brokers
from tests.peers import ZooKeeperServer

PARTITIONS = 3
SETTINGS = {
    "min.insync.replicas": "2",
    "log.roll.ms": "1000",  # several segments
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
}


STORES = ("embedded", "zookeeper")
FAULTS_BY_STORE = tuple((STORES[number % 2], fault) for number, fault in enumerate(FAULTS))
PACE_S = 0.02  # a record of each producer; the proof has more of them


class Stage:
    """A running cluster, and the topics that were written to while it had faults."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.high_watermarks: dict[str, Sequence[int]] = {}

    def play(self, fault: Fault, topic: str, pace_s: float) -> None:
        """One fault under load, and what the clients have to say of it."""
        for number in NUMBERS:
            if number not in self.cluster.brokers:  # what failed before is not the business of this one
                self.cluster.start(number)
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(topic, PARTITIONS, len(NUMBERS))])[topic].result(60)
        with Traffic(self.cluster.bootstrap, topic, PARTITIONS, pace_s) as traffic:
            scene = Scene(self.cluster, traffic, topic, random.Random(random.getrandbits(32)))
            scene.until_all_are_in_sync()
            traffic.until_all_move()
            fault(scene)
            scene.until_all_are_in_sync()
            traffic.until_all_move()
        self.high_watermarks[topic] = traffic.read_all()
        assert traffic.anomalies() == []

    def check_files(self) -> None:
        """Of all topics at once, for a JVM takes its time to start."""
        for number in list(self.cluster.brokers):
            self.cluster.stop(number)
        for topic, high_watermarks in self.high_watermarks.items():
            assert diverging(self.cluster, topic, high_watermarks) == []
        check_with_kafkas_tool(self.cluster, self.high_watermarks)


@contextmanager
def stage_on(store: str, directory: Path) -> Iterator[Stage]:
    """At the end the files are checked."""
    settings = dict(SETTINGS)
    with ExitStack() as stack:
        if store == "zookeeper":
            server = stack.enter_context(ZooKeeperServer(directory / "zookeeper"))
            settings |= {"zookeeper.connect": server.address, "zookeeper.session.timeout.ms": "2000"}
        stage = Stage(stack.enter_context(three_brokers(directory, settings)))
        yield stage
        stage.check_files()


@pytest.fixture(scope="module")
def on_embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_on("embedded", tmp_path_factory.mktemp("embedded")) as running:
        yield running


@pytest.fixture(scope="module")
def on_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_on("zookeeper", tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Stage:
    """Tests come in any order, and share one cluster for each store."""
    shared: Stage = request.getfixturevalue(f"on_{request.param}")
    return shared


def name_of(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("stage", "fault"), FAULTS_BY_STORE, indirect=["stage"], ids=name_of)
def test_no_record_is_lost_doubled_moved_or_different_elsewhere(stage: Stage, fault: Fault, topic_name: str) -> None:
    stage.play(fault, topic_name, PACE_S)


@pytest.mark.proof
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_no_fault_shows_on_either_store_under_more_load(
    store: str, fault: Fault, tmp_path: Path, topic_name: str
) -> None:
    with stage_on(store, tmp_path) as stage:
        stage.play(fault, topic_name, pace_s=0.005)
