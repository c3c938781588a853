"""A shard of groups: which group a request meets, what it may do with offsets, and what is there after a load."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.classic_group import ClassicGroupConfig
from barnabas.coordinator.group_records import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
)
from barnabas.coordinator.group_shard import GroupShardConfig
from barnabas.coordinator.outcome import CoordinatorRecord
from barnabas.coordinator.records import UnknownRecordType, decode_group_record, encode_record
from barnabas.coordinator.subscriptions import TopicInfo
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest
from barnabas.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.primitives import DecodeError
from tests.unit.coordinator.group_shards import NO_PRODUCER, TOPICS, WAITING, Coordinator, Member

NOTHING = (-1, -1, "", ErrorCode.NONE)
DAY_MS = 24 * 3_600_000
PRODUCER = 77


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def keys(coordinator: Coordinator, start: int = 0) -> list[tuple[Any, bool]]:
    """The keys in the log, and whether they have a value."""
    found = []
    for entry in coordinator.log[start:]:
        assert isinstance(entry[0], CoordinatorRecord)
        key, value = decode_group_record(*entry[0])
        found.append((key, value is not None))
    return found


# commits


def test_who_is_in_no_group_may_commit_and_the_group_is_one_of_offsets_only(coordinator: Coordinator) -> None:
    assert coordinator.commit(5, metadata="note") is ErrorCode.NONE
    assert coordinator.fetch() == (5, 7, "note", ErrorCode.NONE)
    assert coordinator.listed() == [("g", "", "Empty", "classic")]
    assert keys(coordinator) == [(OffsetCommitKey("g", "t", 0), True)]


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.ILLEGAL_GENERATION), (8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_member_of_a_group_that_does_not_exist_is_told_so_as_its_version_can_hear_it(
    coordinator: Coordinator, version: int, code: ErrorCode
) -> None:
    assert coordinator.commit(5, member=Member("m", 0), version=version) is code
    assert (coordinator.log, coordinator.listed(), coordinator.fetch()) == ([], [], NOTHING)


def test_only_a_member_of_the_current_generation_commits(coordinator: Coordinator) -> None:
    member = coordinator.settle()
    written = len(coordinator.log)
    refused = {
        Member(member.member_id, member.generation_id - 1): ErrorCode.ILLEGAL_GENERATION,
        Member(member.member_id, member.generation_id + 1): ErrorCode.ILLEGAL_GENERATION,
        Member(member.member_id, -1): ErrorCode.ILLEGAL_GENERATION,
        Member("stranger", member.generation_id): ErrorCode.UNKNOWN_MEMBER_ID,
        Member("", -1): ErrorCode.UNKNOWN_MEMBER_ID,
    }
    assert {who: coordinator.commit(1, member=who) for who in refused} == refused
    assert len(coordinator.log) == written
    assert coordinator.commit(5, member=member) is ErrorCode.NONE
    assert coordinator.fetch()[0] == 5


def test_a_static_member_that_was_replaced_is_fenced(coordinator: Coordinator) -> None:
    old = coordinator.settle(instance="i")
    assert coordinator.join(instance="i").error_code == ErrorCode.NONE
    assert coordinator.commit(5, member=old, instance="i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_commit_keeps_a_member_alive(coordinator: Coordinator) -> None:
    member = coordinator.settle()
    for _ in range(4):
        coordinator.pass_time(9_000)
        assert coordinator.commit(5, member=member) is ErrorCode.NONE
    coordinator.pass_time(10_000)
    assert coordinator.commit(5, member=member) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_of_no_partitions_makes_no_group_that_lasts_and_no_record(coordinator: Coordinator) -> None:
    request = OffsetCommitRequest("g")
    response = coordinator.do(lambda token: coordinator.shard.offset_commit(request, 9, token, coordinator.now))
    assert (response.topics, coordinator.log) == ([], [])


def test_metadata_that_is_too_long_refuses_the_partition_and_not_the_request() -> None:
    coordinator = Coordinator(GroupShardConfig(offset_metadata_max_bytes=4))
    request_partitions = [
        OffsetCommitRequestPartition(0, 1, -1, "four"),
        OffsetCommitRequestPartition(1, 1, -1, "fives"),
        OffsetCommitRequestPartition(2, 1, -1, "\N{GRINNING FACE}\N{GRINNING FACE}"),  # two of Java's characters each
        OffsetCommitRequestPartition(3, 1, -1, "\N{GRINNING FACE}\N{GRINNING FACE}x"),
    ]
    codes = [
        coordinator.commit(1, partition=partition.partition_index, metadata=partition.committed_metadata)
        for partition in request_partitions
    ]
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert codes == [ErrorCode.NONE, too_large, ErrorCode.NONE, too_large]
    assert set(coordinator.fetch_all()) == {("t", 0), ("t", 2)}
    assert coordinator.commit_in_transaction(1, PRODUCER, partition=3, metadata="fives") is too_large


def test_a_commit_that_no_batch_can_hold_is_refused_as_a_whole() -> None:
    coordinator = Coordinator(GroupShardConfig(batch_max_bytes=1_000))
    partitions = [OffsetCommitRequestPartition(number, 1, -1, "m" * 100) for number in range(8)]
    for count, code in ((8, ErrorCode.UNKNOWN_SERVER_ERROR), (3, ErrorCode.NONE)):
        request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", bytes(16), partitions[:count])])
        token = object()
        coordinator.take(coordinator.shard.offset_commit(request, 9, token, coordinator.now))
        response = coordinator.replies[token]
        assert {partition.error_code for partition in response.topics[0].partitions} == {code}
        assert len(coordinator.fetch_all()) == len(coordinator.log) == (3 if code is ErrorCode.NONE else 0)
    assert coordinator.commit_in_transaction(1, PRODUCER, metadata="m" * 1_000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_longest_group_id_is_a_name_like_any_other(coordinator: Coordinator) -> None:
    longest = "g" * 32767
    assert coordinator.commit(5, group=longest) is ErrorCode.NONE
    assert coordinator.reloaded().fetch(group=longest)[0] == 5


def test_an_empty_group_id_may_have_offsets_but_neither_members_nor_transactions(coordinator: Coordinator) -> None:
    shard, now = coordinator.shard, coordinator.now
    assert coordinator.commit(5, group="") is ErrorCode.NONE
    assert coordinator.fetch(group="")[0] == 5
    invalid = ErrorCode.INVALID_GROUP_ID
    assert coordinator.join("").error_code == invalid
    assert coordinator.do(lambda token: shard.sync_group(SyncGroupRequest(), token, now)).error_code == invalid
    assert coordinator.do(lambda token: shard.heartbeat(HeartbeatRequest(), token, now)).error_code == invalid
    assert coordinator.do(lambda token: shard.leave_group(LeaveGroupRequest(), 5, token, now)).error_code == invalid
    assert coordinator.commit_in_transaction(1, PRODUCER, group="") is invalid
    assert coordinator.do(lambda token: shard.offset_delete(OffsetDeleteRequest(), token)).error_code == invalid
    assert coordinator.delete("") == [ErrorCode.NONE]


# fetches


def test_a_group_that_does_not_exist_has_committed_nothing(coordinator: Coordinator) -> None:
    assert coordinator.fetch() == NOTHING
    assert coordinator.fetch_all() == {}


def test_an_offset_of_a_topic_that_was_made_anew_is_none(coordinator: Coordinator) -> None:
    coordinator.commit(5)
    assert coordinator.fetch(topic_id=TOPICS["t"].id)[0] == 5
    assert coordinator.fetch(topic_id=b"n" * 16) == NOTHING


def test_all_offsets_of_a_group_are_fetched_without_naming_them(coordinator: Coordinator) -> None:
    for topic, partition, offset in (("t", 0, 5), ("u", 1, 6), ("t", 3, 7)):
        coordinator.commit(offset, topic=topic, partition=partition)
    assert coordinator.fetch_all() == {("t", 0): (5, 0), ("u", 1): (6, 0), ("t", 3): (7, 0)}


# transactions


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_of_a_transaction_are_unstable_until_it_ends(coordinator: Coordinator, committed: bool) -> None:
    coordinator.commit(5)
    assert coordinator.commit_in_transaction(8, PRODUCER) is ErrorCode.NONE
    assert coordinator.fetch()[0] == 5
    assert coordinator.fetch(require_stable=True) == (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert coordinator.fetch_all(require_stable=True) == {("t", 0): (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}
    assert coordinator.reloaded().fetch(require_stable=True)[3] is ErrorCode.UNSTABLE_OFFSET_COMMIT
    coordinator.end_transaction(PRODUCER, committed=committed)
    for at in (coordinator, coordinator.reloaded()):
        assert at.fetch(require_stable=True)[0] == (8 if committed else 5)


def test_a_transaction_may_commit_for_a_group_that_nobody_joined(coordinator: Coordinator) -> None:
    assert coordinator.commit_in_transaction(8, PRODUCER) is ErrorCode.NONE
    coordinator.end_transaction(PRODUCER, committed=True)
    assert coordinator.fetch()[0] == 8
    assert coordinator.listed() == [("g", "", "Empty", "classic")]


def test_a_transaction_commits_in_the_name_of_a_member_or_of_nobody(coordinator: Coordinator) -> None:
    assert coordinator.commit_in_transaction(1, PRODUCER, member=Member("m", 3)) is ErrorCode.ILLEGAL_GENERATION
    member = coordinator.settle()
    assert coordinator.commit_in_transaction(1, PRODUCER, version=2) is ErrorCode.NONE
    assert coordinator.commit_in_transaction(1, PRODUCER, member=member) is ErrorCode.NONE
    older = Member(member.member_id, member.generation_id - 1)
    assert coordinator.commit_in_transaction(1, PRODUCER, member=older) is ErrorCode.ILLEGAL_GENERATION
    stranger = Member("stranger", member.generation_id)
    assert coordinator.commit_in_transaction(1, PRODUCER, member=stranger) is ErrorCode.UNKNOWN_MEMBER_ID


# deletion


def delete_offsets(coordinator: Coordinator, *places: tuple[str, int], group: str = "g") -> tuple[int, list[int]]:
    request = OffsetDeleteRequest(
        group,
        [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)]) for topic, partition in places],
    )
    response = coordinator.do(lambda token: coordinator.shard.offset_delete(request, token))
    return response.error_code, [topic.partitions[0].error_code for topic in response.topics]


def test_offsets_of_topics_that_are_not_subscribed_are_deleted(coordinator: Coordinator) -> None:
    member = coordinator.settle(topics=("t",))
    coordinator.commit(5, topic="t", member=member)
    coordinator.commit(6, topic="u", member=member)
    code, codes = delete_offsets(coordinator, ("t", 0), ("u", 0), ("u", 1))
    assert (code, codes) == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0, 0])
    assert keys(coordinator)[-1] == (OffsetCommitKey("g", "u", 0), False)
    assert coordinator.fetch_all() == {("t", 0): (5, 0)}


def test_offsets_of_a_group_whose_topics_nobody_knows_are_deleted_only_when_it_is_empty(
    coordinator: Coordinator,
) -> None:
    assert delete_offsets(coordinator, ("t", 0)) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    member = coordinator.settle(protocol_type="connect")
    coordinator.commit(5, member=member)
    assert delete_offsets(coordinator, ("t", 0)) == (ErrorCode.NON_EMPTY_GROUP, [])
    coordinator.pass_time(60_000)
    assert delete_offsets(coordinator, ("t", 0)) == (ErrorCode.NONE, [0])
    assert coordinator.fetch_all() == {}


def test_a_group_without_members_is_deleted_with_its_offsets(coordinator: Coordinator) -> None:
    coordinator.settle("busy")
    coordinator.commit(5)
    coordinator.commit_in_transaction(6, PRODUCER, partition=1)
    written = len(coordinator.log)
    assert coordinator.delete("g", "busy", "none") == [
        ErrorCode.NONE,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    assert keys(coordinator, written) == [
        (OffsetCommitKey("g", "t", 0), False),
        (OffsetCommitKey("g", "t", 1), False),
        (GroupMetadataKey("g"), False),
    ]
    coordinator.end_transaction(PRODUCER, committed=True)
    for at in (coordinator, coordinator.reloaded()):
        assert at.fetch_all() == {}
        assert [group for group, *_ in at.listed()] == ["busy"]


def test_offsets_of_a_topic_that_is_gone_are_forgotten(coordinator: Coordinator) -> None:
    coordinator.commit(5, topic="t")
    coordinator.commit(6, topic="u")
    anew = {"u": TOPICS["u"], "t": TopicInfo(b"n" * 16, 4)}
    coordinator.take(coordinator.shard.topics_changed(anew, coordinator.now))
    assert coordinator.fetch_all() == {("u", 0): (6, 0)}
    more = {**anew, "u": TopicInfo(TOPICS["u"].id, 9)}
    coordinator.take(coordinator.shard.topics_changed(more, coordinator.now))
    assert coordinator.reloaded().fetch_all() == {("u", 0): (6, 0)}


# expiry


def test_offsets_and_then_the_group_are_forgotten_a_week_after_the_last_member_left(coordinator: Coordinator) -> None:
    member = coordinator.settle()
    coordinator.commit(5, member=member)
    coordinator.pass_time(60_000)
    assert coordinator.listed() == [("g", "consumer", "Empty", "classic")]
    coordinator.pass_time(7 * DAY_MS - 60_000)
    assert coordinator.fetch()[0] == 5
    coordinator.pass_time(700_000)
    assert (coordinator.fetch(), coordinator.listed()) == (NOTHING, [])
    assert [key for key, has_value in keys(coordinator) if not has_value] == [
        OffsetCommitKey("g", "t", 0),
        GroupMetadataKey("g"),
    ]
    assert coordinator.reloaded().listed() == []


def test_offsets_that_nobody_joined_for_are_forgotten_a_week_after_their_commit(coordinator: Coordinator) -> None:
    coordinator.commit(5, partition=0)
    coordinator.pass_time(3 * DAY_MS)
    coordinator.commit(6, partition=1)
    coordinator.pass_time(4 * DAY_MS + 700_000)
    assert set(coordinator.fetch_all()) == {("t", 1)}
    coordinator.pass_time(3 * DAY_MS)
    assert (coordinator.fetch_all(), coordinator.listed()) == ({}, [])


def test_a_client_of_an_old_version_says_itself_how_long_its_offset_shall_last(coordinator: Coordinator) -> None:
    coordinator.commit(5, retention_ms=DAY_MS, version=2)
    coordinator.commit(6, partition=1, retention_ms=2**63 - 1, version=2)
    for at in (coordinator, coordinator.reloaded()):
        at.pass_time(DAY_MS + 700_000)
        assert set(at.fetch_all()) == {("t", 1)}


def test_a_group_with_members_keeps_what_it_reads_and_loses_what_it_no_longer_does() -> None:
    coordinator = Coordinator(GroupShardConfig(offsets_retention_ms=20_000, offsets_retention_check_interval_ms=5_000))
    member = coordinator.settle(topics=("t",))
    coordinator.commit(5, topic="t", member=member)
    coordinator.commit(6, topic="u", member=member)
    for _ in range(6):
        coordinator.pass_time(5_000)
        assert coordinator.heartbeat("g", member) is ErrorCode.NONE
    assert coordinator.fetch_all() == {("t", 0): (5, 0)}


def test_many_offsets_expire_in_portions() -> None:
    coordinator = Coordinator(GroupShardConfig(offsets_retention_ms=1, offsets_retention_check_interval_ms=5))
    for number in range(2_500):
        coordinator.commit(1, group=f"g{number}")
    portions: list[int] = []
    while coordinator.listed():
        before = len(coordinator.log)
        coordinator.pass_time(5 if not portions else 1)
        portions.append(len(coordinator.log) - before)
    assert portions == [1_000] * 5


# groups


def test_requests_of_members_of_no_group(coordinator: Coordinator) -> None:
    shard, now, unknown = coordinator.shard, coordinator.now, ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.join(member_id="m").error_code == unknown
    assert coordinator.do(lambda token: shard.sync_group(SyncGroupRequest("g"), token, now)).error_code == unknown
    assert coordinator.do(lambda token: shard.heartbeat(HeartbeatRequest("g"), token, now)).error_code == unknown
    leave = LeaveGroupRequest("g", "m", [MemberIdentity("m"), MemberIdentity("", "i")])
    old, new = (coordinator.do(lambda token, v=v: shard.leave_group(leave, v, token, now)) for v in (2, 3))  # type: ignore[misc]
    assert (old.error_code, old.members) == (unknown, [])
    assert new.error_code == ErrorCode.NONE
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in new.members] == [
        ("m", None, unknown),
        ("", "i", unknown),
    ]
    assert (coordinator.listed(), coordinator.log) == ([], [])


def test_a_join_that_is_refused_leaves_no_group_behind() -> None:
    coordinator = Coordinator(GroupShardConfig(classic=ClassicGroupConfig(min_session_timeout_ms=20_000)))
    assert coordinator.join().error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert (coordinator.listed(), coordinator.log) == ([], [])
    coordinator.commit(5)
    assert coordinator.join().error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert coordinator.fetch()[0] == 5


def test_a_group_of_offsets_can_be_joined(coordinator: Coordinator) -> None:
    coordinator.commit(5)
    assert coordinator.join() is WAITING
    coordinator.pass_time(3_000)
    assert coordinator.listed() == [("g", "consumer", "CompletingRebalance", "classic")]
    assert coordinator.fetch()[0] == 5


def test_listings_are_filtered_by_state_and_type(coordinator: Coordinator) -> None:
    coordinator.settle("stable")
    coordinator.commit(1, group="empty")
    assert [name for name, *_ in coordinator.listed()] == ["stable", "empty"]
    assert [name for name, *_ in coordinator.listed(states=("STABLE ", "Dead"))] == ["stable"]
    assert [name for name, *_ in coordinator.listed(types=("Classic",))] == ["stable", "empty"]
    assert coordinator.listed(types=("consumer",)) == coordinator.listed(types=("what",)) == []
    assert coordinator.listed(states=("empty",), types=("classic",)) == [("empty", "", "Empty", "classic")]


def test_descriptions_of_groups_that_are_not_there(coordinator: Coordinator) -> None:
    shard = coordinator.shard
    coordinator.settle("g", assignment=b"assignment")
    for version in (5, 6):
        found, missing = coordinator.do(lambda token, v=version: shard.describe_groups(["g", "none"], v, token))  # type: ignore[misc]
        assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
        assert [member.member_assignment for member in found.members] == [b"assignment"]
        assert (missing.group_id, missing.group_state) == ("none", "Dead")
        assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version == 6 else ErrorCode.NONE)
        assert missing.error_message == ("Group none not found." if version == 6 else None)
    nameless, other, classic = coordinator.do(lambda token: shard.consumer_group_describe(["", "none", "g"], token))
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
    assert (other.error_code, other.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")
    assert (classic.error_code, classic.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a consumer group.",
    )


def test_an_open_fetch_names_its_group_even_where_it_is_refused(coordinator: Coordinator) -> None:
    found = coordinator.fetch_group(OffsetFetchRequestGroup("none", "m", 3, None))
    assert (found.group_id, found.error_code, found.topics) == ("none", ErrorCode.NONE, [])


# the log


def test_a_damaged_record_is_refused_by_its_offset_and_the_rest_is_loaded(coordinator: Coordinator) -> None:
    shard = coordinator.shard
    good = encode_record(OffsetCommitKey("g", "t", 1), None)
    with pytest.raises(DecodeError, match="record at offset 17: OffsetCommitValue has versions 0-4, not 9"):
        shard.replay(CoordinatorRecord(good.key, b"\0\x09"), 17, NO_PRODUCER)
    with pytest.raises(DecodeError, match=r"record at offset 18: .*key of 1 bytes"):
        shard.replay(CoordinatorRecord(b"\0", None), 18, NO_PRODUCER)
    with pytest.raises(UnknownRecordType, match=r"record at offset 19: .*type 10 "):
        shard.replay(CoordinatorRecord(b"\0\x0a\0\1g", b"\0\0"), 19, NO_PRODUCER)
    assert coordinator.listed() == []
    other = Coordinator()
    other.commit(4, partition=1)
    record, producer_id = other.log[0]
    assert isinstance(record, CoordinatorRecord)
    shard.replay(record, 20, producer_id)
    assert coordinator.fetch(partition=1)[0] == 4


def test_a_log_of_long_ago_is_loaded(coordinator: Coordinator) -> None:
    record = encode_record(LegacyOffsetCommitKey("g", "t", 0), LegacyOffsetCommitValue(5, "note", 100))
    coordinator.shard.replay(record, 0, NO_PRODUCER)
    assert coordinator.fetch() == (5, -1, "note", ErrorCode.NONE)
    assert coordinator.listed() == [("g", "", "Empty", "classic")]


def test_a_member_goes_on_where_it_was_after_a_load_and_dies_if_it_does_not(coordinator: Coordinator) -> None:
    member = coordinator.settle()
    coordinator.commit(5, member=member)
    other = coordinator.reloaded()
    assert other.listed() == coordinator.listed() == [("g", "consumer", "Stable", "classic")]
    assert other.commit(6, member=member) is ErrorCode.NONE
    other.pass_time(9_999)
    assert other.listed()[0][2] == "Stable"
    other.pass_time(60_000)
    assert other.listed()[0][2] == "Empty"
