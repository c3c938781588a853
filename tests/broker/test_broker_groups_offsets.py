"""OffsetCommit and OffsetFetch: where a group goes on, and who may say so."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k08_offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from barnabas.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.group_client import (
    COMMIT,
    FETCH,
    FIRST_BY_TOPIC_ID,
    FIRST_WITH_SEVERAL_GROUPS,
    Group,
    asked_topic,
    commit,
    commit_request,
    committed_topic,
    fetched,
    fetched_group,
)
from tests.broker.transactional import TransactionalProducer, settled
from tests.broker.wire_client import Client
from tests.peers import Broker, eventually

BY_NAME = [version for version in FETCH if version < FIRST_BY_TOPIC_ID]
OF_SEVERAL = [version for version in FETCH if version >= FIRST_WITH_SEVERAL_GROUPS]
FIRST_WITH_STABLE = 7
OF_ALL = [version for version in FETCH if version >= 2]
UNKNOWN_ID = bytes(range(16))


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    with Client(broker.address) as client:
        return client.create_topic(partitions=3)


# committing


@pytest.mark.parametrize("version", COMMIT)
def test_who_is_no_member_may_commit_for_a_group_without_members(group: Group, topic: str, version: int) -> None:
    assert commit(group.client, group.id, topic, 42, leader_epoch=3, metadata="note", version=version) == 0
    found = fetched(group.client, group.id, topic)
    assert (found.error_code, found.committed_offset, found.metadata) == (ErrorCode.NONE, 42, "note")
    assert found.committed_leader_epoch == (3 if version >= 6 else -1)
    assert commit(group.client, group.id, topic, 7, metadata=None, version=version) == 0
    found = fetched(group.client, group.id, topic)
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (7, -1, "")


@pytest.mark.parametrize("version", COMMIT)
def test_a_member_of_the_generation_commits(group: Group, topic: str, version: int) -> None:
    member = group.member()
    group.settle(member)
    assert member.commit(topic, 5, version=version) == ErrorCode.NONE
    assert fetched(group.client, group.id, topic).committed_offset == 5


@pytest.mark.parametrize("version", COMMIT)
def test_only_a_member_of_the_generation_commits_for_a_group_that_has_members(
    group: Group, topic: str, version: int
) -> None:
    member = group.member()
    group.settle(member)
    answers = [
        member.commit(topic, 5, generation_id=member.generation_id - 1, version=version),
        member.commit(topic, 5, generation_id=member.generation_id + 1, version=version),
        member.commit(topic, 5, member_id="stranger", version=version),
        commit(group.client, group.id, topic, 5, version=version),
    ]
    assert answers == [
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert fetched(group.client, group.id, topic).committed_offset == -1


@pytest.mark.parametrize("version", COMMIT)
def test_a_generation_of_a_group_that_is_not_there_is_told_as_the_version_can_hear_it(
    group: Group, topic: str, version: int
) -> None:
    answer = commit(group.client, group.id, topic, 5, generation_id=1, member_id="m", version=version)
    assert answer == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)


@pytest.mark.parametrize("version", COMMIT)
def test_a_commit_is_accepted_while_the_group_rebalances_until_all_have_joined(
    group: Group, topic: str, version: int
) -> None:
    old, new = group.member(), group.member()
    group.settle(old)
    answer = new.begin_join()
    eventually(old.heartbeat, ErrorCode.REBALANCE_IN_PROGRESS)
    assert old.commit(topic, 5, version=version) == ErrorCode.NONE
    old.join()
    answer()
    assert old.commit(topic, 6, version=version) == ErrorCode.REBALANCE_IN_PROGRESS
    assert fetched(group.client, group.id, topic).committed_offset == 5


@pytest.mark.parametrize("version", COMMIT)
def test_a_note_that_is_too_long_refuses_its_partition_alone(group: Group, topic: str, version: int) -> None:
    places = [
        OffsetCommitRequestPartition(0, 10, -1, "x" * 4096),
        OffsetCommitRequestPartition(1, 11, -1, "x" * 4097),
        OffsetCommitRequestPartition(2, 12, -1, "\N{SNOWMAN}" * 4096),  # 12 KiB; the limit counts characters
    ]
    topics = [committed_topic(group.client, topic, *places, version=version)]
    (response,) = group.client.call(commit_request(group.id, topics), version).topics
    told = [(each.partition_index, ErrorCode(each.error_code)) for each in response.partitions]
    assert told == [(0, ErrorCode.NONE), (1, ErrorCode.OFFSET_METADATA_TOO_LARGE), (2, ErrorCode.NONE)]
    assert [fetched(group.client, group.id, topic, at).committed_offset for at in range(3)] == [10, -1, 12]
    assert fetched(group.client, group.id, topic, 2).metadata == "\N{SNOWMAN}" * 4096


@pytest.mark.parametrize("version", COMMIT)
def test_a_commit_for_a_topic_or_partition_that_is_not_there_is_refused_and_the_rest_is_kept(
    group: Group, topic: str, version: int
) -> None:
    gone = group.client.create_topic()
    gone_id = group.client.topic_id(gone)
    group.client.delete_topic(gone)
    place = OffsetCommitRequestPartition(0, 10)
    topics = [
        OffsetCommitRequestTopic(gone, gone_id, [place]),
        committed_topic(group.client, topic, place, OffsetCommitRequestPartition(3, 11), version=version),
    ]
    response = group.client.call(commit_request(group.id, topics), version)
    name = attrgetter("topic_id" if version >= FIRST_BY_TOPIC_ID else "name")
    told = {
        (name(each), partition.partition_index): ErrorCode(partition.error_code)
        for each in response.topics
        for partition in each.partitions
    }
    missing = ErrorCode.UNKNOWN_TOPIC_ID if version >= FIRST_BY_TOPIC_ID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told == {
        (name(topics[0]), 0): missing,
        (name(topics[1]), 0): ErrorCode.NONE,
        (name(topics[1]), 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert fetched(group.client, group.id, topic).committed_offset == 10


@pytest.mark.parametrize("version", COMMIT)
def test_an_empty_commit_is_no_error(group: Group, version: int) -> None:
    assert group.client.call(commit_request(group.id, []), version).topics == []


@pytest.mark.parametrize("version", COMMIT)
def test_a_negative_offset_is_kept_as_it_is(group: Group, topic: str, version: int) -> None:
    assert commit(group.client, group.id, topic, -5, leader_epoch=-7, version=version) == ErrorCode.NONE
    assert fetched(group.client, group.id, topic).committed_offset == -5


def test_a_retention_of_its_own_ends_an_offset_where_versions_still_have_one(
    start_broker: Callable[..., Broker],
) -> None:
    settings = {"offsets.retention.check.interval.ms": "200", "offsets.topic.num.partitions": "1"}
    with Group(start_broker(settings).address) as group:
        kept, short = group.client.create_topic(), group.client.create_topic()
        for version in (2, 3, 4):
            assert commit(group.client, group.id, kept, 1, version=version) == ErrorCode.NONE
            assert commit(group.client, group.id, short, 2, retention_ms=100, version=version) == ErrorCode.NONE
            eventually(lambda: fetched(group.client, group.id, short).committed_offset, -1)
            assert fetched(group.client, group.id, kept).committed_offset == 1


def test_what_was_committed_for_a_topic_goes_with_it(group: Group) -> None:
    topic = group.client.create_topic()
    assert commit(group.client, group.id, topic, 5) == ErrorCode.NONE
    group.client.delete_topic(topic)
    eventually(lambda: fetched(group.client, group.id, topic, version=9).committed_offset, -1)
    group.client.create_topic(name=topic)
    assert fetched(group.client, group.id, topic).committed_offset == -1


# fetching


@pytest.mark.parametrize("version", FETCH)
def test_what_was_committed_is_told_and_of_the_rest_that_there_is_nothing(
    group: Group, topic: str, version: int
) -> None:
    commit(group.client, group.id, topic, 42, 1, leader_epoch=3, metadata="note")
    answer = fetched_group(group.client, group.id, {topic: [1, 0, 99]}, version=version)
    assert answer.error_code == ErrorCode.NONE
    (found,) = answer.topics
    told = [
        (each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code)
        for each in found.partitions
    ]
    assert told == [(1, 42, 3 if version >= 5 else -1, "note", 0), (0, -1, -1, "", 0), (99, -1, -1, "", 0)]


@pytest.mark.parametrize("version", FETCH)
def test_a_group_that_is_not_there_has_committed_nothing(group: Group, topic: str, version: int) -> None:
    found = fetched(group.client, group.id, topic, version=version)
    assert (found.error_code, found.committed_offset, found.metadata) == (ErrorCode.NONE, -1, "")


@pytest.mark.parametrize("version", BY_NAME)
def test_of_a_topic_that_is_not_there_nothing_is_committed(group: Group, version: int) -> None:
    found = fetched(group.client, group.id, "not-there", version=version)
    assert (found.error_code, found.committed_offset) == (ErrorCode.NONE, -1)


def test_an_id_of_no_topic_is_unknown_and_spoils_no_other(group: Group, topic: str) -> None:
    commit(group.client, group.id, topic, 5)
    asked = [OffsetFetchRequestTopics("", UNKNOWN_ID, [0, 1]), asked_topic(group.client, topic, [0], version=10)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group.id, topics=asked)])
    (answer,) = group.client.call(request, 10).groups
    assert answer.error_code == ErrorCode.NONE
    told = {
        (each.topic_id, partition.partition_index): (ErrorCode(partition.error_code), partition.committed_offset)
        for each in answer.topics
        for partition in each.partitions
    }
    assert told == {
        (UNKNOWN_ID, 0): (ErrorCode.UNKNOWN_TOPIC_ID, -1),
        (UNKNOWN_ID, 1): (ErrorCode.UNKNOWN_TOPIC_ID, -1),
        (asked[1].topic_id, 0): (ErrorCode.NONE, 5),
    }


@pytest.mark.parametrize("version", OF_ALL)
def test_without_topics_all_that_have_offsets_are_told(group: Group, topic: str, version: int) -> None:
    other = group.client.create_topic()
    assert fetched_group(group.client, group.id, None, version=version).topics == []
    for name, partition, offset in ((topic, 0, 10), (topic, 2, 12), (other, 0, 20)):
        commit(group.client, group.id, name, offset, partition)
    answer = fetched_group(group.client, group.id, None, version=version)
    names = {group.client.topic_id(name): name for name in (topic, other)}
    told = {
        (names[each.topic_id] if version >= FIRST_BY_TOPIC_ID else each.name, partition.partition_index): (
            partition.committed_offset
        )
        for each in answer.topics
        for partition in each.partitions
    }
    assert (answer.error_code, told) == (ErrorCode.NONE, {(topic, 0): 10, (topic, 2): 12, (other, 0): 20})


@pytest.mark.parametrize("version", FETCH)
def test_no_topics_at_all_is_a_question_too(group: Group, topic: str, version: int) -> None:
    commit(group.client, group.id, topic, 5)
    answer = fetched_group(group.client, group.id, {}, version=version)
    assert (answer.error_code, answer.topics) == (ErrorCode.NONE, [])


@pytest.mark.parametrize("version", OF_SEVERAL)
def test_several_groups_are_asked_at_once_each_about_its_own_topics(
    group: Group, broker: Broker, topic: str, version: int
) -> None:
    with Group(broker.address) as other:
        commit(group.client, group.id, topic, 10)
        commit(group.client, other.id, topic, 20, 1)
        groups = [
            OffsetFetchRequestGroup(group.id, topics=[asked_topic(group.client, topic, [0], version=version)]),
            OffsetFetchRequestGroup(other.id, topics=None),
            OffsetFetchRequestGroup(f"{group.id}-not-there", topics=None),
        ]
        answers = group.client.call(OffsetFetchRequest(groups=groups), version).groups
    told = {
        answer.group_id: [
            (each.partition_index, each.committed_offset) for found in answer.topics for each in found.partitions
        ]
        for answer in answers
    }
    assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
    assert told == {group.id: [(0, 10)], other.id: [(1, 20)], f"{group.id}-not-there": []}


@pytest.mark.parametrize("version", [9, 10])
def test_a_member_epoch_is_of_no_account_in_a_classic_group(group: Group, topic: str, version: int) -> None:
    member = group.member()
    group.settle(member)
    member.commit(topic, 5)
    found = fetched_group(group.client, group.id, {topic: [0]}, member_id="stranger", member_epoch=99, version=version)
    assert (found.error_code, found.topics[0].partitions[0].committed_offset) == (ErrorCode.NONE, 5)


def test_a_commit_is_seen_by_whoever_asks_after_it_on_any_connection(
    group: Group, connect: Callable[[Broker], Client], broker: Broker, topic: str
) -> None:
    other = connect(broker)
    for offset in range(50):
        assert commit(group.client, group.id, topic, offset) == ErrorCode.NONE
        assert fetched(other, group.id, topic).committed_offset == offset


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", FETCH)
def test_an_offset_of_an_open_transaction_is_unstable_for_who_asks_for_a_stable_one(
    group: Group, topic: str, version: int, committed: bool
) -> None:
    commit(group.client, group.id, topic, 10)
    producer = TransactionalProducer(group.client)
    pending = TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(0, 20, -1, "")])
    request = TxnOffsetCommitRequest(producer.name, group.id, producer.id, producer.epoch, topics=[pending])
    answer = settled(lambda: group.client.call(request).topics[0].partitions[0])
    assert answer.error_code == ErrorCode.NONE

    def ask(topics: dict[str, list[int]] | None, *, require_stable: bool) -> list[tuple[ErrorCode, int]]:
        found = fetched_group(group.client, group.id, topics, version=version, require_stable=require_stable)
        return [(ErrorCode(each.error_code), each.committed_offset) for each in found.topics[0].partitions]

    assert ask({topic: [0]}, require_stable=False) == [(ErrorCode.NONE, 10)]
    if version >= FIRST_WITH_STABLE:
        assert ask({topic: [0, 1]}, require_stable=True) == [
            (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1),
            (ErrorCode.NONE, -1),
        ]
        assert ask(None, require_stable=True) == [(ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)]
    producer.end(commit=committed)
    assert ask({topic: [0]}, require_stable=version >= FIRST_WITH_STABLE) == [(ErrorCode.NONE, 20 if committed else 10)]
