"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups whose partitions the coordinator deals out (KIP-848)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.k42_delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from tests.broker.group_client import COMMIT, Group, commit, fetched_group
from tests.broker.wire_client import Client
from tests.peers import eventually

VERSIONS = (0, 1)
LEAVE, LEAVE_FOR_A_WHILE = -1, -2
FIRST_EPOCH = 2
"""Of the first member: the group's epoch rises for its coming, and for the topics that it brings."""
NOT_ASKED = -(2**31)
READ_DELETE_DESCRIBE_AND_CONFIGS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
Owned = dict[bytes, list[int]]


class Consumer:
    """A member of a group of the consumer protocol: what it was told last."""

    def __init__(
        self, group: Group, topics: Sequence[str] | None, instance_id: str | None = None, version: int = 1, **more: Any
    ) -> None:
        self.client, self.group_id, self.version = group.client, group.id, version
        self.member_id = str(uuid.uuid4()) if version >= 1 else ""
        self.epoch = 0
        self.instance_id = instance_id
        self.topics = None if topics is None else list(topics)
        self.more = more
        self.owned: Owned = {}

    def join_request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            self.group_id, self.member_id, 0, self.instance_id, None, 30_000, self.topics, topic_partitions=[]
        )
        for name, value in self.more.items():
            setattr(request, name, value)
        return request

    def join(self) -> Any:
        return self.take(self.client.call(self.join_request(), self.version))

    def beat(self, epoch: int | None = None, owned: Mapping[bytes, Sequence[int]] | None = None, **more: Any) -> Any:
        """A heartbeat that says no more than it is told to."""
        request = ConsumerGroupHeartbeatRequest(
            self.group_id, self.member_id, self.epoch if epoch is None else epoch, self.instance_id, **more
        )
        if owned is not None:
            request.topic_partitions = [TopicPartitions(topic, list(partitions)) for topic, partitions in owned.items()]
        return self.take(self.client.call(request, self.version))

    def settle(self) -> Owned:
        """Own what it is told to, say so, and do that until there is nothing new."""
        while self.beat(owned=self.owned).assignment is not None:
            pass
        return self.owned

    def told(self) -> Any:
        """The next answer with an assignment; Kafka makes a new one no more than once a second."""
        owned, answers = self.owned, list[Any]()

        def is_told() -> bool:
            answers.append(self.beat(owned=owned))
            return answers[-1].assignment is not None

        eventually(is_told, True)
        return answers[-1]

    def take(self, response: Any) -> Any:
        if response.error_code == ErrorCode.NONE:
            self.member_id, self.epoch = response.member_id, response.member_epoch
            if response.assignment is not None:
                self.owned = owned_of(response.assignment)
        return response


def owned_of(assignment: Assignment) -> Owned:
    return {each.topic_id: sorted(each.partitions) for each in assignment.topic_partitions}


def described(group: Group, version: int = 1, *, operations: bool = False) -> Any:
    (found,) = group.client.call(ConsumerGroupDescribeRequest([group.id], operations), version).groups
    return found


@pytest.fixture(scope="module")
def topic(broker: Any) -> str:
    with Client(broker.address) as client:
        return client.create_topic(partitions=4)


@pytest.fixture(scope="module")
def topic_id(broker: Any, topic: str) -> bytes:
    with Client(broker.address) as client:
        return client.topic_id(topic)


