"""FindCoordinator, and what a broker says that is not (yet) the coordinator of a group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.k16_list_groups import ListGroupsRequest
from barnabas.wire.messages.k42_delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.k47_offset_delete import OffsetDeleteRequest
from barnabas.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from tests.broker.group_client import (
    NEW_GROUP,
    SHARE,
    TRANSACTION,
    Group,
    Member,
    commit,
    fetched_group,
    find_coordinator,
)
from tests.broker.wire_client import EARLIEST, LATEST, Client
from tests.peers import Broker, eventually

VERSIONS = range(7)
FIRST_WITH_KEYS = 4
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("key_type", [NEW_GROUP, TRANSACTION])
def test_the_coordinator_is_a_broker_of_the_cluster(
    client: Client, broker: Broker, version: int, key_type: int
) -> None:
    eventually(lambda: find_coordinator(client, "key", key_type, version).error_code, ErrorCode.NONE)
    found = find_coordinator(client, "key", key_type, version)
    host, port = broker.address.rsplit(":", 1)
    assert (found.host, found.port) == (host, int(port))
    assert found.node_id >= 0
    if version >= FIRST_WITH_KEYS:
        assert found.key == "key"


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= FIRST_WITH_KEYS])
def test_many_keys_are_found_in_one_request_each_with_its_answer(client: Client, version: int) -> None:
    find_coordinator(client, "first")
    keys = ["first", "", "\N{SNOWMAN}", "x" * 1000, *(f"group-{number}" for number in range(100))]
    eventually(lambda: find_coordinator(client, "first").error_code, ErrorCode.NONE)
    response = client.call(FindCoordinatorRequest(coordinator_keys=keys), version)
    assert [found.key for found in response.coordinators] == keys
    assert {found.error_code for found in response.coordinators} == {ErrorCode.NONE}
    assert client.call(FindCoordinatorRequest(coordinator_keys=[]), version).coordinators == []


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 1])
@pytest.mark.parametrize("key_type", [SHARE, 3, -1, 127])
def test_a_key_of_a_type_that_nobody_coordinates_is_refused(client: Client, version: int, key_type: int) -> None:
    found = find_coordinator(client, "key", key_type, version)
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("a", 47),
        ("test", 48),
        ("polygenelubricants", 0),  # its hash is the one number whose negative is negative
        ("a longer name, whose hash is below zero", 12),
        ("\N{SNOWMAN} and \N{GRINNING FACE}", 41),  # the hash is one of UTF-16
    ],
)
def test_a_group_belongs_to_the_partition_that_javas_hash_says(broker: Broker, group_id: str, partition: int) -> None:
    with Group(broker.address, group_id) as group:
        topic = group.client.create_topic()
        before = [group.client.list_offset(OFFSETS, LATEST, index).offset for index in range(50)]
        assert commit(group.client, group_id, topic, 1) == ErrorCode.NONE
        after = [group.client.list_offset(OFFSETS, LATEST, index).offset for index in range(50)]
    assert [index for index in range(50) if after[index] != before[index]] == [partition]


def test_the_internal_topics_are_made_compacted_when_they_are_first_needed(start_broker: Callable[..., Broker]) -> None:
    sizes = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "4"}
    with Client(start_broker(sizes).address) as client:
        for topic, key_type, partitions in ((OFFSETS, NEW_GROUP, 3), (TRANSACTIONS, TRANSACTION, 4)):
            assert client.describe_topic(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            eventually(lambda kind=key_type: find_coordinator(client, "key", kind).error_code, 0)  # type: ignore[misc]
            described = client.describe_topic(topic)
            assert described.is_internal
            assert len(described.partitions) == partitions
            client.await_leaders(topic, partitions)
            assert client.list_offset(topic, EARLIEST).offset == 0


def test_before_the_topic_of_offsets_is_there_no_group_has_a_coordinator(start_broker: Callable[..., Broker]) -> None:
    address = start_broker().address
    with Client(address) as client, Member(address, "g") as member:
        topic = client.create_topic()
        answers = {
            "join": member.call(member.join_request()).error_code,
            "sync": member.sync().error_code,
            "heartbeat": member.heartbeat(),
            "leave": member.leave(),
            "commit": commit(client, "g", topic, 1),
            "fetch": fetched_group(client, "g", {topic: [0]}).error_code,
            "fetch of old": fetched_group(client, "g", {topic: [0]}, version=7).error_code,
            "describe": client.call(DescribeGroupsRequest(["g"])).groups[0].error_code,
            "delete": client.call(DeleteGroupsRequest(["g"])).results[0].error_code,
            "offset delete": client.call(OffsetDeleteRequest("g", [])).error_code,
            "consumer heartbeat": client.call(joining("g")).error_code,
            "consumer describe": client.call(ConsumerGroupDescribeRequest(["g"])).groups[0].error_code,
        }
        assert answers == dict.fromkeys(answers, ErrorCode.NOT_COORDINATOR)
        listed = client.call(ListGroupsRequest())
        assert (listed.error_code, listed.groups) == (ErrorCode.NONE, [])
        assert client.describe_topic(OFFSETS).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def joining(group_id: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id, "m", 0, None, None, 30_000, ["t"], topic_partitions=[])
