"""What makes a group rebalance and what does not, with confluent-kafka in both protocols."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.interop.groups.members import SESSION_MS, Group
from tests.peers import Broker

MEMBER = [sys.executable, "-m", "tests.interop.clients.confluent_member"]
CLASSIC = {"session.timeout.ms": str(SESSION_MS), "heartbeat.interval.ms": "500"}
PROTOCOLS = {"classic": CLASSIC, "consumer": {"group.protocol": "consumer"}}
both_protocols = pytest.mark.parametrize("settings", PROTOCOLS.values(), ids=PROTOCOLS)


@contextmanager
def subscribed(address: str, group: str, topic: str, settings: dict[str, str]) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, **settings})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def poll_until(done: Callable[[], bool], *consumers: Consumer, timeout: float = 30) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, f"not done within {timeout} s"
        for consumer in consumers:
            consumer.poll(0.1)


def first_error(consumer: Consumer, timeout: float = 10) -> str:
    """What the consumer is told when it should not go on."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error():
            return str(message.error().str())
    raise AssertionError(f"no error within {timeout} s")


@both_protocols
def test_partitions_that_are_added_are_given_out(settings: dict[str, str], new_group: Callable[[int], Group]) -> None:
    group = new_group(2)
    for member in ("first", "second"):
        group.start(member, MEMBER, {**settings, "topic.metadata.refresh.interval.ms": "500"})
    group.settle({"first": 1, "second": 1})

    admin = AdminClient({"bootstrap.servers": group.address})
    admin.create_partitions([NewPartitions(group.topic, 6)])[group.topic].result(10)
    group.settle({"first": 3, "second": 3})


@both_protocols
def test_a_new_topic_that_matches_is_given_out(settings: dict[str, str], broker: Broker) -> None:
    prefix = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(f"{prefix}-one", 1, 1)])[f"{prefix}-one"].result(10)
    quick = {**settings, "topic.metadata.refresh.interval.ms": "500"}
    with subscribed(broker.address, prefix, f"^{prefix}-.*", quick) as consumer:
        poll_until(lambda: [each.topic for each in consumer.assignment()] == [f"{prefix}-one"], consumer)
        admin.create_topics([NewTopic(f"{prefix}-two", 1, 1)])[f"{prefix}-two"].result(10)
        poll_until(
            lambda: sorted(each.topic for each in consumer.assignment()) == [f"{prefix}-one", f"{prefix}-two"], consumer
        )


@both_protocols
def test_who_does_not_poll_for_too_long_loses_its_partitions(
    settings: dict[str, str], broker: Broker, new_group: Callable[[int], Group]
) -> None:
    group = new_group(2)
    slow_settings = {**settings, "max.poll.interval.ms": str(SESSION_MS)}
    with (
        subscribed(broker.address, group.name, group.topic, slow_settings) as slow,
        subscribed(broker.address, group.name, group.topic, settings) as lively,
    ):
        poll_until(lambda: len(slow.assignment()) == len(lively.assignment()) == 1, slow, lively)
        poll_until(lambda: len(lively.assignment()) == 2, lively)


@both_protocols
def test_a_static_member_that_comes_back_in_time_finds_its_partitions_and_disturbs_nobody(
    settings: dict[str, str], new_group: Callable[[int], Group]
) -> None:
    group = new_group(4)
    group.start("first", MEMBER, {**settings, "group.instance.id": "one"})
    group.start("second", MEMBER, {**settings, "group.instance.id": "two"})
    group.settle({"first": 2, "second": 2})
    owners, before = group.owners(), len(group.events())

    group.produce(20)
    if "group.protocol" in settings:
        group.stop("first")  # the consumer protocol gives a name back only to who has said that it will return
    else:
        group.kill("first")
    group.start("first", MEMBER, {**settings, "group.instance.id": "one"})
    group.settle({"first": 2, "second": 2})
    group.read_all()

    assert group.owners() == owners
    changes = [event for event in group.events()[before:] if event.what in ("gain", "lose")]
    assert {event.member for event in changes} == {"first"}


def test_a_second_static_member_of_the_same_name_fences_the_first(
    broker: Broker, new_group: Callable[[int], Group]
) -> None:
    group = new_group(2)
    static = {**CLASSIC, "group.instance.id": "same"}
    with subscribed(broker.address, group.name, group.topic, static) as older:
        poll_until(lambda: len(older.assignment()) == 2, older)
        with subscribed(broker.address, group.name, group.topic, static) as newer:
            poll_until(lambda: len(newer.assignment()) == 2, newer)
            assert "fenced" in first_error(older)


def test_a_name_that_a_static_member_of_the_consumer_protocol_uses_is_refused_to_others(
    broker: Broker, new_group: Callable[[int], Group]
) -> None:
    group = new_group(2)
    static = {**PROTOCOLS["consumer"], "group.instance.id": "same"}
    with subscribed(broker.address, group.name, group.topic, static) as older:
        poll_until(lambda: len(older.assignment()) == 2, older)
        with subscribed(broker.address, group.name, group.topic, static) as newer:
            assert "instance ID is still used" in first_error(newer)
        assert len(older.assignment()) == 2


def test_a_group_changes_its_protocol_and_back_while_it_works(new_group: Callable[[int], Group]) -> None:
    group = new_group(6)
    group.start("classic", MEMBER, CLASSIC)
    group.settle({"classic": 6})
    group.produce(20)

    group.start("new", MEMBER, PROTOCOLS["consumer"])
    group.settle({"classic": 3, "new": 3})
    group.produce(20)
    group.stop("classic")
    group.settle({"new": 6})

    group.start("late", MEMBER, CLASSIC)
    group.settle({"new": 3, "late": 3})
    group.produce(20)
    group.stop("new")
    group.settle({"late": 6})
    group.read_all()
    group.stop("late")
    assert group.state() == ConsumerGroupState.EMPTY