# joining and staying


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_member_is_given_everything_at_once(group: Group, topic: str, topic_id: bytes, version: int) -> None:
    consumer = Consumer(group, [topic], version=version)
    response = consumer.join()
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert (response.member_epoch, response.heartbeat_interval_ms) == (FIRST_EPOCH, 5000)
    assert owned_of(response.assignment) == {topic_id: [0, 1, 2, 3]}
    assert response.member_id == (consumer.member_id if version >= 1 else response.member_id)
    assert response.member_id
    response = consumer.beat(owned=consumer.owned)
    assert (response.error_code, response.member_epoch, response.assignment) == (ErrorCode.NONE, FIRST_EPOCH, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_member_is_given_what_the_first_has_let_go(
    group: Group, topic: str, topic_id: bytes, version: int
) -> None:
    first, second = Consumer(group, [topic], version=version), Consumer(group, [topic], version=version)
    first.join()
    first.settle()
    assert owned_of(second.join().assignment) == {}  # the first has not let go of anything yet
    told = first.told()
    assert told.member_epoch == FIRST_EPOCH
    kept = owned_of(told.assignment)
    assert len(kept[topic_id]) == 2
    assert second.beat(owned={}).assignment is None
    assert first.beat(owned=kept).member_epoch == FIRST_EPOCH + 1
    given = owned_of(second.told().assignment)
    assert sorted(kept[topic_id] + given[topic_id]) == [0, 1, 2, 3]


def test_partitions_that_are_added_are_dealt_out(group: Group) -> None:
    topic = group.client.create_topic(partitions=1)
    consumer = Consumer(group, [topic])
    consumer.join()
    consumer.settle()
    assert list(consumer.owned.values()) == [[0]]
    grown = group.client.call(CreatePartitionsRequest([CreatePartitionsTopic(topic, 3, None)], 10_000))
    assert grown.results[0].error_code == ErrorCode.NONE

    eventually(lambda: list(consumer.settle().values()), [[0, 1, 2]])
    assert consumer.epoch == FIRST_EPOCH + 1


def test_a_topic_that_is_not_there_yet_is_dealt_out_when_it_comes(group: Group, topic_name: str) -> None:
    consumer = Consumer(group, [topic_name])
    assert owned_of(consumer.join().assignment) == {}
    group.client.create_topic(name=topic_name)
    eventually(lambda: list(consumer.settle().values()), [[0]])


def test_another_subscription_raises_the_epoch(group: Group, topic: str, topic_id: bytes) -> None:
    consumer = Consumer(group, [topic])
    consumer.join()
    consumer.settle()
    other = group.client.create_topic()
    consumer.beat(owned=consumer.owned, subscribed_topic_names=[other])
    eventually(consumer.settle, {group.client.topic_id(other): [0]})
    assert consumer.epoch > FIRST_EPOCH


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_an_assignor_is_the_members_choice(group: Group, topic: str, assignor: str) -> None:
    consumer = Consumer(group, [topic], server_assignor=assignor)
    assert consumer.join().error_code == ErrorCode.NONE
    assert described(group).assignor_name == assignor


def test_topics_are_found_by_a_pattern(group: Group, topic_name: str) -> None:
    matched = [group.client.create_topic(name=f"{topic_name}-{suffix}") for suffix in ("a", "b")]
    group.client.create_topic(name=f"{topic_name}-c")
    consumer = Consumer(group, None, subscribed_topic_regex=f"{topic_name}-[ab]")
    assert consumer.join().error_code == ErrorCode.NONE
    ids = {group.client.topic_id(name) for name in matched}
    eventually(lambda: set(consumer.settle()), ids)


# what is refused


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": [TopicPartitions(bytes(16), [0])]}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 1, "member_id": "m"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": LEAVE, "member_id": "m"}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_join_that_is_not_whole_is_refused(
    group: Group, topic: str, version: int, change: dict[str, Any], expected: ErrorCode
) -> None:
    consumer = Consumer(group, [topic], version=version, **change)
    response = consumer.join()
    assert response.error_code == expected
    assert response.error_message
    assert described(group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_from_version_1_on_a_member_brings_its_id(group: Group, topic: str) -> None:
    assert Consumer(group, [topic], version=1, member_id="").join().error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("pattern", ["(", "a{1001}", "(?=look)", "\\1"])
def test_a_pattern_that_is_not_re2_is_refused(group: Group, pattern: str) -> None:
    response = Consumer(group, None, subscribed_topic_regex=pattern).join()
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert described(group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_with_another_epoch_is_fenced_and_a_stranger_unknown(group: Group, topic: str, version: int) -> None:
    first, second = Consumer(group, [topic], version=version), Consumer(group, [topic], version=version)
    first.join()
    first.settle()
    assert first.beat(epoch=99).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert first.beat(epoch=FIRST_EPOCH - 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    second.join()
    first.told()
    first.settle()
    assert first.epoch == FIRST_EPOCH + 1
    assert first.beat(epoch=FIRST_EPOCH).error_code == ErrorCode.FENCED_MEMBER_EPOCH  # without saying what it owns
    again = first.beat(epoch=FIRST_EPOCH, owned=first.owned)  # its answer may have been lost
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, FIRST_EPOCH + 1)
    first.member_id = "stranger"
    assert first.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.beat(epoch=LEAVE).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_is_fenced_begins_anew_with_epoch_0(group: Group, topic: str, topic_id: bytes) -> None:
    consumer = Consumer(group, [topic])
    consumer.join()
    assert consumer.beat(epoch=7).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    response = consumer.join()
    assert (response.error_code, owned_of(response.assignment)) == (ErrorCode.NONE, {topic_id: [0, 1, 2, 3]})


# leaving


@pytest.mark.parametrize("version", VERSIONS)
def test_who_leaves_gives_its_partitions_to_the_others(group: Group, topic: str, topic_id: bytes, version: int) -> None:
    first, second = Consumer(group, [topic], version=version), Consumer(group, [topic], version=version)
    first.join()
    second.join()
    first.settle()
    response = first.beat(epoch=LEAVE)
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, LEAVE)
    eventually(second.settle, {topic_id: [0, 1, 2, 3]})
    assert first.beat(epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert second.beat(epoch=LEAVE).error_code == ErrorCode.NONE
    assert described(group).group_state == "Empty"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_static_member_that_leaves_for_a_while_finds_its_partitions_again(
    group: Group, topic: str, topic_id: bytes, version: int
) -> None:
    static = Consumer(group, [topic], "one", version=version)
    static.join()
    static.settle()
    usurper = Consumer(group, [topic], "one", version=version)
    assert usurper.join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    response = static.beat(epoch=LEAVE_FOR_A_WHILE)
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, LEAVE_FOR_A_WHILE)
    again = Consumer(group, [topic], "one", version=version)
    response = again.join()
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, FIRST_EPOCH)
    assert owned_of(response.assignment) == {topic_id: [0, 1, 2, 3]}
    assert again.member_id != static.member_id
    static.epoch = FIRST_EPOCH
    assert static.beat().error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_is_not_there_cannot_leave_for_a_while(group: Group, topic: str) -> None:
    Consumer(group, [topic]).join()
    stranger = Consumer(group, [topic], "two")
    assert stranger.beat(epoch=LEAVE_FOR_A_WHILE).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    nameless = Consumer(group, [topic])
    assert nameless.beat(epoch=LEAVE_FOR_A_WHILE).error_code == ErrorCode.INVALID_REQUEST


