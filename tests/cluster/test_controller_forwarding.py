"""Changes of the metadata that reach a broker which is not the controller: it passes them on, and sees them then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages import k19_create_topics as k19
from barnabas.wire.messages import k20_delete_topics as k20
from barnabas.wire.messages import k32_describe_configs as k32
from barnabas.wire.messages import k33_alter_configs as k33
from barnabas.wire.messages import k37_create_partitions as k37
from barnabas.wire.messages import k43_elect_leaders as k43
from barnabas.wire.messages import k45_alter_partition_reassignments as k45
from barnabas.wire.messages import k64_unregister_broker as k64
from tests.broker.wire_client import TOPIC, Client
from tests.cluster.three_brokers import NUMBERS, Cluster, in_sync, leaders, three_brokers
from tests.peers import eventually

NONE = ErrorCode.NONE
PATIENCE_S = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with three_brokers(tmp_path_factory.mktemp("cluster"), {"auto.leader.rebalance.enable": "false"}) as running:
        yield running


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    """Of a broker that is not the controller."""
    with Client(cluster.address(next(number for number in NUMBERS if number != cluster.controller()))) as connected:
        yield connected


@pytest.fixture
def topic(client: Client, topic_name: str) -> str:
    wanted = k19.CreatableTopic(topic_name, -1, -1, [k19.CreatableReplicaAssignment(0, [2, 3])])
    (created,) = client.call(k19.CreateTopicsRequest([wanted])).topics
    assert created.error_code == NONE, created.error_message
    assert client.describe_topic(topic_name).error_code == NONE
    return topic_name


def value_of(client: Client, topic: str, key: str) -> str | None:
    (result,) = client.call(k32.DescribeConfigsRequest([k32.DescribeConfigsResource(TOPIC, topic, [key])])).results
    value: str | None = result.configs[0].value
    return value


def test_configurations_are_replaced_and_changed(client: Client, topic: str) -> None:
    wanted = k33.AlterConfigsResource(TOPIC, topic, [k33.AlterableConfig("retention.ms", "5000")])
    (replaced,) = client.call(k33.AlterConfigsRequest([wanted], False)).responses
    assert replaced.error_code == NONE, replaced.error_message
    assert value_of(client, topic, "retention.ms") == "5000"
    client.alter_topic(topic, retention_ms="6000")
    assert value_of(client, topic, "retention.ms") == "6000"


def test_partitions_are_added(client: Client, topic: str) -> None:
    (grown,) = client.call(k37.CreatePartitionsRequest([k37.CreatePartitionsTopic(topic, 3, None)], 10_000)).results
    assert grown.error_code == NONE, grown.error_message
    assert len(client.describe_topic(topic).partitions) == 3


def test_a_topic_is_deleted(client: Client, topic: str) -> None:
    request = k20.DeleteTopicsRequest([k20.DeleteTopicState(topic)], timeout_ms=10_000)
    (deleted,) = client.call(request).responses
    assert deleted.error_code == NONE, deleted.error_message
    assert client.describe_topic(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_replicas_move_and_the_preferred_one_is_elected(cluster: Cluster, client: Client, topic: str) -> None:
    moved = client.call(
        k45.AlterPartitionReassignmentsRequest(
            topics=[k45.ReassignableTopic(topic, [k45.ReassignablePartition(0, [3, 2])])]
        )
    )
    assert (moved.error_code, moved.responses[0].partitions[0].error_code) == (NONE, NONE)
    address = cluster.address(1)
    eventually(lambda: (in_sync(address, topic), leaders(address, topic)), ({0: {2, 3}}, {0: 2}), PATIENCE_S)
    elected = client.call(k43.ElectLeadersRequest(0, [k43.TopicPartitions(topic, [0])]))
    (result,) = elected.replica_election_results[0].partition_result
    assert (elected.error_code, result.error_code) == (NONE, NONE), result.error_message
    eventually(lambda: leaders(address, topic), {0: 3}, PATIENCE_S)


@pytest.mark.parametrize(
    ("request_of", "expected"),
    [
        (lambda: k43.ElectLeadersRequest(7, [k43.TopicPartitions("any", [0])]), ErrorCode.INVALID_REQUEST),
        (lambda: k64.UnregisterBrokerRequest(99), ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_what_is_refused_as_a_whole_is_answered(client: Client, request_of: object, expected: ErrorCode) -> None:
    assert callable(request_of)
    assert client.call(request_of()).error_code == expected


def test_a_broker_that_is_gone_is_forgotten(cluster: Cluster) -> None:
    controller = cluster.controller()
    asked, gone = (number for number in NUMBERS if number != controller)
    cluster.stop(gone)
    with Client(cluster.address(asked)) as client:
        response = client.call(k64.UnregisterBrokerRequest(gone))
        assert response.error_code == NONE, response.error_message
        again = client.call(k64.UnregisterBrokerRequest(gone))
        assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.start(gone)
    eventually(lambda: cluster.controller() in NUMBERS, True, PATIENCE_S)
