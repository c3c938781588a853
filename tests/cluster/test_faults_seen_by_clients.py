"""What clients notice of a fault, at default time-outs: a short silence, and a clear word where it cannot be helped."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.faults_traffic import Traffic
from tests.cluster.three_brokers import NUMBERS, Cluster, leaders, living_brokers, three_brokers
from tests.peers import ZooKeeperServer, barnabas_command, eventually

PARTITIONS = 3
NO_LEADER = -1
SILENCE_S = 9.0
"""Kafka's is 10 s. One second where nothing else runs; tests share their cores."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with three_brokers(tmp_path, {"min.insync.replicas": "2"}) as running:
        yield running


@contextmanager
def traffic(cluster: Cluster, topic: str) -> Iterator[Traffic]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, len(NUMBERS))])[topic].result(20)
    with Traffic(cluster.bootstrap, topic, PARTITIONS) as running:
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
        looking.join(20)


@pytest.fixture(params=["embedded", "zookeeper"])
def cluster_on_either_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        settings = {"min.insync.replicas": "2"}
        if request.param == "zookeeper":
            server = stack.enter_context(ZooKeeperServer(tmp_path / "zookeeper"))
            settings["zookeeper.connect"] = server.address
        yield stack.enter_context(three_brokers(tmp_path, settings))


@pytest.mark.parametrize("is_controller", [False, True])
def test_writing_goes_on_soon_after_a_leader_was_killed(
    cluster_on_either_store: Cluster, topic_name: str, is_controller: bool
) -> None:
    cluster = cluster_on_either_store
    with traffic(cluster, topic_name) as running:
        controller = cluster.controller()
        led = leaders(cluster.some_address, topic_name).items()
        partition, victim = next(each for each in led if (each[1] == controller) is is_controller)
        cluster.kill(victim)
        running.until_all_move()
    assert running.failures == []
    assert running.longest_silence_s(partition) < SILENCE_S


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
    assert running.longest_silence_s(0) < SILENCE_S


def test_too_few_brokers_for_the_replicas_that_are_asked_for(cluster: Cluster, topic_name: str) -> None:
    """As said by one broker of a list whose first is dead."""
    cluster.kill(NUMBERS[0])
    eventually(lambda: living_brokers(cluster.some_address), set(NUMBERS[1:]))
    command = barnabas_command("topic", "create", topic_name, "-r", "3", "-b", cluster.bootstrap)
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith("only 2 of the 3 registered brokers can take replicas now")
    assert topic_name not in AdminClient({"bootstrap.servers": cluster.some_address}).list_topics(timeout=10).topics
