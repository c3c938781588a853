"""Both protocols in one shard: which group a member of one meets where there is one of the other, and what is kept."""

from __future__ import annotations

import pytest

from barnabas.coordinator.consumer_protocol import ConsumerProtocolAssignment, TopicPartition, encode_assignment
from barnabas.coordinator.group_records import ConsumerGroupMetadataKey, GroupMetadataKey
from barnabas.coordinator.group_shard import GroupShardConfig
from barnabas.coordinator.migration import MigrationPolicy
from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.coordinator.records import decode_group_record
from barnabas.coordinator.subscriptions import TopicInfo
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup
from tests.unit.coordinator.group_shards import TOPICS, Coordinator, Member

ALL_OF_T = encode_assignment(ConsumerProtocolAssignment([TopicPartition("t", [0, 1, 2, 3])]), 1)


def first_epoch() -> int:
    """The epoch that the only member of a new group gets."""
    return int(Coordinator().consume("g", "m", 0, ("t",)).member_epoch)


EPOCH = first_epoch()


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def tombstones(coordinator: Coordinator, start: int = 0) -> set[type]:
    """The kinds of keys that were deleted."""
    deleted = set()
    for record, _ in coordinator.log[start:]:
        assert isinstance(record, CoordinatorRecord)
        key, value = decode_group_record(*record)
        if value is None:
            deleted.add(type(key))
    return deleted


