"""DescribeGroups, ListGroups, DeleteGroups and OffsetDelete: groups as administrators see and clear them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.k16_list_groups import ListGroupsRequest
from barnabas.wire.messages.k42_delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.group_client import Group, await_coordinator, commit, fetched, fetched_group, subscription
from tests.broker.wire_client import Client
from tests.peers import Broker, eventually

DESCRIBE, LIST, DELETE = range(7), range(6), range(3)
NOT_ASKED = -(2**31)
READ_DELETE_DESCRIBE_AND_CONFIGS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


# DescribeGroups


@pytest.mark.parametrize("version", DESCRIBE)
def test_a_stable_group_is_described_with_its_members(group: Group, version: int) -> None:
    plain, static = group.member(), group.member(instance_id="one")
    group.settle(plain, static)
    described = group.describe(version)
    assert (described.error_code, described.group_id, described.group_state) == (ErrorCode.NONE, group.id, "Stable")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    assert described.authorized_operations == NOT_ASKED
    told = {
        each.member_id: (
            each.group_instance_id,
            each.client_id,
            each.client_host,
            bytes(each.member_metadata),
            bytes(each.member_assignment),
        )
        for each in described.members
    }
    assert told == {
        member.member_id: (
            member.instance_id if version >= 4 else None,
            "test",
            "/127.0.0.1",
            member.protocols["range"],
            member.member_id.encode(),
        )
        for member in (plain, static)
    }


def test_the_state_is_described_as_it_changes(group: Group) -> None:
    first, second = group.member(), group.member()
    states = []
    commit(group.client, group.id, group.client.create_topic(), 1)
    states.append(group.describe().group_state)
    first.join()
    states.append(group.describe().group_state)
    first.sync()
    states.append(group.describe().group_state)
    answer = second.begin_join()
    eventually(first.heartbeat, ErrorCode.REBALANCE_IN_PROGRESS)
    described = group.describe()
    states.append(described.group_state)
    assert {bytes(member.member_assignment) for member in described.members} == {b""}
    assert described.protocol_data == ""
    first.join()
    answer()
    for member in (first, second):
        assert member.leave() == ErrorCode.NONE
    states.append(group.describe().group_state)
    assert states == ["Empty", "CompletingRebalance", "Stable", "PreparingRebalance", "Empty"]


@pytest.mark.parametrize("version", DESCRIBE)
def test_a_group_that_is_not_there_is_dead_and_from_version_6_on_not_found(group: Group, version: int) -> None:
    described = group.describe(version)
    assert (described.group_id, described.group_state, described.members) == (group.id, "Dead", [])
    assert described.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    assert (described.error_message is not None) == (version >= 6)


@pytest.mark.parametrize("version", DESCRIBE)
def test_several_groups_are_described_at_once(group: Group, version: int) -> None:
    group.settle(group.member())
    response = group.client.call(DescribeGroupsRequest([group.id, f"{group.id}-not-there"]), version)
    told = {each.group_id: (ErrorCode(each.error_code), each.group_state) for each in response.groups}
    assert told[group.id] == (ErrorCode.NONE, "Stable")
    assert told[f"{group.id}-not-there"][1] == "Dead"


@pytest.mark.parametrize("version", [version for version in DESCRIBE if version >= 3])
def test_the_operations_that_are_allowed_are_told_on_request(group: Group, version: int) -> None:
    group.settle(group.member())
    (described,) = group.client.call(DescribeGroupsRequest([group.id], True), version).groups
    assert described.authorized_operations == READ_DELETE_DESCRIBE_AND_CONFIGS


# ListGroups


def listed(
    client: Client, group_id: str, version: int = LIST[-1], states: Sequence[str] = (), types: Sequence[str] = ()
) -> Any | None:
    response = client.call(ListGroupsRequest(list(states), list(types)), version)
    assert response.error_code == ErrorCode.NONE
    return next((each for each in response.groups if each.group_id == group_id), None)


@pytest.mark.parametrize("version", LIST)
def test_groups_are_listed_as_far_as_the_version_can_tell(group: Group, version: int) -> None:
    assert listed(group.client, group.id, version) is None
    group.settle(group.member())
    found = listed(group.client, group.id, version)
    assert found is not None
    assert found.protocol_type == "consumer"
    assert found.group_state == ("Stable" if version >= 4 else "")
    assert found.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize("version", LIST)
def test_a_group_of_offsets_alone_is_listed_without_a_protocol(group: Group, version: int) -> None:
    commit(group.client, group.id, group.client.create_topic(), 1)
    found = listed(group.client, group.id, version)
    assert found is not None
    assert (found.protocol_type, found.group_state) == ("", "Empty" if version >= 4 else "")


@pytest.mark.parametrize(
    ("states", "types", "is_listed"),
    [
        (["Stable"], [], True),
        (["stable"], [], True),
        (["Empty", "STABLE"], [], True),
        (["Empty"], [], False),
        (["no such state"], [], False),
        ([], ["classic"], True),
        ([], ["CLASSIC", "consumer"], True),
        ([], ["consumer"], False),
        ([], ["no such type"], False),
        (["Stable"], ["classic"], True),
        (["Stable"], ["consumer"], False),
        (["Empty"], ["classic"], False),
    ],
)
def test_listings_are_filtered_by_state_and_type(
    group: Group, states: list[str], types: list[str], is_listed: bool
) -> None:
    group.settle(group.member())
    assert (listed(group.client, group.id, states=states, types=types) is not None) == is_listed


def test_groups_of_the_consumer_protocol_are_listed_as_such(group: Group, topic_name: str) -> None:
    join = ConsumerGroupHeartbeatRequest(group.id, "m", 0, None, None, 30_000, [topic_name], topic_partitions=[])
    assert group.client.call(join).error_code == ErrorCode.NONE
    found = listed(group.client, group.id, types=["consumer"])
    assert found is not None
    assert (found.protocol_type, found.group_state, found.group_type) == ("consumer", "Stable", "consumer")
    assert listed(group.client, group.id, types=["classic"]) is None
    assert group.describe(5).group_state == "Dead"
    assert group.describe(6).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# DeleteGroups


@pytest.mark.parametrize("version", DELETE)
def test_only_groups_without_members_are_deleted_and_their_offsets_with_them(
    group: Group, broker: Broker, version: int
) -> None:
    topic = group.client.create_topic()
    with Group(broker.address) as living:
        living.settle(living.member())
        commit(group.client, group.id, topic, 5)
        asked = [group.id, living.id, f"{group.id}-not-there"]
        response = group.client.call(DeleteGroupsRequest(asked), version)
        assert {each.group_id: ErrorCode(each.error_code) for each in response.results} == {
            group.id: ErrorCode.NONE,
            living.id: ErrorCode.NON_EMPTY_GROUP,
            f"{group.id}-not-there": ErrorCode.GROUP_ID_NOT_FOUND,
        }
    assert fetched(group.client, group.id, topic).committed_offset == -1
    assert group.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    again = group.client.call(DeleteGroupsRequest([group.id]), version)
    assert again.results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


# OffsetDelete


def delete_offsets(client: Client, group_id: str, topics: dict[str, list[int]]) -> Any:
    asked = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(partition) for partition in partitions])
        for name, partitions in topics.items()
    ]
    return client.call(OffsetDeleteRequest(group_id, asked))


def codes(response: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }


def test_offsets_are_deleted_one_by_one_in_a_group_without_members(group: Group) -> None:
    topic = group.client.create_topic(partitions=3)
    for partition in range(2):
        commit(group.client, group.id, topic, 5, partition)
    response = delete_offsets(group.client, group.id, {topic: [1, 2, 3], "not-there": [0]})
    assert response.error_code == ErrorCode.NONE
    assert codes(response) == {
        (topic, 1): ErrorCode.NONE,
        (topic, 2): ErrorCode.NONE,
        (topic, 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("not-there", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [fetched(group.client, group.id, topic, at).committed_offset for at in (0, 1)] == [5, -1]
    delete_offsets(group.client, group.id, {topic: [0]})
    assert fetched_group(group.client, group.id, None).topics == []


def test_offsets_of_topics_that_are_subscribed_are_not_deleted(group: Group) -> None:
    read, left = group.client.create_topic(), group.client.create_topic()
    member = group.member({"range": subscription(read)})
    group.settle(member)
    for topic in (read, left):
        assert member.commit(topic, 5) == ErrorCode.NONE
    response = delete_offsets(group.client, group.id, {read: [0], left: [0]})
    assert response.error_code == ErrorCode.NONE
    assert codes(response) == {(read, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, (left, 0): ErrorCode.NONE}
    assert [fetched(group.client, group.id, topic).committed_offset for topic in (read, left)] == [5, -1]


def test_offsets_of_a_group_that_is_not_of_consumers_are_deleted_only_when_it_is_empty(group: Group) -> None:
    topic = group.client.create_topic()
    worker = group.member({"default": b"whatever"})
    worker.protocol_type = "connect"
    assert worker.join().error_code == ErrorCode.NONE
    assert delete_offsets(group.client, group.id, {topic: [0]}).error_code == ErrorCode.NON_EMPTY_GROUP
    worker.leave()
    assert delete_offsets(group.client, group.id, {topic: [0]}).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("group_id", "expected"),
    [("not-there", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)],
)
def test_offsets_of_no_group_cannot_be_deleted(client: Client, group_id: str, expected: ErrorCode) -> None:
    await_coordinator(client, group_id)
    topic = client.create_topic()
    response = delete_offsets(client, group_id, {topic: [0], "not-there": [0]})
    assert (response.error_code, response.topics) == (expected, [])
    assert delete_offsets(client, group_id, {}).error_code == expected
    only_missing = delete_offsets(client, group_id, {"not-there": [0]})
    assert (only_missing.error_code, only_missing.topics) == (expected, [])
