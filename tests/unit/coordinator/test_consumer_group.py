"""The rules of a consumer group, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.consumer_group import ConsumerGroupConfig
from barnabas.coordinator.consumer_member import MemberState
from barnabas.coordinator.group import CommittedPartition
from barnabas.coordinator.records import decode_group_record
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.unit.coordinator.consumer_groups import EAGER, GROUP, Client, Coordinator, settle, state_of, topic_id


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator({"a": 4, "b": 2})


def two_members(coordinator: Coordinator) -> tuple[Client, Client]:
    first, second = Client(coordinator, "first", ["a"]), Client(coordinator, "second", ["a"])
    first.heartbeat()
    second.heartbeat()
    return first, second


def request(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    joining: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": "m",
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["a"],
        "topic_partitions": [],
    }
    return ConsumerGroupHeartbeatRequest(**{**joining, **fields})


def names_of(coordinator: Coordinator, since: int = 0) -> list[str]:
    """Which records were written, tombstones with a dash."""
    written = []
    for key, value in coordinator.log[since:]:
        name = type(decode_group_record(key, value)[0]).__name__
        written.append(("" if value else "-") + name.removeprefix("ConsumerGroup").removesuffix("Key"))
    return written


class TestJoining:
    def test_the_first_member_gets_everything_at_once(self, coordinator: Coordinator) -> None:
        response = Client(coordinator, "m", ["a"]).heartbeat()
        assert (response.error_code, response.member_id, response.member_epoch) == (0, "m", 2)
        assert response.heartbeat_interval_ms == 5_000
        assert response.assignment is not None
        assert response.assignment.topic_partitions == [TopicPartitions(topic_id("a"), [0, 1, 2, 3])]
        assert coordinator.group.state_name == "Stable"
        assert names_of(coordinator) == [
            "MemberMetadata",
            "Metadata",
            "TargetAssignmentMember",
            "TargetAssignmentMetadata",
            "CurrentMemberAssignment",
        ]

    def test_a_heartbeat_that_says_nothing_new_writes_nothing_and_is_told_nothing(
        self, coordinator: Coordinator
    ) -> None:
        client = Client(coordinator, "m", ["a"])
        client.heartbeat()
        written = len(coordinator.log)
        response = coordinator.send(request(member_epoch=2, rebalance_timeout_ms=-1, subscribed_topic_names=None))
        assert (response.member_epoch, response.assignment) == (2, None)
        assert len(coordinator.log) == written

    def test_a_full_heartbeat_is_told_its_assignment_again(self, coordinator: Coordinator) -> None:
        client = Client(coordinator, "m", ["a"])
        told = client.heartbeat().assignment
        assert client.heartbeat().assignment is None
        assert client.heartbeat(full=True).assignment == told

    def test_the_second_waits_until_the_first_has_given_up_its_half(self, coordinator: Coordinator) -> None:
        first, second = two_members(coordinator)
        assert second.owned == set()
        assert second.epoch == 3
        assert coordinator.group.members["second"].state is MemberState.UNRELEASED_PARTITIONS
        assert coordinator.group.state_name == "Reconciling"
        first.heartbeat(revokes=False)
        assert (len(first.told), len(first.owned), first.epoch) == (2, 4, 2)
        assert coordinator.group.members["first"].state is MemberState.UNREVOKED_PARTITIONS
        second.heartbeat()
        assert second.owned == set()
        first.heartbeat()  # still says that it owns all
        assert first.epoch == 2
        first.heartbeat()
        assert first.epoch == 3
        second.heartbeat()
        assert len(second.owned) == 2
        assert coordinator.group.state_name == "Stable"
        assert state_of(coordinator.replayed()) == state_of(coordinator.group)

    def test_a_member_of_version_0_may_be_given_its_id(self, coordinator: Coordinator) -> None:
        response = coordinator.send(request(member_id=""), version=0)
        assert response.error_code == 0
        assert response.member_id
        assert len(response.member_id) == 22
        assert coordinator.send(request(member_id=""), version=1).error_code == ErrorCode.INVALID_REQUEST

    def test_a_member_without_topics_is_in_the_group(self, coordinator: Coordinator) -> None:
        assert coordinator.send(request(subscribed_topic_names=[])).member_epoch == 1
        assert coordinator.group.state_name == "Stable"

    def test_a_topic_that_does_not_exist_yet_is_waited_for(self, coordinator: Coordinator) -> None:
        client = Client(coordinator, "m", ["a", "later"])
        client.heartbeat()
        assert len(client.owned) == 4
        coordinator.set_topics({"a": 4, "later": 3})
        client.heartbeat()
        assert len(client.owned) == 7

    def test_the_group_has_a_greatest_size(self) -> None:
        coordinator = Coordinator({"a": 4}, ConsumerGroupConfig(max_size=1))
        first = Client(coordinator, "first", ["a"])
        first.heartbeat()
        refused = Client(coordinator, "second", ["a"]).heartbeat()
        assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert first.heartbeat(full=True).error_code == 0

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
            ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
            ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
            ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
            ({"member_id": "", "member_epoch": 1}, ErrorCode.INVALID_REQUEST),
            ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
            ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
            ({"topic_partitions": [TopicPartitions(topic_id("a"), [0])]}, ErrorCode.INVALID_REQUEST),
            ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
            ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
            ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
            ({"server_assignor": "guess"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
            ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
            ({"member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_epoch": -2, "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_epoch": 1, "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_what_is_wrong_is_refused_and_changes_nothing(
        self, coordinator: Coordinator, fields: dict[str, Any], error: ErrorCode
    ) -> None:
        before = state_of(coordinator.group)
        response = coordinator.send(request(**fields))
        assert response.error_code == error
        assert response.error_message
        assert state_of(coordinator.group) == before
        assert len(coordinator.timers) == 0


class TestEpochs:
    def test_another_epoch_than_the_members_is_fenced(self, coordinator: Coordinator) -> None:
        first, second = two_members(coordinator)
        settle([first, second])
        assert first.epoch == 3
        for epoch in (4, 99):
            response = coordinator.send(request(member_id="first", member_epoch=epoch, topic_partitions=[]))
            assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        before = coordinator.send(request(member_id="first", member_epoch=2, topic_partitions=None))
        assert before.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        lost = [TopicPartitions(topic_id("a"), [0, 1, 2, 3])]
        before = coordinator.send(request(member_id="first", member_epoch=2, topic_partitions=lost))
        assert before.error_code == ErrorCode.FENCED_MEMBER_EPOCH

    def test_the_epoch_before_is_accepted_with_nothing_that_is_not_the_members(self, coordinator: Coordinator) -> None:
        first, second = two_members(coordinator)
        settle([first, second])
        owned = first.reported()
        response = coordinator.send(request(member_id="first", member_epoch=2, topic_partitions=owned))
        assert (response.error_code, response.member_epoch) == (0, 3)
        assert response.assignment is not None
        assert response.assignment.topic_partitions == owned

    def test_a_member_may_join_again_at_any_time_and_then_owns_nothing(self, coordinator: Coordinator) -> None:
        first, second = two_members(coordinator)
        settle([first, second])
        first.epoch = 0
        settle([first, second])
        assert len(first.owned) == len(second.owned) == 2

    def test_one_who_was_put_out_is_not_known_any_more(self, coordinator: Coordinator) -> None:
        first, _ = two_members(coordinator)
        coordinator.pass_time(45_000)
        assert coordinator.group.state_name == "Empty"
        assert first.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


class TestTimeOuts:
    def test_a_silent_member_is_put_out_and_its_partitions_are_dealt_out(self, coordinator: Coordinator) -> None:
        first, second = two_members(coordinator)
        settle([first, second])
        coordinator.pass_time(44_999)
        second.heartbeat()
        assert "first" in coordinator.group.members
        coordinator.pass_time(1)
        assert coordinator.group.members.keys() == {"second"}
        second.heartbeat()
        assert len(second.owned) == 4

    def test_one_who_does_not_give_up_in_time_is_put_out(self, coordinator: Coordinator) -> None:
        first, second = two_members(coordinator)
        first.rebalance_timeout_ms = 1  # only a full heartbeat would tell
        for _ in range(6):
            first.heartbeat(revokes=False)
            second.heartbeat()
            assert "first" in coordinator.group.members
            coordinator.pass_time(5_000)
        assert "first" not in coordinator.group.members
        second.heartbeat()
        assert len(second.owned) == 4
        assert first.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_one_who_has_given_up_is_left_alone(self, coordinator: Coordinator) -> None:
        first, _ = two_members(coordinator)
        first.heartbeat()
        first.heartbeat()
        coordinator.pass_time(30_001)
        assert coordinator.group.members.keys() == {"first", "second"}

    def test_time_outs_begin_anew_when_a_coordinator_takes_over(self, coordinator: Coordinator) -> None:
        first, _ = two_members(coordinator)
        first.heartbeat(revokes=False)
        successor = coordinator.replayed()
        successor.loaded(coordinator.now)
        due = successor.timers.take_due(coordinator.now.monotonic_ms + 45_000)
        assert [(key.kind, key.member_id) for key in due] == [
            ("rebalance", "first"),
            ("session", "first"),
            ("session", "second"),
        ]


class TestLeaving:
    def test_who_leaves_is_gone_at_once(self, coordinator: Coordinator) -> None:
        first, second = two_members(coordinator)
        settle([first, second])
        since = len(coordinator.log)
        response = first.leave()
        assert (response.error_code, response.member_id, response.member_epoch) == (0, "first", -1)
        assert names_of(coordinator, since) == [
            "-CurrentMemberAssignment",
            "-TargetAssignmentMember",
            "-MemberMetadata",
            "Metadata",
        ]
        assert coordinator.group.state_name == "Assigning"
        second.heartbeat()
        assert len(second.owned) == 4
        second.leave()
        assert coordinator.group.state_name == "Empty"
        assert len(coordinator.timers) == 0
        assert state_of(coordinator.replayed()) == state_of(coordinator.group)

    def test_the_tombstones_of_a_group_leave_nothing(self, coordinator: Coordinator) -> None:
        two_members(coordinator)
        Client(coordinator, "third", [], regex="b.*").heartbeat()
        coordinator.log += coordinator.group.tombstones()
        assert state_of(coordinator.replayed()) == state_of(Coordinator({}).group)


class TestStaticMembers:
    def test_a_restart_in_time_moves_nothing(self, coordinator: Coordinator) -> None:
        static = Client(coordinator, "s1", ["a"], instance_id="i")
        other = Client(coordinator, "other", ["a"])
        static.heartbeat()
        settle([static, other])
        had, epoch = static.partitions, coordinator.group.group_epoch
        assert static.leave(-2).member_epoch == -2
        coordinator.pass_time(10_000)
        assert other.heartbeat().assignment is None
        again = Client(coordinator, "s2", ["a"], instance_id="i")
        assert again.heartbeat().error_code == 0
        assert again.partitions == had
        assert coordinator.group.group_epoch == epoch == again.epoch
        assert static.heartbeat().error_code == ErrorCode.FENCED_INSTANCE_ID
        assert static.leave(-2).error_code == ErrorCode.FENCED_INSTANCE_ID
        assert state_of(coordinator.replayed()) == state_of(coordinator.group)

    def test_an_instance_that_has_not_left_is_not_replaced(self, coordinator: Coordinator) -> None:
        static = Client(coordinator, "s1", ["a"], instance_id="i")
        static.heartbeat()
        again = Client(coordinator, "s2", ["a"], instance_id="i").heartbeat()
        assert again.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
        assert static.heartbeat().error_code == 0

    def test_an_instance_that_does_not_come_back_is_put_out(self, coordinator: Coordinator) -> None:
        static = Client(coordinator, "s1", ["a"], instance_id="i")
        static.heartbeat()
        static.leave(-2)
        coordinator.pass_time(45_000)
        assert coordinator.group.state_name == "Empty"
        assert Client(coordinator, "s2", ["a"], instance_id="i").heartbeat().member_epoch == 4

    def test_a_static_member_may_leave_for_good(self, coordinator: Coordinator) -> None:
        static = Client(coordinator, "s1", ["a"], instance_id="i")
        static.heartbeat()
        assert static.leave(-1).error_code == 0
        assert coordinator.group.is_empty


class TestSubscriptions:
    def test_a_changed_subscription_is_a_new_epoch(self, coordinator: Coordinator) -> None:
        client = Client(coordinator, "m", ["a"])
        client.heartbeat()
        client.topics = ["b"]
        client.heartbeat(full=True)
        assert client.partitions == []
        client.heartbeat()
        assert (client.partitions, client.epoch) == ([("b", 0), ("b", 1)], 3)

    def test_a_changed_subscription_takes_partitions_back_before_new_ones_are_dealt_out(self) -> None:
        coordinator = Coordinator({"a": 2, "b": 2}, ConsumerGroupConfig(assignment_interval_ms=1_000))
        client = Client(coordinator, "m", ["a", "b"])
        client.heartbeat()
        client.topics = ["b"]
        client.heartbeat(full=True)
        assert (client.partitions, client.epoch) == ([("b", 0), ("b", 1)], 2)
        assert coordinator.group.state_name == "Assigning"
        coordinator.pass_time(1_000)
        client.heartbeat()
        assert (client.epoch, coordinator.group.state_name) == (3, "Stable")

    def test_partitions_that_are_added_are_dealt_out(self, coordinator: Coordinator) -> None:
        first, second = two_members(coordinator)
        settle([first, second])
        coordinator.set_topics({"a": 6})
        out = coordinator.group.metadata_changed(coordinator.topics, coordinator.now)
        coordinator.keep(out)
        assert coordinator.group.state_name == "Assigning"
        settle([first, second])
        assert len(first.owned) == len(second.owned) == 3
        coordinator.set_topics({"a": 6, "unrelated": 1})
        assert coordinator.group.metadata_changed(coordinator.topics, coordinator.now).records == []

    def test_a_topic_that_is_deleted_is_taken_away(self, coordinator: Coordinator) -> None:
        client = Client(coordinator, "m", ["a", "b"])
        client.heartbeat()
        coordinator.set_topics({"b": 2})
        client.heartbeat(full=True)
        client.heartbeat()
        assert client.partitions == [("b", 0), ("b", 1)]

    def test_a_pattern_finds_topics_now_and_later(self, coordinator: Coordinator) -> None:
        client = Client(coordinator, "m", [], regex="a.*")
        client.heartbeat()
        assert {name for name, _ in client.partitions} == {"a"}
        assert coordinator.group.is_subscribed_to("a")
        assert not coordinator.group.is_subscribed_to("b")
        coordinator.set_topics({"a": 1, "b": 1, "another": 2})
        settle([client])
        assert client.partitions == [("a", 0), ("another", 0), ("another", 1)]
        since = len(coordinator.log)
        client.regex, client.topics = "", ["b"]
        client.heartbeat(full=True)
        assert "-RegularExpression" in names_of(coordinator, since)
        settle([client])
        assert client.partitions == [("b", 0)]
        assert state_of(coordinator.replayed()) == state_of(coordinator.group)

    def test_a_group_that_is_loaded_resolves_its_patterns_anew(self, coordinator: Coordinator) -> None:
        client = Client(coordinator, "m", [], regex="a.*")
        client.heartbeat()
        coordinator.group = coordinator.replayed()
        written = len(coordinator.log)
        client.heartbeat()
        assert len(coordinator.log) == written
        coordinator.group = coordinator.replayed()
        coordinator.set_topics({"a": 4, "b": 2, "a2": 1})
        client.heartbeat()
        assert ("a2", 0) in client.partitions

    def test_the_assignor_is_what_most_members_ask_for(self, coordinator: Coordinator) -> None:
        group = coordinator.group
        clients = [Client(coordinator, f"m{i}", ["a"], assignor="range" if i else None) for i in range(3)]
        clients[0].heartbeat()
        assert group.preferred_assignor(EAGER.assignors) == "uniform"
        clients[1].heartbeat()
        assert group.preferred_assignor(EAGER.assignors) == "range"
        settle([*clients[:2]])
        assert clients[0].partitions == [("a", 0), ("a", 1)]

    def test_many_changes_are_dealt_out_together(self) -> None:
        coordinator = Coordinator({"a": 4}, ConsumerGroupConfig(assignment_interval_ms=1_000))
        clients = [Client(coordinator, f"m{number}", ["a"]) for number in range(4)]
        for client in clients:
            client.heartbeat()
        assert (coordinator.group.group_epoch, coordinator.group.assignment_epoch) == (5, 2)
        coordinator.pass_time(1_000)
        clients[0].heartbeat()
        assert coordinator.group.assignment_epoch == 5
        settle(clients)
        assert [len(client.owned) for client in clients] == [1, 1, 1, 1]


class TestOffsets:
    def refusal(self, coordinator: Coordinator, member_id: str, epoch: int, partition: int = 0, **how: Any) -> int:
        try:
            coordinator.group.validate_offset_commit(
                member_id,
                None,
                epoch,
                is_transactional=how.get("is_transactional", False),
                api_version=how.get("api_version", 9),
                partitions=[CommittedPartition("a", topic_id("a"), partition)],
            )
        except KafkaError as error:
            return error.code
        return 0

    def test_a_member_commits_in_its_epoch(self, coordinator: Coordinator) -> None:
        first, second = two_members(coordinator)
        settle([first, second])
        assert self.refusal(coordinator, "first", first.epoch) == 0
        assert self.refusal(coordinator, "first", first.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert self.refusal(coordinator, "nobody", first.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
        assert self.refusal(coordinator, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert self.refusal(coordinator, "", -1, is_transactional=True) == 0
        assert self.refusal(coordinator, "first", first.epoch, api_version=8) == ErrorCode.UNSUPPORTED_VERSION

    def test_in_an_older_epoch_only_what_was_its_own_all_along(self, coordinator: Coordinator) -> None:
        first, second = two_members(coordinator)
        settle([first, second])
        (_, kept), (_, gained) = first.partitions[0], second.partitions[0]
        assert self.refusal(coordinator, "first", 2, kept) == 0
        assert self.refusal(coordinator, "first", 2, gained) == ErrorCode.STALE_MEMBER_EPOCH
        assert self.refusal(coordinator, "second", 2, gained) == ErrorCode.STALE_MEMBER_EPOCH
        assert self.refusal(coordinator, "first", 1, kept) == ErrorCode.STALE_MEMBER_EPOCH

    def test_what_is_being_given_up_can_still_be_committed(self, coordinator: Coordinator) -> None:
        first, _ = two_members(coordinator)
        first.heartbeat(revokes=False)
        for partition in range(4):
            assert self.refusal(coordinator, "first", 2, partition) == 0

    def test_an_empty_group_lets_everybody_commit_who_is_in_no_group(self, coordinator: Coordinator) -> None:
        assert self.refusal(coordinator, "", -1) == 0
        assert self.refusal(coordinator, "gone", 3) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_offsets_are_fetched_in_the_members_epoch_or_by_nobody_in_particular(
        self, coordinator: Coordinator
    ) -> None:
        first, _ = two_members(coordinator)
        coordinator.group.validate_offset_fetch(None, -1)
        coordinator.group.validate_offset_fetch("first", first.epoch)
        for member_id, epoch, code in (
            ("first", first.epoch + 1, ErrorCode.STALE_MEMBER_EPOCH),
            ("nobody", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            with pytest.raises(KafkaError) as refusal:
                coordinator.group.validate_offset_fetch(member_id, epoch)
            assert refusal.value.code is code

    def test_only_an_empty_group_can_be_deleted(self, coordinator: Coordinator) -> None:
        coordinator.group.validate_delete()
        two_members(coordinator)
        with pytest.raises(KafkaError) as refusal:
            coordinator.group.validate_delete()
        assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP


def test_the_description_shows_what_members_have_and_shall_have(coordinator: Coordinator) -> None:
    first, _ = two_members(coordinator)
    first.heartbeat(revokes=False)
    group = coordinator.group.described(coordinator.topics, EAGER.assignors)
    assert (group.group_id, group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        GROUP,
        "Reconciling",
        3,
        3,
        "uniform",
    )
    members = {member.member_id: member for member in group.members}
    assert (members["first"].member_epoch, members["second"].member_epoch) == (2, 3)
    assert [t.topic_name for t in members["first"].assignment.topic_partitions] == ["a"]
    assert members["second"].assignment.topic_partitions == []
    assert len(members["second"].target_assignment.topic_partitions[0].partitions) == 2
    assert {(member.member_type, member.client_id, member.client_host) for member in group.members} == {
        (1, "client", "/127.0.0.1")
    }
    coordinator.set_topics({})
    gone = coordinator.group.described(coordinator.topics, EAGER.assignors)
    assert gone.members[0].assignment.topic_partitions == []
