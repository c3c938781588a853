"""Decisions about all of ten thousand partitions hold nobody up; the bounds are several times what it takes."""

from __future__ import annotations

import time

import pytest

from barnabas.cluster.controller import decide
from barnabas.cluster.events import BrokerHeartbeat, CreateTopics, Event, FenceBroker, NewTopic
from tests.unit.cluster.clusters import TestCluster

PARTITIONS = 10_000
MAX_SECONDS = 1.0  # of this thread's own time
pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def large() -> TestCluster:
    """Three brokers, of which 1 has gone; 2 leads a half, and 3 the other."""
    cluster = TestCluster(3)
    configs = {"min.insync.replicas": "2"}
    for number in range(10):
        cluster.submit(CreateTopics((NewTopic(f"topic-{number}", PARTITIONS // 10, 3, configs=configs),)))
    cluster.fence(1)
    return cluster


def decided(cluster: TestCluster, event: Event[object]) -> int:
    """The number of records, in the time that is allowed."""
    start = time.thread_time()
    outcome = decide(cluster.image, event, cluster.rng, cluster.config)
    assert time.thread_time() - start < MAX_SECONDS
    return len(outcome.records)


def test_a_broker_that_falls_silent(large: TestCluster) -> None:
    assert decided(large, FenceBroker(2, large.image.brokers[2].epoch)) == PARTITIONS + 1


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_broker_that_restarts(large: TestCluster, is_clean: bool) -> None:
    assert decided(large, large.registration(2, is_clean=is_clean)) == PARTITIONS + 1


def test_a_broker_that_shuts_down(large: TestCluster) -> None:
    epoch = large.image.brokers[2].epoch
    assert decided(large, BrokerHeartbeat(2, epoch, large.image.index, want_shut_down=True)) == PARTITIONS + 1


def test_a_broker_that_is_waited_for() -> None:
    cluster = TestCluster(1)
    cluster.submit(CreateTopics((NewTopic("waiting", PARTITIONS, 1),)))
    epoch = cluster.register(1)
    assert decided(cluster, BrokerHeartbeat(1, epoch, cluster.image.index)) == PARTITIONS + 1


def test_one_change_of_one_partition(large: TestCluster) -> None:
    leader = large.partition("topic-0").leader
    start = time.thread_time()
    decide(large.image, large.isr_change(leader, name="topic-0"), large.rng, large.config)
    assert time.thread_time() - start < MAX_SECONDS / 50, "it does not look at the others"
