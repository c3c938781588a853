"""Apache Kafka's tools for clusters, on three brokers: they move replicas, elect leaders and tell what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.wire.messages import k03_metadata
from tests import peers
from tests.broker.wire_client import Client
from tests.cluster.three_brokers import METADATA_VERSION, NUMBERS, Cluster, leaders, three_brokers
from tests.peers import eventually

Tool = Callable[..., str]

CLUSTER = "org.apache.kafka.tools.ClusterTool"
CONFIGS = "kafka.admin.ConfigCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with three_brokers(tmp_path_factory.mktemp("cluster"), {"auto.leader.rebalance.enable": "false"}) as running:
        yield running


@pytest.fixture
def tool(cluster: Cluster) -> Tool:
    """Runs a tool against the brokers."""
    return lambda main_class, *arguments: peers.kafka_tool(
        main_class, *arguments, "--bootstrap-server", cluster.bootstrap
    )


def create(tool: Tool, cluster: Cluster, topic: str, assignment: str) -> None:
    """Wait for every broker to know the topic: a tool may ask any of them next."""
    tool(TOPICS, "--create", "--topic", topic, "--replica-assignment", assignment)
    for broker in cluster.brokers.values():
        eventually(lambda at=broker.address: len(leaders(at, topic)), assignment.count(",") + 1)  # type: ignore[misc]


def partitions(cluster: Cluster, topic: str) -> list[k03_metadata.MetadataResponsePartition]:
    request = k03_metadata.MetadataRequest([k03_metadata.MetadataRequestTopic(name=topic)])
    with Client(cluster.address(2)) as client:
        [found] = client.call(request, METADATA_VERSION).topics
    return sorted(found.partitions, key=lambda each: each.partition_index)


def replicas(cluster: Cluster, topic: str) -> list[list[int]]:
    return [partition.replica_nodes for partition in partitions(cluster, topic)]


def in_sync(cluster: Cluster, topic: str) -> list[set[int]]:
    return [set(partition.isr_nodes) for partition in partitions(cluster, topic)]


def plan(path: Path, topic: str, replicas: list[list[int]]) -> str:
    entries = [{"topic": topic, "partition": n, "replicas": each} for n, each in enumerate(replicas)]
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    return str(path)


def test_kafka_reassign_partitions_proposes_moves_and_verifies(
    tool: Tool, topic_name: str, tmp_path: Path, cluster: Cluster
) -> None:
    create(tool, cluster, topic_name, "1:2,2:1")
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic_name}]}))
    generated = tool(REASSIGN, "--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3")
    current, proposed = (json.loads(line) for line in generated.splitlines() if line.startswith("{"))
    assert [entry["replicas"] for entry in current["partitions"]] == [[1, 2], [2, 1]]
    targets = [entry["replicas"] for entry in proposed["partitions"]]
    assert {broker for each in targets for broker in each} == {2, 3}

    file = tmp_path / "plan.json"
    file.write_text(json.dumps(proposed))
    started = tool(REASSIGN, "--execute", "--reassignment-json-file", str(file), "--throttle", "50000000")
    assert f"Successfully started partition reassignments for {topic_name}-0,{topic_name}-1" in started
    eventually(lambda: replicas(cluster, topic_name), targets, timeout=30)
    verified = tool(REASSIGN, "--verify", "--reassignment-json-file", str(file))
    for number in (0, 1):
        assert f"Reassignment of partition {topic_name}-{number} is completed." in verified

    def limits() -> str:
        """As the broker knows them that a tool happens to ask: it may not have read of the end yet."""
        return tool(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", topic_name) + tool(
            CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "2"
        )

    eventually(lambda: "throttled" in limits(), False, timeout=30)


def test_kafka_reassign_partitions_lists_a_move_and_calls_it_off(
    tool: Tool, topic_name: str, tmp_path: Path, cluster: Cluster
) -> None:
    create(tool, cluster, topic_name, "1:2")
    tool(PERFORMANCE, "--topic", topic_name, "--num-records", "300", "--record-size", "5000", "--throughput", "-1")
    with pytest.raises(AssertionError, match="Unknown broker id 9"):
        tool(REASSIGN, "--execute", "--reassignment-json-file", plan(tmp_path / "wrong.json", topic_name, [[1, 9]]))
    file = plan(tmp_path / "plan.json", topic_name, [[1, 3]])
    tool(REASSIGN, "--execute", "--reassignment-json-file", file, "--throttle", "1000")
    assert f"{topic_name}-0: replicas: 1,3,2. adding: 3. removing: 2." in tool(REASSIGN, "--list")
    cancelled = tool(REASSIGN, "--cancel", "--reassignment-json-file", file)
    assert f"Successfully cancelled partition reassignment for: {topic_name}-0" in cancelled
    eventually(lambda: replicas(cluster, topic_name), [[1, 2]])


def test_tools_tell_of_a_death_and_elect_the_preferred_leader_after_it(
    tool: Tool, topic_name: str, cluster: Cluster
) -> None:
    def listed(option: str) -> list[str]:
        told = tool(TOPICS, "--describe", option)  # topics in the order of a hash
        return sorted(re.findall(rf"Topic: {topic_name}(\S*\tPartition: \d)", told))

    create(tool, cluster, topic_name, "1:2,2:3")
    create(tool, cluster, f"{topic_name}-alone", "1")
    cluster.kill(1)
    try:
        for number in (2, 3):
            eventually(lambda at=number: leaders(cluster.address(at), topic_name)[0], 2, timeout=30)  # type: ignore[misc]
        assert listed("--under-replicated-partitions") == ["\tPartition: 0", "-alone\tPartition: 0"]
        assert listed("--unavailable-partitions") == ["-alone\tPartition: 0"]
        assert re.search(r"Cluster ID: \S{22}", tool(CLUSTER, "cluster-id"))
    finally:
        cluster.start(1)
    eventually(lambda: in_sync(cluster, topic_name), [{1, 2}, {2, 3}], timeout=30)
    assert leaders(cluster.address(2), topic_name)[0] == 2
    elected = tool(ELECTION, "--election-type", "preferred", "--topic", topic_name, "--partition", "0")
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic_name}-0" in elected
    eventually(lambda: {leaders(cluster.address(number), topic_name)[0] for number in NUMBERS}, {1})
