"""What clients notice of a fault: a short silence, and a clear word where it cannot be helped.

A broker that dies is missed when its connections break: no session ends here, for one lasts an hour.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cli.commands import run_barnabas
from tests.cluster.faults_traffic import Traffic
from tests.cluster.three_brokers import NUMBERS, Cluster, leaders, living_brokers, three_brokers
from tests.peers import ZooKeeperServer, eventually

PARTITIONS = 3
NO_LEADER = -1
PACE_S = 0.02
SETTINGS = {"min.insync.replicas": "2", "broker.session.timeout.ms": "3600000"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with three_brokers(tmp_path, SETTINGS) as running:
        yield running


@contextmanager
def traffic(cluster: Cluster, topic: str) -> Iterator[Traffic]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, len(NUMBERS))])[topic].result(60)
    with Traffic(cluster.bootstrap, topic, PARTITIONS, PACE_S) as running:
        running.until_all_move()
        yield running
        running.until_all_move()


@contextmanager
def leaders_seen(address: str, topic: str) -> Iterator[set[int]]:
    """Every leader that a broker tells of meanwhile."""
    seen: set[int] = set()
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.005):
            seen.update(leaders(address, topic).values())

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield seen
    finally:
        is_over.set()
        looking.join(60)


@pytest.fixture(scope="module")
def on_embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with three_brokers(tmp_path_factory.mktemp("embedded"), SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def on_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("zookeeper")
    with (
        ZooKeeperServer(directory / "zookeeper") as server,
        three_brokers(directory, {**SETTINGS, "zookeeper.connect": server.address}) as running,
    ):
        yield running


@pytest.fixture(params=["embedded", "zookeeper"])
def cluster_on_either_store(request: pytest.FixtureRequest) -> Cluster:
    shared: Cluster = request.getfixturevalue(f"on_{request.param}")
    return shared


@pytest.mark.parametrize("is_controller", [False, True])
def test_writing_goes_on_soon_after_a_leader_was_killed(
    cluster_on_either_store: Cluster, topic_name: str, is_controller: bool
) -> None:
    cluster = cluster_on_either_store
    with traffic(cluster, topic_name) as running:
        controller = cluster.controller()
        led = leaders(cluster.some_address, topic_name).values()
        victim = next(leader for leader in led if (leader == controller) is is_controller)
        cluster.kill(victim)
        running.until_all_move()
    cluster.start(victim)
    eventually(lambda: living_brokers(cluster.some_address), set(NUMBERS))
    assert running.failures == []


def test_a_broker_that_stops_in_order_hands_over_what_it_leads(cluster: Cluster, topic_name: str) -> None:
    """No partition is without a leader for a moment, and no producer learns of it."""
    with traffic(cluster, topic_name) as running:
        stopped = leaders(cluster.some_address, topic_name)[0]
        survivor = next(number for number in NUMBERS if number != stopped)
        with leaders_seen(cluster.address(survivor), topic_name) as seen:
            cluster.stop(stopped)
            eventually(lambda: stopped in leaders(cluster.address(survivor), topic_name).values(), False)
            running.until_all_move()
    assert running.failures == []
    assert NO_LEADER not in seen


def test_too_few_brokers_for_the_replicas_that_are_asked_for(cluster: Cluster, topic_name: str) -> None:
    """As said by one broker of a list whose first is dead."""
    cluster.kill(NUMBERS[0])
    eventually(lambda: living_brokers(cluster.some_address), set(NUMBERS[1:]))
    done = run_barnabas("topic", "create", topic_name, "-r", "3", "-b", cluster.bootstrap)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith("only 2 of the 3 registered brokers can take replicas now")
    assert topic_name not in AdminClient({"bootstrap.servers": cluster.some_address}).list_topics(timeout=60).topics
