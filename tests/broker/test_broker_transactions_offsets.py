"""AddOffsetsToTxn and TxnOffsetCommit: offsets of a group that count when a transaction commits, and not before."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from barnabas.coordinator.placement import partition_of
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.transactional import (
    END_WITHOUT_EPOCH,
    GROUP,
    TransactionalProducer,
    describe,
    find_coordinator,
    settled,
    unique,
)
from tests.broker.wire_client import Client

ADD_VERSIONS = range(5)
COMMIT_VERSIONS = range(6)
FIRST_THAT_ADDS = 5
FIRST_WITH_MEMBERS = 3
OFFSETS_BY_NAME = 9
UNKNOWN_OFFSET = -1
DEFAULT_PARTITIONS = 50


class Member(NamedTuple):
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


NOBODY = Member()


class Group:
    """A group, and a producer that commits offsets of it in transactions."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.name = unique("g")
        self.topic = client.create_topic(2)
        find_coordinator(client, self.name, GROUP)
        self.producer = TransactionalProducer(client)

    def add(self, version: int = 4, *, epoch: int | None = None, producer_id: int | None = None) -> ErrorCode:
        producer = self.producer
        request = AddOffsetsToTxnRequest(
            producer.name,
            producer.id if producer_id is None else producer_id,
            producer.epoch if epoch is None else epoch,
            self.name,
        )
        return ErrorCode(settled(lambda: self.client.call(request, version)).error_code)

    def commit_in_transaction(
        self, offset: int, version: int, member: Member = NOBODY, partition: int = 0, **other: Any
    ) -> ErrorCode:
        """TxnOffsetCommit for one partition; versions that do not add the group to the transaction do so before."""
        if version < FIRST_THAT_ADDS:
            assert self.add() is ErrorCode.NONE
        return self.send_offset(offset, version, member, partition, **other)

    def send_offset(
        self, offset: int, version: int, member: Member = NOBODY, partition: int = 0, *, topic: str = "", epoch: int = 0
    ) -> ErrorCode:
        """TxnOffsetCommit alone; `epoch` is added to the producer's."""
        producer = self.producer
        place = TxnOffsetCommitRequestPartition(partition, offset, -1, f"at {offset}")
        request = TxnOffsetCommitRequest(
            producer.name,
            self.name,
            producer.id,
            producer.epoch + epoch,
            member.generation,
            member.member_id,
            member.instance_id,
            [TxnOffsetCommitRequestTopic(topic or self.topic, [place])],
        )
        result = settled(lambda: self.client.call(request, version).topics[0].partitions[0])
        assert result.partition_index == partition
        return ErrorCode(result.error_code)

    def commit(self, offset: int) -> None:
        """OffsetCommit: without a transaction."""
        place = OffsetCommitRequestPartition(0, offset, -1, None)
        request = OffsetCommitRequest(self.name, topics=[OffsetCommitRequestTopic(self.topic, partitions=[place])])
        (topic,) = settled(
            lambda: self.client.call(request, OFFSETS_BY_NAME), lambda answer: answer.topics[0].partitions[0].error_code
        ).topics
        assert topic.partitions[0].error_code == ErrorCode.NONE

    def committed(self, *, stable: bool = False, partition: int = 0) -> tuple[ErrorCode, int]:
        """OffsetFetch: the error and the offset."""
        asked = [OffsetFetchRequestTopics(self.topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(self.name, None, -1, asked)], require_stable=stable
        )
        (group,) = self.client.call(request, OFFSETS_BY_NAME).groups
        assert group.error_code == ErrorCode.NONE
        (result,) = group.topics[0].partitions
        return ErrorCode(result.error_code), result.committed_offset

    def join(self) -> Member:
        """Become the only member; version 3 gives a member id without a second round."""
        protocols = [JoinGroupRequestProtocol("range", b"")]
        request = JoinGroupRequest(self.name, 30_000, 30_000, "", None, "consumer", protocols)
        joined = settled(lambda: self.client.call(request, 3))
        assert joined.error_code == ErrorCode.NONE
        assignments = [SyncGroupRequestAssignment(joined.member_id, b"")]
        synced = self.client.call(
            SyncGroupRequest(self.name, joined.generation_id, joined.member_id, assignments=assignments), 2
        )
        assert synced.error_code == ErrorCode.NONE
        return Member(joined.member_id, joined.generation_id)


@pytest.fixture
def group(client: Client) -> Group:
    return Group(client)


# AddOffsetsToTxn


@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_a_group_becomes_part_of_the_transaction(group: Group, version: int) -> None:
    assert group.add(version) is ErrorCode.NONE
    found = describe(group.client, group.producer.name)
    assert found.transaction_state == "Ongoing"
    assert [(each.topic, len(each.partitions)) for each in found.topics] == [("__consumer_offsets", 1)]


@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_only_the_present_producer_adds_a_group(group: Group, version: int) -> None:
    group.producer.initialise()
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    for epoch in (group.producer.epoch - 1, group.producer.epoch + 1):
        assert group.add(version, epoch=epoch) is fenced
    assert group.add(version, producer_id=group.producer.id + 1) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert group.producer.state() == "Empty"


# TxnOffsetCommit


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_offsets_count_with_the_commit_and_vanish_with_the_abort(group: Group, version: int, commit: bool) -> None:
    group.commit(7)
    assert group.commit_in_transaction(42, version) is ErrorCode.NONE
    assert group.committed() == (ErrorCode.NONE, 7)
    group.producer.end(commit=commit, version=5 if version == FIRST_THAT_ADDS else END_WITHOUT_EPOCH)
    assert group.committed(stable=True) == (ErrorCode.NONE, 42 if commit else 7)


