"""FindCoordinator, and what a broker says that is not (yet) the coordinator of a group."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k08_offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from barnabas.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.k11_join_group import JoinGroupRequest
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest
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
    await_coordinator,
    commit,
    commit_request,
    committed_topic,
    fetched,
    find_coordinator,
)
from tests.broker.servers import barnabas_only, start
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
        # Groups of other tests may expire in the meantime, and their partitions change too: only the key is certain.
        found = [
            index
            for index in range(50)
            if any(
                topic.encode() in (record.key or b"") for record in group.client.read_all(OFFSETS, index, before[index])
            )
        ]
    assert found == [partition]


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


def code_of_partition(response: Any) -> int:
    code: int = response.topics[0].partitions[0].error_code
    return code


QUESTIONS: dict[str, tuple[Any, int, Callable[[Any], int]]] = {
    "JoinGroup": (JoinGroupRequest("g", 30_000, 30_000, "", None, "consumer"), 9, attrgetter("error_code")),
    "SyncGroup": (SyncGroupRequest("g", 1, "m", None, "consumer", "range"), 5, attrgetter("error_code")),
    "Heartbeat": (HeartbeatRequest("g", 1, "m"), 4, attrgetter("error_code")),
    "LeaveGroup": (LeaveGroupRequest("g", "m"), 5, attrgetter("error_code")),
    "OffsetFetch 7": (OffsetFetchRequest("g", []), 7, attrgetter("error_code")),
    "OffsetFetch 1": (
        OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])]),
        1,
        code_of_partition,
    ),
    "OffsetFetch": (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[])]),
        10,
        lambda response: response.groups[0].error_code,
    ),
    "ListGroups": (ListGroupsRequest(), 5, attrgetter("error_code")),
    "DescribeGroups": (DescribeGroupsRequest(["g"]), 6, lambda response: response.groups[0].error_code),
    "DeleteGroups": (DeleteGroupsRequest(["g"]), 2, lambda response: response.results[0].error_code),
    "OffsetDelete": (OffsetDeleteRequest("g"), 0, attrgetter("error_code")),
    "ConsumerGroupHeartbeat": (
        ConsumerGroupHeartbeatRequest("g", "m", 0, None, None, 30_000, ["t"], topic_partitions=[]),
        1,
        attrgetter("error_code"),
    ),
    "ConsumerGroupDescribe": (ConsumerGroupDescribeRequest(["g"]), 1, lambda response: response.groups[0].error_code),
}


def answers_to_all(address: str, topic: str) -> dict[str, ErrorCode]:
    """The error code of every request about the group "g", all asked at the same moment."""
    place = OffsetCommitRequestTopic(topic, bytes(16), [OffsetCommitRequestPartition(0, 1)])
    questions = {"OffsetCommit": (commit_request("g", [place]), 9, code_of_partition), **QUESTIONS}
    with ExitStack() as connections:
        clients = {name: connections.enter_context(Client(address)) for name in questions}
        sent = {name: clients[name].send(request, version) for name, (request, version, _) in questions.items()}
        return {
            name: ErrorCode(code_of(clients[name].receive(request, version, sent[name])))
            for name, (request, version, code_of) in questions.items()
        }


def test_before_the_topic_of_offsets_is_there_no_group_has_a_coordinator(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()
    with Client(broker.address) as client:
        answers = answers_to_all(broker.address, client.create_topic())
        assert answers.pop("ListGroups") == ErrorCode.NONE
        assert answers == dict.fromkeys(answers, ErrorCode.NOT_COORDINATOR)
        assert client.call(ListGroupsRequest()).groups == []
        assert client.describe_topic(OFFSETS).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@barnabas_only("Kafka may answer COORDINATOR_LOAD_IN_PROGRESS")
def test_requests_wait_for_groups_that_are_loaded_after_a_start(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "1"}
    with start(tmp_path / "own", settings) as broker, Group(broker.address, "g") as group:
        topic = group.client.create_topic(partitions=200)
        places = [OffsetCommitRequestPartition(partition, 7) for partition in range(200)]
        request = commit_request("g", [committed_topic(group.client, topic, *places, version=9)])
        assert commit(group.client, "kept", topic, 7) == ErrorCode.NONE  # "g" itself is deleted by one of the requests
        for _ in range(12):
            sent = [group.client.send(request, 9) for _ in range(10)]
            for correlation_id in sent:
                group.client.receive(request, 9, correlation_id)
    with start(tmp_path / "own", settings) as broker, Client(broker.address) as client:
        answers = answers_to_all(broker.address, topic)
        assert not {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS} & set(answers.values()), answers
        assert find_coordinator(client, "g").error_code == ErrorCode.NONE
        await_coordinator(client, "g")
        assert fetched(client, "kept", topic).committed_offset == 7
        assert (
            broker.log.read_text().count(f"coordinator loaded topic={OFFSETS}") == 1
        )  # not also under an older leader epoch
