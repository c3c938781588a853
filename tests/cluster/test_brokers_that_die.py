"""Brokers that are killed: another one is the controller, what the dead one led has no leader, and all comes back.

Every topic here has one replica. A death is noticed by the connections that break, long before the session ends, which
is an hour here unless a test is about it.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages import k19_create_topics, k64_unregister_broker
from tests.broker.wire_client import Client
from tests.cluster.three_brokers import NUMBERS, Cluster, leaders, living_brokers, seconds_until, three_brokers
from tests.peers import eventually

NO_LEADER = -1
LONG_SESSION = {"broker.session.timeout.ms": "3600000"}
SHORT_SESSION = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}
PATIENCE_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with three_brokers(tmp_path, LONG_SESSION) as running:
        yield running


def create_topic(address: str, name: str, partitions: int) -> ErrorCode:
    topic = k19_create_topics.CreatableTopic(name, partitions, 1)
    with Client(address) as client:
        (result,) = client.call(k19_create_topics.CreateTopicsRequest([topic])).topics
    return ErrorCode(result.error_code)


def test_another_controller_takes_over_at_once(cluster: Cluster) -> None:
    seconds_until(lambda: cluster.controller() in NUMBERS, PATIENCE_S)
    first = cluster.controller()
    others = [number for number in NUMBERS if number != first]
    assert create_topic(cluster.address(others[0]), "before", 3) is ErrorCode.NONE
    cluster.kill(first)
    # Asked at the worst of moments: the broker waits for the next controller and passes it on.
    seconds_until(lambda: create_topic(cluster.address(others[1]), "after", 2) is ErrorCode.NONE, PATIENCE_S)
    eventually(lambda: cluster.controller() in others, True)
    for number in others:
        eventually(lambda at=number: living_brokers(cluster.address(at)), set(others))  # type: ignore[misc]
    assert create_topic(cluster.address(others[0]), "later", 2) is ErrorCode.NONE
    assert set(leaders(cluster.address(others[0]), "later").values()) == set(others)


def test_what_a_dead_broker_led_has_no_leader_until_it_is_back(cluster: Cluster) -> None:
    controller = cluster.controller()
    victim = next(number for number in NUMBERS if number != controller)
    asked = cluster.address(controller)
    assert create_topic(asked, "topic", 6) is ErrorCode.NONE
    before = leaders(asked, "topic")
    of_victim = [partition for partition, leader in before.items() if leader == victim]
    producer = Producer({"bootstrap.servers": asked, "enable.idempotence": True})
    for partition in before:
        producer.produce("topic", b"first", partition=partition)
    assert producer.flush(60) == 0

    cluster.kill(victim)
    orphaned = {partition: NO_LEADER if leader == victim else leader for partition, leader in before.items()}
    eventually(lambda: leaders(asked, "topic"), orphaned)
    assert living_brokers(asked) == set(NUMBERS) - {victim}

    cluster.start(victim)
    eventually(lambda: leaders(asked, "topic"), before)
    for partition in before:
        producer.produce("topic", b"second", partition=partition)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("topic", of_victim[0], 0)])
    assert [message.value() for message in consumer.consume(2, timeout=60)] == [b"first", b"second"]
    consumer.close()


def test_a_bootstrap_list_with_a_dead_broker_works(cluster: Cluster) -> None:
    victim = cluster.controller()
    cluster.kill(victim)
    asked = cluster.address(next(number for number in NUMBERS if number != victim))
    eventually(lambda: living_brokers(asked), set(NUMBERS) - {victim})
    assert create_topic(asked, "topic", 2) is ErrorCode.NONE
    producer = Producer({"bootstrap.servers": f"{cluster.address(victim)},{asked}"})
    producer.produce("topic", b"value", partition=0)
    assert producer.flush(60) == 0


def test_a_broker_that_hangs_is_fenced_by_the_time_out_and_comes_back(tmp_path: Path) -> None:
    with three_brokers(tmp_path, SHORT_SESSION) as cluster:
        controller = cluster.controller()
        victim = next(number for number in NUMBERS if number != controller)
        process = cluster.brokers[victim].process
        process.send_signal(signal.SIGSTOP)
        try:
            seconds_until(lambda: victim not in living_brokers(cluster.address(controller)), PATIENCE_S)
        finally:
            process.send_signal(signal.SIGCONT)
        log = cluster.brokers[controller].log.read_text()
        assert re.search(rf'broker is fenced broker={victim} reason="no heartbeat for', log), log
        eventually(lambda: living_brokers(cluster.address(controller)), set(NUMBERS))


def test_a_controller_that_hangs_is_replaced_and_follows_when_it_wakes_up(tmp_path: Path) -> None:
    with three_brokers(tmp_path, SHORT_SESSION) as cluster:
        first = cluster.controller()
        stopped = cluster.brokers.pop(first)
        stopped.process.send_signal(signal.SIGSTOP)
        try:
            others = [number for number in NUMBERS if number != first]
            seconds_until(lambda: cluster.controller() in others, PATIENCE_S)
            assert create_topic(cluster.address(others[0]), "topic", 2) is ErrorCode.NONE
        finally:
            stopped.process.send_signal(signal.SIGCONT)
        cluster.brokers[first] = stopped
        eventually(lambda: cluster.controller() in others, True)
        eventually(lambda: living_brokers(cluster.address(first)), set(NUMBERS))
        assert create_topic(cluster.address(first), "another", 2) is ErrorCode.NONE


def test_all_at_once(cluster: Cluster) -> None:
    assert create_topic(cluster.address(1), "topic", 6) is ErrorCode.NONE
    before = leaders(cluster.address(1), "topic")
    for number in NUMBERS:
        cluster.kill(number)
    for number in NUMBERS:
        cluster.start(number)
    for number in NUMBERS:
        eventually(lambda at=number: leaders(cluster.address(at), "topic"), before)  # type: ignore[misc]


def test_a_broker_that_is_unregistered_while_it_registers_tries_again(tmp_path: Path) -> None:
    with three_brokers(tmp_path, {"broker.heartbeat.interval.ms": "50"}) as cluster:
        controller = cluster.controller()
        victim = next(number for number in NUMBERS if number != controller)
        asked = cluster.address(controller)
        with Client(asked) as client:
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                client.call(k64_unregister_broker.UnregisterBrokerRequest(victim))
        eventually(lambda: living_brokers(asked), set(NUMBERS))