def test_a_first_offset_is_unknown_until_the_commit(group: Group) -> None:
    group.commit_in_transaction(42, 5)
    assert group.committed() == (ErrorCode.NONE, UNKNOWN_OFFSET)
    group.producer.end(commit=True)
    assert group.committed() == (ErrorCode.NONE, 42)


def test_who_asks_for_a_stable_offset_is_told_of_a_pending_one(group: Group) -> None:
    group.commit(7)
    group.commit_in_transaction(42, 5)
    assert group.committed(stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, UNKNOWN_OFFSET)
    assert group.committed(stable=True, partition=1) == (ErrorCode.NONE, UNKNOWN_OFFSET)
    group.producer.end(commit=False)
    assert group.committed(stable=True) == (ErrorCode.NONE, 7)


def test_the_last_offset_of_a_transaction_counts(group: Group) -> None:
    for offset in (10, 30, 20):
        assert group.commit_in_transaction(offset, 5) is ErrorCode.NONE
    assert group.commit_in_transaction(5, 5, partition=1) is ErrorCode.NONE
    group.producer.end(commit=True)
    assert group.committed() == (ErrorCode.NONE, 20)
    assert group.committed(partition=1) == (ErrorCode.NONE, 5)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_marker_alone_decides_about_offsets(group: Group, commit: bool) -> None:
    """As it comes from a coordinator on another broker."""
    group.commit_in_transaction(42, 5)
    producer = group.producer
    (offsets,) = describe(group.client, producer.name).topics
    places = [WritableTxnMarkerTopic(offsets.topic, offsets.partitions)]
    marker = WritableTxnMarker(producer.id, producer.epoch, commit, places, 0)
    (result,) = group.client.call(WriteTxnMarkersRequest([marker]), 1).markers
    assert result.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert group.committed(stable=True) == (ErrorCode.NONE, 42 if commit else UNKNOWN_OFFSET)


def test_of_two_commits_the_later_one_counts(group: Group) -> None:
    """Kafka goes by their places in the log: what a transaction wrote before, it does not overwrite after."""
    group.commit_in_transaction(42, 5)
    group.commit(50)
    assert group.committed() == (ErrorCode.NONE, 50)
    group.producer.end(commit=True)
    assert group.committed() == (ErrorCode.NONE, 50)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_older_producers_add_the_group_first(group: Group, version: int) -> None:
    expected = {
        **dict.fromkeys(range(4), ErrorCode.INVALID_TXN_STATE),
        4: ErrorCode.TRANSACTION_ABORTABLE,
        5: ErrorCode.NONE,
    }
    assert group.send_offset(1, version) is expected[version]
    assert (group.producer.state() == "Ongoing") is (version == FIRST_THAT_ADDS)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_fenced_producer_commits_no_offsets(group: Group, version: int) -> None:
    group.producer.initialise()
    assert group.commit_in_transaction(1, version, epoch=-1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert group.committed(stable=True) == (ErrorCode.NONE, UNKNOWN_OFFSET)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_offsets_of_topics_that_are_not_there(group: Group, topic_name: str, version: int) -> None:
    assert group.commit_in_transaction(1, version, topic=topic_name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert group.commit_in_transaction(1, version, partition=2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(FIRST_WITH_MEMBERS, 6))
def test_members_are_checked(group: Group, version: int) -> None:
    member = group.join()
    stale = member._replace(generation=member.generation - 1)
    for wrong, code in {
        stale: ErrorCode.ILLEGAL_GENERATION,
        member._replace(generation=member.generation + 1): ErrorCode.ILLEGAL_GENERATION,
        member._replace(member_id="nobody"): ErrorCode.UNKNOWN_MEMBER_ID,
        member._replace(instance_id="unknown"): ErrorCode.UNKNOWN_MEMBER_ID,
    }.items():
        assert group.commit_in_transaction(1, version, wrong) is code, wrong
    assert group.committed(stable=True) == (ErrorCode.NONE, UNKNOWN_OFFSET)
    assert group.commit_in_transaction(2, version, member) is ErrorCode.NONE
    group.producer.end(commit=True)
    assert group.committed() == (ErrorCode.NONE, 2)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_producer_that_names_no_member_is_not_checked(group: Group, version: int) -> None:
    group.join()
    assert group.commit_in_transaction(1, version) is ErrorCode.NONE


def test_a_group_without_members_takes_no_generation(group: Group) -> None:
    assert group.commit_in_transaction(1, 5, Member("somebody", 3)) is ErrorCode.ILLEGAL_GENERATION
    assert group.committed(stable=True) == (ErrorCode.NONE, UNKNOWN_OFFSET)


@pytest.mark.parametrize(
    "group_id", ["g", "orders", "polygenelubricants", "Müller & Söhne", "語", "\U0001f600-\U0001f680"]
)
def test_a_group_belongs_to_the_partition_that_javas_hash_says(group: Group, group_id: str) -> None:
    """A transaction tells which partition of the offsets it is part of."""
    group.name = group_id
    assert group.add() is ErrorCode.NONE
    (offsets,) = describe(group.client, group.producer.name).topics
    assert offsets.partitions == [partition_of(group_id, DEFAULT_PARTITIONS)]
