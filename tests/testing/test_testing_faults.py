"""Faults on request: what each of them breaks, and that it can be mended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from barnabas import KafkaError
from barnabas.testing import Cluster, ClusterError
from tests.peers import answers_metadata, eventually

QUICK_SESSIONS = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}


@pytest.fixture(scope="module")
def the_three() -> Iterator[Cluster]:
    with Cluster(3, options=QUICK_SESSIONS) as cluster:
        yield cluster


@pytest.fixture
def three(the_three: Cluster) -> Cluster:
    """Every test mends what it has broken; a broker that was away needs a moment until it can take replicas."""

    def is_whole() -> bool:
        try:
            return bool(the_three.create_topic(replication_factor=3))
        except KafkaError:
            return False

    eventually(is_whole, True, timeout=60)
    return the_three


def write(cluster: Cluster, topic: str, value: bytes) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "socket.timeout.ms": 2000}
    )
    problems: list[object] = []
    producer.produce(topic, value, on_delivery=lambda error, _: problems.append(error))
    assert producer.flush(60) == 0
    assert problems == [None]


def read(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "socket.timeout.ms": 2000}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[bytes | None] = []
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            found.extend(message.value() for message in consumer.consume(count, 0.2) if not message.error())
        return found
    finally:
        consumer.close()


def topic_led_by(cluster: Cluster, broker: int) -> str:
    """A broker that is just back may have to wait for its first leadership."""
    deadline = time.monotonic() + 60
    while cluster.leader_of(topic := cluster.create_topic()) != broker:
        assert time.monotonic() < deadline
    return topic


def leader_is_another(cluster: Cluster, topic: str, old: int) -> bool:
    try:
        return cluster.leader_of(topic) != old
    except KafkaError as error:
        if not error.retriable:
            raise
        return False  # nobody leads at the moment


@pytest.mark.parametrize("end", [Cluster.kill, Cluster.stop], ids=["kill", "stop"])
def test_another_broker_leads_when_one_is_gone_and_it_comes_back_where_it_was(
    three: Cluster, end: Callable[[Cluster, int], None]
) -> None:
    topic = three.create_topic()
    write(three, topic, b"before")
    leader = three.leader_of(topic)
    address = three.address(leader)
    end(three, leader)
    assert not answers_metadata(address, 0.5)
    eventually(lambda: leader_is_another(three, topic, leader), True, timeout=60)
    write(three, topic, b"meanwhile")
    three.start(leader)
    assert three.address(leader) == address
    eventually(lambda: answers_metadata(address), True, timeout=60)
    assert read(three, topic, 2) == [b"before", b"meanwhile"]


def test_a_paused_broker_keeps_its_connections_and_answers_later() -> None:
    with Cluster() as cluster:
        cluster.pause(1)
        assert not answers_metadata(cluster.bootstrap, 0.5)
        cluster.resume(1)
        assert answers_metadata(cluster.bootstrap, 10)


@pytest.mark.parametrize("victim", ["leader", "controller"])
def test_the_others_go_on_without_a_broker_that_is_cut_off(three: Cluster, victim: str) -> None:
    cut = three.controller() if victim == "controller" else next(b for b in three.brokers if b != three.controller())
    topic = topic_led_by(three, cut)
    write(three, topic, b"before")
    three.partition(cut)
    assert not answers_metadata(three.address(cut), 0.5)
    eventually(lambda: leader_is_another(three, topic, cut), True, timeout=60)
    assert three.controller() != cut
    write(three, topic, b"meanwhile")
    three.heal(cut)
    eventually(lambda: answers_metadata(three.address(cut)), True, timeout=60)
    assert read(three, topic, 2) == [b"before", b"meanwhile"]
    eventually(lambda: leader_is_another(three, topic, cut), True, timeout=60)


def test_a_broker_that_is_cut_off_acknowledges_nothing(three: Cluster) -> None:
    """Its clients are cut off from it too: what they send waits, and is written once it is whole again."""
    topic = three.create_topic()
    leader = three.leader_of(topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": three.address(leader), "acks": 1, "message.timeout.ms": 60000, "socket.timeout.ms": 60000}
    )
    producer.produce(topic, b"first")
    assert producer.flush(60) == 0
    three.partition(leader)
    producer.produce(topic, b"late")
    assert producer.flush(1) == 1
    three.heal(leader)
    assert producer.flush(60) == 0
    assert read(three, topic, 2) == [b"first", b"late"]


def test_a_broker_in_this_process_can_be_cut_off_stopped_and_started() -> None:
    with Cluster(in_process=True) as cluster:
        topic = cluster.create_topic()
        cluster.partition(1)
        assert not answers_metadata(cluster.bootstrap, 0.5)
        cluster.heal(1)
        assert answers_metadata(cluster.bootstrap, 10)
        write(cluster, topic, b"kept")
        cluster.stop(1)
        assert not answers_metadata(cluster.bootstrap, 0.5)
        cluster.start(1)
        assert read(cluster, topic, 1) == [b"kept"]
        for fault in (cluster.kill, cluster.pause, cluster.resume, cluster.log):
            with pytest.raises(ClusterError, match="in this process"):
                fault(1)


def test_faults_that_make_no_sense_are_refused() -> None:
    with Cluster() as cluster:
        for fault, told in (
            (cluster.start, "it runs"),
            (cluster.resume, "it runs"),
            (cluster.heal, "not cut off"),
        ):
            with pytest.raises(ClusterError, match=told):
                fault(1)
        with pytest.raises(ClusterError, match="no broker 2; there are 1"):
            cluster.kill(2)
        cluster.kill(1)
        for fault in (cluster.kill, cluster.stop, cluster.pause, cluster.partition):
            with pytest.raises(ClusterError, match="does not run"):
                fault(1)
        with pytest.raises(ClusterError, match="no broker of this cluster can be reached"):
            cluster.create_topic()
