"""Three brokers as clients see them: every one is as good as any other to ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages import k03_metadata, k19_create_topics, k20_delete_topics, k22_init_producer_id
from barnabas.wire.messages import k37_create_partitions as k37
from barnabas.wire.messages import k46_list_partition_reassignments as k46
from barnabas.wire.messages import k63_broker_heartbeat as k63
from barnabas.wire.messages import k64_unregister_broker as k64
from tests.broker.wire_client import Client, Connection
from tests.cluster.three_brokers import METADATA_VERSION, NUMBERS, Cluster, leaders, living_brokers, three_brokers
from tests.peers import eventually, kafka_tool

PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with three_brokers(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(params=NUMBERS)
def address(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """Each broker in turn: one of them is the controller, the others pass requests on to it."""
    return cluster.address(request.param)


def create_topic(address: str, name: str, partitions: int = PARTITIONS) -> None:
    topic = k19_create_topics.CreatableTopic(name, partitions, 1)
    with Client(address) as client:
        (result,) = client.call(k19_create_topics.CreateTopicsRequest([topic])).topics
    assert result.error_code == ErrorCode.NONE, result.error_message


def test_all_brokers_know_all_brokers_and_one_controller(cluster: Cluster) -> None:
    for number in NUMBERS:
        eventually(lambda at=number: living_brokers(cluster.address(at)), set(NUMBERS))  # type: ignore[misc]
    assert cluster.controller() in NUMBERS


def test_a_topic_is_there_as_soon_as_the_broker_that_was_asked_has_answered(address: str, topic_name: str) -> None:
    create_topic(address, topic_name)
    assert set(leaders(address, topic_name).values()) == set(NUMBERS)


def test_every_broker_learns_of_a_topic(cluster: Cluster, address: str, topic_name: str) -> None:
    create_topic(address, topic_name)
    expected = leaders(address, topic_name)
    for number in NUMBERS:
        eventually(lambda at=number: leaders(cluster.address(at), topic_name), expected)  # type: ignore[misc]


def test_a_refusal_of_the_controller_comes_back_as_it_is(address: str, topic_name: str) -> None:
    topic = k19_create_topics.CreatableTopic(topic_name, 1, 4)
    with Client(address) as client:
        (result,) = client.call(k19_create_topics.CreateTopicsRequest([topic])).topics
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "4" in result.error_message


def test_a_topic_changes_and_goes_through_any_broker(address: str, topic_name: str) -> None:
    create_topic(address, topic_name)
    with Client(address) as client:
        client.alter_topic(topic_name, retention_ms="5000")
        more = k37.CreatePartitionsTopic(topic_name, PARTITIONS + 2, None)
        (result,) = client.call(k37.CreatePartitionsRequest([more], 10_000)).results
        assert result.error_code == ErrorCode.NONE
        assert len(client.describe_topic(topic_name).partitions) == PARTITIONS + 2
        doomed = [k20_delete_topics.DeleteTopicState(topic_name)]
        (deleted,) = client.call(k20_delete_topics.DeleteTopicsRequest(doomed, timeout_ms=10_000)).responses
        assert deleted.error_code == ErrorCode.NONE
        assert client.describe_topic(topic_name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_asked_for_is_created_in_the_same_answer(address: str, topic_name: str) -> None:
    request = k03_metadata.MetadataRequest([k03_metadata.MetadataRequestTopic(name=topic_name)])
    with Client(address) as client:
        (topic,) = client.call(request, METADATA_VERSION).topics
    assert topic.error_code == ErrorCode.NONE
    assert [partition.leader_id in NUMBERS for partition in topic.partitions] == [True]


def test_reassignments_are_told_by_any_broker(address: str) -> None:
    with Client(address) as client:
        response = client.call(k46.ListPartitionReassignmentsRequest())
    assert (response.error_code, response.topics) == (ErrorCode.NONE, [])


def test_a_broker_that_never_was_cannot_be_forgotten(address: str) -> None:
    with Client(address) as client:
        response = client.call(k64.UnregisterBrokerRequest(99))
    assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_producer_ids_are_unique_over_all_brokers(cluster: Cluster) -> None:
    given = []
    for number in NUMBERS:
        with Client(cluster.address(number)) as client:
            given += [client.call(k22_init_producer_id.InitProducerIdRequest(None, -1)) for _ in range(5)]
    assert {response.error_code for response in given} == {ErrorCode.NONE}
    assert len({response.producer_id for response in given}) == len(given)


@pytest.mark.parametrize("asks_controller", [True, False])
def test_a_heartbeat_needs_the_controller_and_the_current_epoch(cluster: Cluster, asks_controller: bool) -> None:
    controller = cluster.controller()
    asked = controller if asks_controller else next(number for number in NUMBERS if number != controller)
    with Connection(cluster.address(asked)) as connection:
        response = connection.call(k63.BrokerHeartbeatRequest(asked, broker_epoch=7, current_metadata_offset=10**6))
    expected = ErrorCode.STALE_BROKER_EPOCH if asks_controller else ErrorCode.NOT_CONTROLLER
    assert response.error_code == expected


def test_clients_write_and_read_through_any_broker(address: str, topic_name: str) -> None:
    create_topic(address, topic_name)
    values = {f"{partition} {n}".encode() for partition in range(PARTITIONS) for n in range(20)}
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for value in values:
        producer.produce(topic_name, value, partition=int(value.split()[0]))
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic_name, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic_name, partition, 0) for partition in range(PARTITIONS)])
    found: set[bytes] = set()
    while len(found) < len(values):
        messages = consumer.consume(len(values) - len(found), timeout=60)
        assert messages, f"{len(found)} of {len(values)} came"
        found |= {message.value() or b"" for message in messages}
    consumer.close()
    assert found == values


def test_a_group_finds_its_coordinator_through_any_broker(cluster: Cluster, topic_name: str) -> None:
    create_topic(cluster.address(1), topic_name)
    for number in NUMBERS:
        eventually(lambda at=number: len(leaders(cluster.address(at), topic_name)), PARTITIONS)  # type: ignore[misc]
    producer = Producer({"bootstrap.servers": cluster.address(2)})
    producer.produce(topic_name, b"value", partition=3)
    assert producer.flush(60) == 0
    for number in NUMBERS:
        settings = {"group.id": f"{topic_name}-{number}", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": cluster.address(number), **settings})
        consumer.subscribe([topic_name])
        messages = consumer.consume(1, timeout=60)
        assert [message.value() for message in messages] == [b"value"]
        consumer.commit(asynchronous=False)
        consumer.close()


def test_kafkas_tools_list_and_describe(cluster: Cluster, topic_name: str) -> None:
    create_topic(cluster.address(3), topic_name)
    for number in NUMBERS:
        eventually(lambda at=number: len(leaders(cluster.address(at), topic_name)), PARTITIONS)  # type: ignore[misc]
    tool = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server")
    assert topic_name in kafka_tool(*tool, cluster.address(2), "--list").split()
    described = kafka_tool(*tool, cluster.address(1), "--describe", "--topic", topic_name)
    assert described.count(f"Topic: {topic_name}\tPartition: ") == PARTITIONS
    assert {f"Leader: {number}" for number in NUMBERS} <= set(described.split("\t"))


def test_admin_calls_go_to_whatever_broker_the_client_likes(cluster: Cluster) -> None:
    listed = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=60)
    assert set(listed.brokers) == set(NUMBERS)
    assert listed.controller_id == cluster.controller()
