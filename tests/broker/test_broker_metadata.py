"""What a client learns of a cluster: versions, brokers, topics, coordinators, and under which address."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.handlers import SERVED
from barnabas.core.errors import ErrorCode
from barnabas.wire.compiler import codec
from barnabas.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.k60_describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.wire.registry import API_KEYS
from tests.broker.servers import ON_KAFKA, barnabas_only
from tests.broker.wire_client import Client, batch, values_in
from tests.peers import HOST, Broker, eventually, free_port

NO_OPERATIONS = -(2**31)
ZERO = bytes(16)
BAD_NAMES = ["", ".", "..", "white space", "slash/", "é", "x" * 250]


def metadata(client: Client, *names: str, create: bool = False, version: int = 13) -> Any:
    asked = [MetadataRequestTopic(name=name) for name in names]
    return client.call(MetadataRequest(asked, allow_auto_topic_creation=create), version)


# ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_every_version_tells_the_same_versions(client: Client, version: int) -> None:
    response = client.call(ApiVersionsRequest("test", "1.0"), version)
    assert response.error_code == ErrorCode.NONE
    told = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    assert all(
        told[key] == (0 if key == 0 else API_KEYS[key].min_version, highest) for key, (_, highest) in SERVED.items()
    )
    if not ON_KAFKA:
        assert told == SERVED


def test_the_features_that_change_what_clients_do_are_named(client: Client) -> None:
    response = client.call(ApiVersionsRequest("test", "1.0"))
    levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert (levels["group.version"], levels["transaction.version"]) == (1, 2)
    assert levels["eligible.leader.replicas.version"] == 1


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_unknown_version_is_answered_in_version_zero(client: Client, version: int) -> None:
    client.send_frame(struct.pack(">hhih", 18, version, 4711, -1) + b"\0what a future version may bring")
    frame = memoryview(client.receive_frame())
    assert struct.unpack_from(">ih", frame) == (4711, ErrorCode.UNSUPPORTED_VERSION)
    response, end = codec(ApiVersionsResponse, 0).decode(frame, 4)
    assert end == len(frame)
    assert {key.api_key: key.max_version for key in response.api_keys}[18] >= 4
    assert client.call(ApiVersionsRequest("test", "1.0"), 4).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "-x", "a b", "x\n"])
def test_a_client_has_a_proper_name(client: Client, name: str) -> None:
    assert client.call(ApiVersionsRequest(name, "1.0")).error_code == ErrorCode.INVALID_REQUEST
    assert client.call(ApiVersionsRequest("test", name)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (3, 99), (0, 14), (0, 2), (1, 3), (4, 0)])
def test_what_is_not_served_closes_the_connection(
    broker: Broker, client: Client, connect: Callable[[Broker], Client], key: int, version: int
) -> None:
    other = connect(broker)
    other.send_frame(struct.pack(">hhih", key, version, 1, -1) + bytes(50))
    assert other.is_closed_by_broker()
    assert metadata(client).brokers


# Metadata


@pytest.mark.parametrize("version", range(14))
def test_every_version_describes_a_topic(client: Client, broker: Broker, version: int) -> None:
    topic = client.create_topic(partitions=2)
    response = metadata(client, topic, version=version)
    (node,) = response.brokers
    assert f"{node.host}:{node.port}" == broker.address
    assert response.controller_id == (node.node_id if version >= 1 else -1)
    assert (response.cluster_id is not None) == (version >= 2)
    (told,) = response.topics
    assert (told.error_code, told.name, told.is_internal) == (ErrorCode.NONE, topic, False)
    assert (told.topic_id != ZERO) == (version >= 10)
    assert told.topic_authorized_operations == NO_OPERATIONS
    assert sorted(partition.partition_index for partition in told.partitions) == [0, 1]
    for partition in told.partitions:
        assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, node.node_id)
        assert (partition.replica_nodes, partition.isr_nodes) == ([node.node_id], [node.node_id])
        assert partition.offline_replicas == []
        assert (partition.leader_epoch >= 0) == (version >= 7)


@pytest.mark.parametrize("version", range(14))
def test_all_topics_or_none(client: Client, version: int) -> None:
    topic = client.create_topic()
    everything = MetadataRequest([] if version == 0 else None)
    assert topic in {told.name for told in client.call(everything, version).topics}
    if version:
        assert client.call(MetadataRequest([]), version).topics == []


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(client: Client, version: int) -> None:
    topic = client.create_topic()
    topic_id = client.topic_id(topic)
    asked = [MetadataRequestTopic(topic_id, None), MetadataRequestTopic(b"\1" * 16, None)]
    told = {found.topic_id: found for found in client.call(MetadataRequest(asked), version).topics}
    assert (told[topic_id].name, told[topic_id].error_code) == (topic, ErrorCode.NONE)
    assert (told[b"\1" * 16].name, told[b"\1" * 16].error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", [12, 13])
def test_an_id_counts_more_than_a_name(client: Client, topic_name: str, version: int) -> None:
    topic = client.create_topic()
    asked = [MetadataRequestTopic(client.topic_id(topic), topic_name)]
    (told,) = client.call(MetadataRequest(asked), version).topics
    assert (told.error_code, told.name) == (ErrorCode.NONE, topic)
    assert client.describe_topic(topic_name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [10, 11])
def test_ids_came_into_requests_later_than_into_responses(client: Client, version: int) -> None:
    topic = client.create_topic()
    asked = [MetadataRequestTopic(client.topic_id(topic), name) for name in (topic, None)]
    for told in client.call(MetadataRequest(asked), version).topics:
        assert (told.error_code, told.partitions) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("version", [8, 9, 10])
def test_authorized_operations_are_told_on_request(client: Client, version: int) -> None:
    topic = client.create_topic()
    request = MetadataRequest([MetadataRequestTopic(name=topic)], False, True, True)
    response = client.call(request, version)
    for operations in (response.cluster_authorized_operations, response.topics[0].topic_authorized_operations):
        assert operations > 0
    read, write, describe = 1 << 3, 1 << 4, 1 << 8
    assert response.topics[0].topic_authorized_operations & (read | write | describe) == read | write | describe


def test_the_operations_are_kafkas(client: Client) -> None:
    topic = client.create_topic()
    request = MetadataRequest([MetadataRequestTopic(name=topic)], False, True, True)
    response = client.call(request, 10)
    assert response.cluster_authorized_operations == 0b1111110100000
    assert response.topics[0].topic_authorized_operations == 0b110111111000


@pytest.mark.parametrize("version", [4, 9, 13])
def test_creation_can_be_declined(client: Client, topic_name: str, version: int) -> None:
    for _ in range(2):
        (told,) = metadata(client, topic_name, create=False, version=version).topics
        assert (told.error_code, told.name, told.topic_id) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            topic_name,
            ZERO,
        )
        assert told.partitions == []


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_a_topic_is_created_when_it_is_asked_for(client: Client, topic_name: str, version: int) -> None:
    def told() -> tuple[ErrorCode, int]:
        (topic,) = metadata(client, topic_name, create=True, version=version).topics
        return ErrorCode(topic.error_code), len(topic.partitions)

    if not ON_KAFKA:
        assert told() == (ErrorCode.NONE, 1)  # Kafka says UNKNOWN_TOPIC_OR_PARTITION or LEADER_NOT_AVAILABLE first
    eventually(told, (ErrorCode.NONE, 1))
    client.await_leaders(topic_name, 1)
    assert client.produce(topic_name, batch()).error_code == ErrorCode.NONE


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_no_topic_can_have(client: Client, name: str, create: bool) -> None:
    (told,) = metadata(client, name, create=create).topics
    assert (ErrorCode(told.error_code), told.name, told.partitions) == (ErrorCode.INVALID_TOPIC_EXCEPTION, name, [])


def test_a_topic_asked_for_twice_is_told_once(client: Client) -> None:
    topic = client.create_topic()
    assert len(metadata(client, topic, topic).topics) == 1


def test_no_topic_is_created_where_that_is_switched_off(start_broker: Callable[..., Broker], topic_name: str) -> None:
    with Client(start_broker({"auto.create.topics.enable": "false"}).address) as client:
        for _ in range(2):
            (told,) = metadata(client, topic_name, create=True).topics
            assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_created_topics_have_the_brokers_defaults(start_broker: Callable[..., Broker], topic_name: str) -> None:
    with Client(start_broker({"num.partitions": "3"}).address) as client:
        eventually(lambda: len(metadata(client, topic_name, create=True).topics[0].partitions), 3)


# listeners


@barnabas_only("Kafka needs one more listener for its controller")
def test_every_listener_answers_with_its_own_address(start_broker: Callable[..., Broker]) -> None:
    inside, outside = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:{inside},OUTSIDE://{HOST}:{outside}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{inside},OUTSIDE://broker.example.org:19092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
    }
    start_broker(settings)
    for port, advertised in ((inside, (HOST, inside)), (outside, ("broker.example.org", 19092))):
        with Client(f"{HOST}:{port}") as client:
            (node,) = metadata(client).brokers
            assert (node.host, node.port) == advertised
            (node,) = client.call(DescribeClusterRequest()).brokers
            assert (node.host, node.port) == advertised


@barnabas_only("Kafka believes a replica that it may authorize, on any listener")
def test_a_replica_is_believed_on_the_inter_broker_listener_alone(start_broker: Callable[..., Broker]) -> None:
    from tests.broker.test_broker_fetch import request_for

    inside, outside = free_port(), free_port()
    start_broker(
        {
            "listeners": f"INSIDE://{HOST}:{inside},OUTSIDE://{HOST}:{outside}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    with Client(f"{HOST}:{inside}") as inner, Client(f"{HOST}:{outside}") as outer:
        topic = inner.create_topic()
        inner.produce(topic, batch(b"secret"))
        (node,) = metadata(inner).brokers
        request = request_for((topic, 0, 0))
        request.replica_id = node.node_id
        (data,) = outer.call(request, 12).responses[0].partitions
        assert (data.error_code, values_in(data.records)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
        request.replica_id = -1
        (data,) = outer.call(request, 12).responses[0].partitions
        assert values_in(data.records) == [b"secret"]


# DescribeCluster


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(client: Client, broker: Broker, version: int) -> None:
    response = client.call(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert response.error_code == ErrorCode.NONE
    assert response.cluster_id == metadata(client).cluster_id
    (node,) = response.brokers
    assert f"{node.host}:{node.port}" == broker.address
    assert (node.is_fenced, response.controller_id) == (False, node.broker_id)
    assert response.cluster_authorized_operations == 0b1111110100000
    assert client.call(DescribeClusterRequest(), version).cluster_authorized_operations == NO_OPERATIONS


def test_a_broker_tells_nothing_of_controllers(client: Client) -> None:
    assert client.call(DescribeClusterRequest(endpoint_type=2)).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert client.call(DescribeClusterRequest(endpoint_type=7)).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


# DescribeTopicPartitions


def described(client: Client, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> Any:
    return client.call(DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor))


def test_topics_are_described_in_the_order_of_their_names(client: Client, topic_name: str) -> None:
    names = sorted(client.create_topic(partitions=2) for _ in range(3))
    response = described(client, *reversed(names))
    assert [topic.name for topic in response.topics] == names
    assert response.next_cursor is None
    topic = response.topics[0]
    assert (topic.error_code, topic.topic_id, topic.is_internal) == (ErrorCode.NONE, client.topic_id(names[0]), False)
    assert topic.topic_authorized_operations == 0b110111111000
    leader = metadata(client).brokers[0].node_id
    for index, partition in enumerate(topic.partitions):
        assert (partition.error_code, partition.partition_index, partition.leader_id) == (0, index, leader)
        assert (partition.replica_nodes, partition.isr_nodes) == ([leader], [leader])
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
        assert partition.offline_replicas == []
    (unknown,) = described(client, topic_name).topics
    assert (unknown.error_code, unknown.name, unknown.partitions) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        topic_name,
        [],
    )


def test_no_names_mean_all_topics(client: Client) -> None:
    topic = client.create_topic()
    assert topic in {told.name for told in described(client).topics}


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 8])
def test_pages_hold_as_many_partitions_as_were_asked_for(client: Client, limit: int) -> None:
    names = sorted(client.create_topic(partitions=count) for count in (3, 1, 4))
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        response = described(client, *names, limit=limit, cursor=cursor)
        page = [(topic.name, partition.partition_index) for topic in response.topics for partition in topic.partitions]
        assert len(page) == min(limit, 8 - len(seen))
        seen += page
        cursor = response.next_cursor
        if cursor is None:
            break
    expected = [(name, index) for name in names for index in range(len(client.describe_topic(name).partitions))]
    assert seen == expected


def test_a_cursor_may_point_at_what_is_gone(client: Client) -> None:
    names = sorted(client.create_topic(partitions=2) for _ in range(2))
    beyond = described(client, *names, cursor=Cursor(names[0], 9))
    assert [(topic.name, len(topic.partitions)) for topic in beyond.topics][-1] == (names[1], 2)
    between = described(client, *names, cursor=Cursor(names[0] + "x", 0))
    assert [topic.name for topic in between.topics][-1] == names[1]


def test_a_cursor_before_the_first_partition_is_refused(
    broker: Broker, client: Client, connect: Callable[[Broker], Client]
) -> None:
    topic = client.create_topic(partitions=3)
    response = described(client, topic, cursor=Cursor(topic, -1))
    assert [(told.error_code, told.partitions) for told in response.topics] == [(ErrorCode.INVALID_REQUEST, [])]


# FindCoordinator


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1])
def test_a_broker_that_is_alone_coordinates_everything(
    broker: Broker, client: Client, version: int, key_type: int
) -> None:
    if not version and key_type:
        return

    def find() -> list[tuple[int, str]]:
        response = client.call(FindCoordinatorRequest("group", key_type, ["group", "other"]), version)
        found = response.coordinators if version >= 4 else [response]
        return [(int(answer.error_code), f"{answer.host}:{answer.port}") for answer in found]

    # Apache Kafka makes the internal topic at the first question, and has an answer a little later.
    eventually(find, [(0, broker.address)] * (2 if version >= 4 else 1), 20)