def test_a_consumer_joins_commits_and_leaves(coordinator: Coordinator) -> None:
    joined = coordinator.consume("g", "m", 0, ("t",))
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.NONE, "m", EPOCH)
    assert [(topic.topic_id, topic.partitions) for topic in joined.assignment.topic_partitions] == [
        (TOPICS["t"].id, [0, 1, 2, 3])
    ]
    assert coordinator.listed(types=("CONSUMER",)) == [("g", "consumer", "Stable", "consumer")]
    assert coordinator.commit(5, member=Member("m", EPOCH)) is ErrorCode.NONE
    assert coordinator.commit(5, member=Member("m", EPOCH + 1)) is ErrorCode.STALE_MEMBER_EPOCH
    assert coordinator.commit(5, member=Member("m", EPOCH), version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert coordinator.commit(5, member=Member("n", EPOCH)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit_in_transaction(5, 77, member=Member("m", EPOCH + 1)) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.delete("g") == [ErrorCode.NON_EMPTY_GROUP]
    assert coordinator.consume("g", "m", -1).error_code == ErrorCode.NONE
    assert coordinator.listed() == [("g", "consumer", "Empty", "consumer")]
    for at in (coordinator, coordinator.reloaded()):
        assert at.fetch()[0] == 5
        assert at.delete("g") == [ErrorCode.NONE]
        assert (at.listed(), at.fetch_all()) == ([], {})
    assert ConsumerGroupMetadataKey in tombstones(coordinator)


def test_a_fetch_in_the_name_of_a_member_must_be_of_its_epoch(coordinator: Coordinator) -> None:
    coordinator.consume("g", "m", 0, ("t",))
    codes = {
        (member_id, epoch): coordinator.fetch_group(OffsetFetchRequestGroup("g", member_id, epoch, None)).error_code
        for member_id, epoch in ((None, -1), ("m", EPOCH), ("m", EPOCH + 1), ("n", EPOCH))
    }
    assert codes == {
        (None, -1): ErrorCode.NONE,
        ("m", EPOCH): ErrorCode.NONE,
        ("m", EPOCH + 1): ErrorCode.STALE_MEMBER_EPOCH,
        ("n", EPOCH): ErrorCode.UNKNOWN_MEMBER_ID,
    }


def test_a_refused_heartbeat_leaves_no_group_behind(coordinator: Coordinator) -> None:
    assert coordinator.consume("g", "m", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.consume("", "m", 0, ("t",)).error_code == ErrorCode.INVALID_REQUEST
    assert coordinator.consume("g", "m", 0).error_code == ErrorCode.INVALID_REQUEST
    coordinator.commit(5)
    assert coordinator.consume("g", "m", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.listed() == [("g", "", "Empty", "classic")]


def test_consumers_take_over_the_offsets_of_an_empty_classic_group(coordinator: Coordinator) -> None:
    member = coordinator.settle()
    coordinator.commit(5, member=member)
    coordinator.leave("g", member.member_id)
    assert coordinator.consume("g", "m", 0, ("t",)).error_code == ErrorCode.NONE
    assert tombstones(coordinator) == {GroupMetadataKey}
    for at in (coordinator, coordinator.reloaded()):
        assert at.listed() == [("g", "consumer", "Stable", "consumer")]
        assert at.fetch()[0] == 5


def test_a_classic_member_takes_over_the_offsets_of_an_empty_consumer_group(coordinator: Coordinator) -> None:
    coordinator.consume("g", "m", 0, ("t",))
    coordinator.commit(5, member=Member("m", EPOCH))
    coordinator.consume("g", "m", -1)
    member = coordinator.settle()
    for at in (coordinator, coordinator.reloaded()):
        assert at.listed() == [("g", "consumer", "Stable", "classic")]
        assert at.fetch()[0] == 5
        assert at.commit(6, member=member) is ErrorCode.NONE


def test_a_group_goes_up_to_the_consumer_protocol_and_down_again_and_keeps_its_offsets(
    coordinator: Coordinator,
) -> None:
    old = coordinator.settle(assignment=ALL_OF_T)
    coordinator.commit(5, member=old)
    assert coordinator.consume("g", "new", 0, ("t",)).error_code == ErrorCode.NONE
    (listed,) = coordinator.listed()
    assert (listed[0], listed[3]) == ("g", "consumer")
    assert coordinator.reloaded().listed() == coordinator.listed()
    assert coordinator.heartbeat("g", old) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.consume("g", "new", -1).error_code == ErrorCode.NONE
    assert coordinator.listed()[0][3] == "classic"
    for at in (coordinator, coordinator.reloaded()):
        assert at.fetch()[0] == 5
        assert at.listed()[0][3] == "classic"


def test_a_group_that_may_not_go_up_refuses_consumers_and_stays() -> None:
    coordinator = Coordinator(GroupShardConfig(migration_policy=MigrationPolicy.DISABLED))
    member = coordinator.settle(assignment=ALL_OF_T)
    written = len(coordinator.log)
    refused = coordinator.consume("g", "new", 0, ("t",))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a consumer group.",
    )
    assert coordinator.heartbeat("g", member) is ErrorCode.NONE
    assert len(coordinator.log) == written


def test_offsets_that_are_older_in_the_log_than_their_group_stay_with_it(coordinator: Coordinator) -> None:
    coordinator.consume("g", "m", 0, ("t",))
    written = len(coordinator.log)
    coordinator.commit(5, member=Member("m", EPOCH))
    coordinator.log = coordinator.log[written:] + coordinator.log[:written]
    loaded = coordinator.reloaded()
    assert (loaded.listed(), loaded.fetch()[0]) == ([("g", "consumer", "Stable", "consumer")], 5)


def test_consumers_get_the_partitions_that_a_topic_has_grown_by(coordinator: Coordinator) -> None:
    coordinator.consume("g", "m", 0, ("t",))
    coordinator.pass_time(5_000)
    more = {**TOPICS, "t": TopicInfo(TOPICS["t"].id, 5)}
    coordinator.take(coordinator.shard.topics_changed(more, coordinator.now))
    answer = coordinator.consume("g", "m", EPOCH)
    assert answer.member_epoch == EPOCH + 1
    assert [topic.partitions for topic in answer.assignment.topic_partitions] == [[0, 1, 2, 3, 4]]


def test_classic_members_of_a_mixed_group_are_told_that_a_topic_has_grown(coordinator: Coordinator) -> None:
    old = coordinator.settle(assignment=ALL_OF_T, topics=("t",))
    joined = coordinator.consume("g", "new", 0, ("u",))
    assert joined.error_code == ErrorCode.NONE
    token = coordinator.start_join("g", old.member_id)
    rejoined = Member(old.member_id, coordinator.replies[token].generation_id)
    assert coordinator.sync("g", rejoined).error_code == ErrorCode.NONE
    assert coordinator.heartbeat("g", rejoined) is ErrorCode.NONE
    more = {**TOPICS, "t": TopicInfo(TOPICS["t"].id, 5)}
    coordinator.take(coordinator.shard.topics_changed(more, coordinator.now))
    coordinator.pass_time(5_000)
    assert coordinator.consume("g", "new", joined.member_epoch).error_code == ErrorCode.NONE
    assert coordinator.heartbeat("g", rejoined) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_consumer_group_without_members_and_offsets_is_forgotten() -> None:
    coordinator = Coordinator(GroupShardConfig(offsets_retention_ms=20_000, offsets_retention_check_interval_ms=5_000))
    coordinator.consume("g", "m", 0, ("t",))
    coordinator.commit(5, member=Member("m", EPOCH))
    coordinator.commit(6, topic="u", member=Member("m", EPOCH))
    for _ in range(6):
        coordinator.pass_time(5_000)
        assert coordinator.consume("g", "m", EPOCH).error_code == ErrorCode.NONE
    assert coordinator.fetch_all() == {("t", 0): (5, 0)}
    coordinator.pass_time(60_000)
    assert (coordinator.listed(), coordinator.fetch_all()) == ([], {})
    assert coordinator.reloaded().listed() == []


def test_descriptions_tell_the_protocols_apart(coordinator: Coordinator) -> None:
    coordinator.settle("classic")
    coordinator.consume("consumer", "m", 0, ("t",))
    shard = coordinator.shard
    names = ["classic", "consumer"]
    classic, other = coordinator.do(lambda token: shard.describe_groups(names, 6, token))
    assert (classic.group_state, other.group_state) == ("Stable", "Dead")
    assert (other.error_code, other.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group consumer is not a classic group.",
    )
    other, consumer = coordinator.do(lambda token: shard.consumer_group_describe(names, token))
    assert (other.error_code, consumer.error_code) == (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE)
    assert [member.assignment.topic_partitions[0].topic_name for member in consumer.members] == ["t"]