# offsets


@pytest.mark.parametrize("version", COMMIT)
def test_a_member_commits_by_its_epoch_where_the_version_can_hear_the_answer(
    group: Group, topic: str, version: int
) -> None:
    consumer = Consumer(group, [topic])
    consumer.join()

    def attempt(epoch: int, member_id: str) -> ErrorCode:
        return commit(group.client, group.id, topic, 5, generation_id=epoch, member_id=member_id, version=version)

    assert attempt(consumer.epoch, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert attempt(-1, "") == ErrorCode.UNKNOWN_MEMBER_ID
    stale = attempt(consumer.epoch + 1, consumer.member_id)
    if version < 9:
        assert attempt(consumer.epoch, consumer.member_id) == ErrorCode.UNSUPPORTED_VERSION
        assert stale == ErrorCode.UNSUPPORTED_VERSION
    else:
        assert attempt(consumer.epoch, consumer.member_id) == ErrorCode.NONE
        assert stale == ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        ("own", FIRST_EPOCH, ErrorCode.NONE),
        ("own", FIRST_EPOCH + 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("own", FIRST_EPOCH - 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("stranger", FIRST_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, -1, ErrorCode.NONE),  # an administrator, who has neither
    ],
)
def test_a_member_asks_for_offsets_by_its_epoch(
    group: Group, topic: str, version: int, member_id: str | None, epoch: int, expected: ErrorCode
) -> None:
    consumer = Consumer(group, [topic])
    consumer.join()
    commit(group.client, group.id, topic, 5, generation_id=consumer.epoch, member_id=consumer.member_id)
    answer = fetched_group(
        group.client,
        group.id,
        {topic: [0]},
        member_id=consumer.member_id if member_id == "own" else member_id,
        member_epoch=epoch,
        version=version,
    )
    assert answer.error_code == expected
    offsets = [each.committed_offset for found in answer.topics for each in found.partitions]
    assert offsets == ([5] if expected == ErrorCode.NONE else [])


def test_a_group_with_members_keeps_its_offsets_and_itself(group: Group, topic: str) -> None:
    consumer = Consumer(group, [topic])
    consumer.join()
    commit(group.client, group.id, topic, 5, generation_id=consumer.epoch, member_id=consumer.member_id)
    asked = OffsetDeleteRequest(group.id, [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])])
    (refused,) = group.client.call(asked).topics[0].partitions
    assert refused.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    delete = DeleteGroupsRequest([group.id])
    assert group.client.call(delete).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    consumer.beat(epoch=LEAVE)
    assert group.client.call(delete).results[0].error_code == ErrorCode.NONE
    assert described(group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# ConsumerGroupDescribe


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_is_described_with_epochs_and_assignments(
    group: Group, topic: str, topic_id: bytes, version: int
) -> None:
    consumer = Consumer(group, [topic], "one", rack_id="rack")
    consumer.join()
    consumer.settle()
    found = described(group, version)
    assert (found.error_code, found.group_id, found.group_state) == (ErrorCode.NONE, group.id, "Stable")
    assert (found.group_epoch, found.assignment_epoch) == (FIRST_EPOCH, FIRST_EPOCH)
    assert found.assignor_name == "uniform"
    assert found.authorized_operations == NOT_ASKED
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id) == (consumer.member_id, "one", "rack")
    assert (member.client_id, member.client_host, member.member_epoch) == ("test", "/127.0.0.1", FIRST_EPOCH)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex or "") == ([topic], "")
    assert member.member_type == (1 if version >= 1 else -1)
    for assignment in (member.assignment, member.target_assignment):
        (told,) = assignment.topic_partitions
        assert (told.topic_id, told.topic_name, sorted(told.partitions)) == (topic_id, topic, [0, 1, 2, 3])


def test_a_group_that_takes_partitions_back_is_reconciling(group: Group, topic: str) -> None:
    first, second = Consumer(group, [topic]), Consumer(group, [topic])
    first.join()
    first.settle()
    second.join()
    first.told()
    found = described(group)
    epoch = FIRST_EPOCH + 1
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Reconciling", epoch, epoch)


@pytest.mark.parametrize("version", VERSIONS)
def test_groups_that_are_not_of_this_protocol_are_not_found(group: Group, version: int) -> None:
    group.settle(group.member())
    request = ConsumerGroupDescribeRequest([group.id, f"{group.id}-not-there", ""], True)
    answers = {each.group_id: ErrorCode(each.error_code) for each in group.client.call(request, version).groups}
    assert answers == {
        group.id: ErrorCode.GROUP_ID_NOT_FOUND,
        f"{group.id}-not-there": ErrorCode.GROUP_ID_NOT_FOUND,
        "": ErrorCode.INVALID_GROUP_ID,
    }


def test_the_operations_that_are_allowed_are_told_on_request(group: Group, topic: str) -> None:
    Consumer(group, [topic]).join()
    assert described(group, operations=True).authorized_operations == READ_DELETE_DESCRIBE_AND_CONFIGS
