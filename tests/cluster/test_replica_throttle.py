"""A move of replicas at a bounded rate, ordered and ended with Kafka's own tool."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from barnabas.wire.messages import k19_create_topics as k19
from tests.broker.wire_client import Client
from tests.cli.commands import succeed_on
from tests.cluster.three_brokers import NUMBERS, Cluster, three_brokers
from tests.peers import eventually, kafka_tool

TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
RECORD_BYTES, RECORDS = 10_000, 1500
RATE = 100_000  # so slow that the move takes longer than the test may
HEAD_START_BYTES = 1_500_000  # a second's worth comes at once, and a fetch of at most a megabyte is never cut
THROTTLES = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}
THROTTLED = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with three_brokers(tmp_path) as running:
        yield running


def in_sync(cluster: Cluster, topic: str) -> set[int]:
    with Client(cluster.address(1)) as client:
        (partition,) = client.describe_topic(topic).partitions
    return set(partition.isr_nodes)


def settings(cluster: Cluster, kind: ResourceType, name: str, wanted: set[str]) -> dict[str, str]:
    """What of these keys was set on a broker or a topic itself."""
    resource = ConfigResource(kind, name)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    found = admin.describe_configs([resource])[resource].result(60)
    return {key: entry.value for key, entry in found.items() if key in wanted and not entry.is_default}


def copied_bytes(cluster: Cluster, topic: str) -> int:
    """What the new replica has so far."""
    return sum(file.stat().st_size for file in (cluster.data_dir(3) / f"{topic}-0").glob("*.log"))


def test_a_throttled_move_keeps_its_rate_and_holds_up_nobody(cluster: Cluster, tmp_path: Path, topic_name: str) -> None:
    topic = k19.CreatableTopic(topic_name, -1, -1, [k19.CreatableReplicaAssignment(0, [1, 2])])
    with Client(cluster.address(1)) as client:
        assert client.call(k19.CreateTopicsRequest([topic])).topics[0].error_code == 0
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0})
    for _ in range(RECORDS):
        producer.produce(topic_name, bytes(RECORD_BYTES))
    assert producer.flush(60) == 0
    plan = tmp_path / "plan.json"
    moves = [{"topic": topic_name, "partition": 0, "replicas": [1, 2, 3]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    options = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
    started = time.monotonic()
    kafka_tool(TOOL, *options, "--execute", "--throttle", str(RATE))
    for number in NUMBERS:
        found = settings(cluster, ResourceType.BROKER, str(number), THROTTLES)
        assert found == dict.fromkeys(THROTTLES, str(RATE))
    assert settings(cluster, ResourceType.TOPIC, topic_name, THROTTLED).keys() == THROTTLED
    for _ in range(5):
        producer.produce(topic_name, b"x")
        assert producer.flush(60) == 0  # it waits for the two in-sync replicas alone
    copied = copied_bytes(cluster, topic_name)
    assert copied < HEAD_START_BYTES + RATE * (time.monotonic() - started)
    assert in_sync(cluster, topic_name) == {1, 2}
    for number in NUMBERS:
        quick = [f"{key}={1000 * RATE}" for key in THROTTLES]
        succeed_on(cluster.bootstrap)("config", "set", "broker", str(number), *quick)
    eventually(lambda: in_sync(cluster, topic_name), {1, 2, 3})
    assert "completed" in kafka_tool(TOOL, *options, "--verify")
    for number in NUMBERS:
        assert settings(cluster, ResourceType.BROKER, str(number), THROTTLES) == {}
    assert settings(cluster, ResourceType.TOPIC, topic_name, THROTTLED) == {}
