"""Members of both protocols in one group, and groups that go from one protocol to the other and back."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator import mixed_group
from barnabas.coordinator.classic_group import ClassicGroup, ClassicGroupConfig
from barnabas.coordinator.consumer_group import ConsumerGroup
from barnabas.coordinator.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from barnabas.coordinator.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from barnabas.coordinator.migration import MigrationPolicy, downgrade, should_downgrade, upgrade
from barnabas.coordinator.records import decode_group_record
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest
from barnabas.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.unit.coordinator.consumer_groups import EAGER, GROUP, Client, Coordinator, replay, state_of, topic_id

CLASSIC = ClassicGroupConfig(initial_rebalance_delay_ms=0)
BOTH_WAYS = MigrationPolicy.BIDIRECTIONAL


class ClassicClient:
    """A consumer of the classic protocol with a cooperative assignor, in a consumer group."""

    def __init__(
        self,
        coordinator: Coordinator,
        topics: list[str],
        *,
        member_id: str = "",
        instance_id: str | None = None,
        protocol: str = "cooperative-sticky",
    ) -> None:
        self.coordinator = coordinator
        self.topics = topics
        self.member_id = member_id
        self.instance_id = instance_id
        self.protocol = protocol
        self.generation = -1
        self.has_synced = False
        self.owned: set[tuple[str, int]] = set()

    def join_request(self) -> JoinGroupRequest:
        owned: dict[str, list[int]] = {}
        for topic, partition in sorted(self.owned):
            owned.setdefault(topic, []).append(partition)
        subscription = ConsumerProtocolSubscription(
            self.topics, owned_partitions=[TopicPartition(name, parts) for name, parts in owned.items()]
        )
        return JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(self.protocol, encode_subscription(subscription, 1))],
        )

    def join(self) -> JoinGroupResponse:
        c = self.coordinator
        response: JoinGroupResponse = c.keep(
            mixed_group.join(c.group, self.join_request(), 9, "classic", "/10.0.0.1", c.topics, "token", c.now)
        )
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return self.join()
        if not response.error_code:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.has_synced = False
        return response

    def sync(self) -> int:
        c = self.coordinator
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
        )
        response = c.keep(mixed_group.sync(c.group, request, c.topics, "token", c.now))
        if not response.error_code:
            self.has_synced = True
            assignment = decode_assignment(response.assignment)
            self.owned = {
                (topic.topic, partition) for topic in assignment.assigned_partitions for partition in topic.partitions
            }
        return int(response.error_code)

    def heartbeat(self) -> int:
        c = self.coordinator
        request = HeartbeatRequest(GROUP, self.generation, self.member_id, self.instance_id)
        return int(c.keep(mixed_group.heartbeat(c.group, request, "token", c.now)).error_code)

    def poll(self) -> None:
        """What a client does: heartbeat, and join and sync when it is told to."""
        if self.generation == -1 or self.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            assert self.join().error_code == 0
        if not self.has_synced:
            self.sync()

    def leave(self) -> Any:
        c = self.coordinator
        request = LeaveGroupRequest(GROUP, members=[MemberIdentity(self.member_id, self.instance_id)])
        return c.keep(mixed_group.leave(c.group, request, 5, "token"))


def settle_both(consumers: list[Client], classics: list[ClassicClient], rounds: int = 12) -> None:
    group = (consumers or classics)[0].coordinator.group
    for _ in range(rounds):
        for consumer in consumers:
            assert consumer.heartbeat().error_code == 0
        for classic in classics:
            classic.poll()
        named = [partition for consumer in consumers for partition in consumer.partitions]
        everything = named + [partition for classic in classics for partition in classic.owned]
        assert len(everything) == len(set(everything))
        if group.state_name == "Stable" and not any(classic.heartbeat() for classic in classics):
            return
    raise AssertionError(f"{group.state_name} after {rounds} rounds")


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator({"a": 4, "b": 2})


class TestMixedGroup:
    def test_a_classic_member_gets_its_share_by_joining_again(self, coordinator: Coordinator) -> None:
        consumer, classic = Client(coordinator, "c", ["a"]), ClassicClient(coordinator, ["a"])
        consumer.heartbeat()
        joined = classic.join()
        assert (joined.generation_id, joined.protocol_name, joined.leader) == (3, "cooperative-sticky", "")
        assert classic.sync() == 0
        assert classic.owned == set()
        assert classic.heartbeat() == 0  # what it waits for is not free
        settle_both([consumer], [classic])
        assert len(classic.owned) == len(consumer.owned) == 2
        assert state_of(coordinator.replayed()) == state_of(coordinator.group)

    def test_a_classic_member_gives_up_before_another_gets(self, coordinator: Coordinator) -> None:
        consumer = Client(coordinator, "c", ["b"])
        consumer.heartbeat()
        classic = ClassicClient(coordinator, ["a"])
        settle_both([consumer], [classic])
        assert len(classic.owned) == 4
        consumer.topics = ["a", "b"]
        consumer.heartbeat(full=True)
        assert classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        classic.join()
        assert classic.generation == 3  # it has to give up first
        classic.sync()
        assert len(classic.owned) == 3
        consumer.heartbeat()
        assert len(consumer.owned) == 2
        assert classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        classic.join()
        assert classic.generation == 4
        consumer.heartbeat()
        assert len(consumer.owned) == 3

    def test_who_does_not_join_or_sync_in_time_is_put_out(self, coordinator: Coordinator) -> None:
        consumer = Client(coordinator, "c", ["a"])
        consumer.heartbeat()
        slow, never_syncs = ClassicClient(coordinator, ["a"]), ClassicClient(coordinator, ["a"])
        settle_both([consumer], [slow])
        never_syncs.join()
        for _ in range(4):
            assert slow.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
            never_syncs.heartbeat()
            coordinator.pass_time(5_000)
        assert coordinator.group.members.keys() == {"c"}
        assert slow.heartbeat() == never_syncs.sync() == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_silent_classic_member_has_its_own_session_time_out(self, coordinator: Coordinator) -> None:
        classic = ClassicClient(coordinator, ["a"])
        Client(coordinator, "c", ["a"]).heartbeat()
        classic.poll()
        coordinator.pass_time(9_999)
        assert len(coordinator.group.members) == 2
        coordinator.pass_time(1)
        assert coordinator.group.members.keys() == {"c"}

    def test_refusals(self, coordinator: Coordinator) -> None:
        consumer, classic = Client(coordinator, "c", ["a"]), ClassicClient(coordinator, ["a"])
        consumer.heartbeat()
        settle_both([consumer], [classic])
        other = ClassicClient(coordinator, ["a"], protocol="range")
        assert other.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        classic.generation += 1
        assert classic.heartbeat() == classic.sync() == ErrorCode.ILLEGAL_GENERATION
        stranger = ClassicClient(coordinator, ["a"], member_id="c")
        stranger.generation = consumer.epoch
        assert stranger.heartbeat() == stranger.sync() == ErrorCode.UNKNOWN_MEMBER_ID
        classic.generation -= 1
        classic.protocol = "range"
        assert classic.sync() == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_an_administrator_removes_a_member_of_either_protocol(self, coordinator: Coordinator) -> None:
        consumer, classic = Client(coordinator, "c", ["a"]), ClassicClient(coordinator, ["a"])
        consumer.heartbeat()
        settle_both([consumer], [classic])
        assert ClassicClient(coordinator, ["a"], member_id="c").leave().members[0].error_code == ErrorCode.NONE
        assert coordinator.group.members.keys() == {classic.member_id}
        assert classic.leave().members[0].error_code == ErrorCode.NONE
        assert not coordinator.group.members

    def test_static_members_of_the_classic_protocol(self, coordinator: Coordinator) -> None:
        consumer = Client(coordinator, "c", ["a"])
        static = ClassicClient(coordinator, ["a"], instance_id="i")
        consumer.heartbeat()
        settle_both([consumer], [static])
        had = static.owned
        restarted = ClassicClient(coordinator, ["a"], instance_id="i")
        restarted.join()
        assert restarted.sync() == 0
        assert restarted.owned == had
        assert static.heartbeat() == static.sync() == ErrorCode.FENCED_INSTANCE_ID
        by_administrator = ClassicClient(coordinator, [], instance_id="i")
        left = by_administrator.leave().members[0]
        assert (left.member_id, left.error_code) == (restarted.member_id, 0)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("pplsg")), max_size=30))
    def test_no_partition_has_two_owners_whatever_they_do(self, steps: list[tuple[int, str]]) -> None:
        coordinator = Coordinator({"a": 3, "b": 2})
        consumers = [Client(coordinator, f"c{n}", ["a", "b"][: n + 1]) for n in range(2)]
        classics = [ClassicClient(coordinator, ["a"], member_id=f"k{n}") for n in range(2)]
        consumers[0].heartbeat()
        partitions = 3
        for number, action in steps:
            if action == "g":
                partitions = min(6, partitions + 1)
                coordinator.set_topics({"a": partitions, "b": 2})
            elif number < 2:
                consumers[number].heartbeat(revokes=action != "l", full=action == "s")
            elif action == "s":
                classics[number - 2].join()
            else:
                classics[number - 2].poll()
            owned = [p for client in consumers for p in client.partitions] + [p for c in classics for p in c.owned]
            assert len(owned) == len(set(owned))
            assert state_of(coordinator.replayed()) == state_of(coordinator.group)
        settle_both(consumers, classics)
        owned = [p for client in consumers for p in client.partitions] + [p for c in classics for p in c.owned]
        assert len(owned) == partitions + 2


def stable_classic_group(coordinator: Coordinator, protocol_type: str = "consumer") -> ClassicGroup:
    """Two members, which share out topic a between them, as the log has them."""
    subscription = encode_subscription(ConsumerProtocolSubscription(["a"]), 1)
    value = GroupMetadataValue(
        protocol_type=protocol_type,
        generation=7,
        protocol="cooperative-sticky",
        leader="k1",
        members=[
            MemberMetadata(
                member_id=member_id,
                client_id="classic",
                client_host="/10.0.0.1",
                rebalance_timeout=20_000,
                session_timeout=10_000,
                subscription=subscription,
                assignment=encode_assignment(ConsumerProtocolAssignment([TopicPartition("a", partitions)]), 1),
            )
            for member_id, partitions in (("k1", [0, 1]), ("k2", [2, 3]))
        ],
    )
    group = ClassicGroup.restore(GROUP, value, CLASSIC, coordinator.timers, Random(3), coordinator.now)
    group.loaded(coordinator.now)
    return group


def join_as_consumer(
    coordinator: Coordinator, classic: ClassicGroup, policy: MigrationPolicy = BOTH_WAYS, **fields: Any
) -> tuple[ConsumerGroup | None, Any]:
    joining: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": "c",
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["a"],
        "topic_partitions": [],
    }
    request = ConsumerGroupHeartbeatRequest(**{**joining, **fields})
    c = coordinator
    group, out = upgrade(
        classic, policy, request, 1, "client", "/h", EAGER, c.topics, c.timers, Random(1), "token", c.now
    )
    response = dict(out.replies)["token"]
    c.log += out.records
    return group, response


class TestUpgrade:
    def test_a_classic_group_goes_over_with_all_that_its_members_have(self, coordinator: Coordinator) -> None:
        classic = stable_classic_group(coordinator)
        generation, member_ids = classic.generation_id, [member.member_id for member in classic.members]
        coordinator.log.clear()
        group, response = join_as_consumer(coordinator, classic)
        assert group is not None
        assert (response.error_code, response.member_epoch) == (0, generation + 1)
        assert response.assignment.topic_partitions == []
        coordinator.group = group
        key, value = decode_group_record(*coordinator.log[0])
        assert (key, value) == (GroupMetadataKey(GROUP), None)
        assert state_of(replay(coordinator.log[1:])) == state_of(group)
        assert [group.members[member_id].assigned[topic_id("a")].keys() for member_id in member_ids] == [
            {0, 1},
            {2, 3},
        ]
        consumer = Client(coordinator, "c", ["a"])
        consumer.epoch = response.member_epoch
        classics = []
        for member_id, partitions in zip(member_ids, ({0, 1}, {2, 3})):
            client = ClassicClient(coordinator, ["a"], member_id=member_id)
            client.generation, client.owned = generation, {("a", partition) for partition in partitions}
            classics.append(client)
        settle_both([consumer], classics)
        assert sorted([len(consumer.owned)] + [len(client.owned) for client in classics]) == [1, 1, 2]
        assert len(coordinator.timers) >= 3

    def test_those_who_wait_in_a_rebalance_are_sent_to_join_again(self, coordinator: Coordinator) -> None:
        classic = stable_classic_group(coordinator)
        request = ClassicClient(coordinator, ["a"]).join_request()
        waiting = classic.join(request, 3, "classic", "/h", "newcomer", coordinator.now)
        assert waiting.replies == []
        joining = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="c",
            rebalance_timeout_ms=1,
            subscribed_topic_names=["a"],
            topic_partitions=[],
        )
        c = coordinator
        group, out = upgrade(
            classic, BOTH_WAYS, joining, 1, "client", "/h", EAGER, c.topics, c.timers, Random(1), "token", c.now
        )
        assert group is not None
        assert dict(out.replies)["newcomer"].error_code == ErrorCode.REBALANCE_IN_PROGRESS

    @pytest.mark.parametrize(
        ("policy", "fields", "error"),
        [
            (MigrationPolicy.DISABLED, {}, ErrorCode.GROUP_ID_NOT_FOUND),
            (MigrationPolicy.DOWNGRADE, {}, ErrorCode.GROUP_ID_NOT_FOUND),
            (BOTH_WAYS, {"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
            (BOTH_WAYS, {"member_id": ""}, ErrorCode.INVALID_REQUEST),
            (BOTH_WAYS, {"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ],
    )
    def test_a_refused_heartbeat_leaves_the_classic_group_alone(
        self, coordinator: Coordinator, policy: MigrationPolicy, fields: dict[str, Any], error: ErrorCode
    ) -> None:
        classic = stable_classic_group(coordinator)
        written = len(coordinator.log)
        group, response = join_as_consumer(coordinator, classic, policy, **fields)
        assert group is None
        assert response.error_code == error
        assert (classic.state_name, len(coordinator.log)) == ("Stable", written)

    def test_only_consumers_go_over(self, coordinator: Coordinator) -> None:
        classic = stable_classic_group(coordinator, "connect")
        group, response = join_as_consumer(coordinator, classic)
        assert (group, response.error_code) == (None, ErrorCode.GROUP_ID_NOT_FOUND)

    def test_an_empty_classic_group_only_gives_its_name(self, coordinator: Coordinator) -> None:
        classic = ClassicGroup(GROUP, CLASSIC, coordinator.timers, Random(3), coordinator.now)
        group, response = join_as_consumer(coordinator, classic, MigrationPolicy.DISABLED)
        assert group is not None
        assert response.member_epoch == 2


class TestDowngrade:
    def mixed(self, coordinator: Coordinator) -> tuple[Client, ClassicClient]:
        consumer, classic = Client(coordinator, "c", ["a"]), ClassicClient(coordinator, ["a"])
        consumer.heartbeat()
        settle_both([consumer], [classic])
        return consumer, classic

    def to_classic(self, coordinator: Coordinator) -> ClassicGroup:
        c = coordinator
        classic, out = downgrade(c.group, CLASSIC, c.topics, c.timers, Random(1), c.now)
        c.keep(out)
        return classic

    def test_when_the_last_of_the_consumer_protocol_leaves_the_others_are_a_classic_group(
        self, coordinator: Coordinator
    ) -> None:
        consumer, classic = self.mixed(coordinator)
        assert not should_downgrade(coordinator.group, BOTH_WAYS, CLASSIC)
        consumer.leave()
        assert should_downgrade(coordinator.group, BOTH_WAYS, CLASSIC)
        for refused in (MigrationPolicy.UPGRADE, MigrationPolicy.DISABLED):
            assert not should_downgrade(coordinator.group, refused, CLASSIC)
        assert not should_downgrade(coordinator.group, BOTH_WAYS, ClassicGroupConfig(max_size=0))
        epoch = coordinator.group.group_epoch
        group = self.to_classic(coordinator)
        assert [member.member_id for member in group.members] == [classic.member_id]
        assert (group.state_name, group.protocol_name, group.generation_id) == (
            "PreparingRebalance",
            "cooperative-sticky",
            epoch,
        )
        last, _ = decode_group_record(*coordinator.log[-1])
        assert last == GroupMetadataKey(GROUP)
        assert state_of(replay(coordinator.log[:-1])) == state_of(Coordinator({}).group)
        request = classic.join_request()
        joined = group.join(request, 9, "classic", "/h", "token", coordinator.now)
        assert joined.replies[0][1].generation_id == epoch + 1

    def test_an_empty_group_stays_what_it_is(self, coordinator: Coordinator) -> None:
        Client(coordinator, "c", ["a"]).heartbeat()
        coordinator.pass_time(45_000)
        assert not should_downgrade(coordinator.group, BOTH_WAYS, CLASSIC)

    def test_a_static_member_that_comes_back_with_the_classic_protocol_keeps_its_partitions(
        self, coordinator: Coordinator
    ) -> None:
        consumer = Client(coordinator, "c", ["a"], instance_id="i")
        consumer.heartbeat()
        consumer.leave(-2)
        classic = ClassicClient(coordinator, ["a"], instance_id="i")
        assert classic.join().error_code == 0
        assert should_downgrade(coordinator.group, BOTH_WAYS, CLASSIC)
        group = self.to_classic(coordinator)
        assert (group.state_name, group.generation_id) == ("Stable", classic.generation)
        sync = SyncGroupRequest(GROUP, classic.generation, classic.member_id, "i")
        response = group.sync(sync, "token", coordinator.now).replies[0][1]
        assert decode_assignment(response.assignment).assigned_partitions == [TopicPartition("a", [0, 1, 2, 3])]

    def test_up_and_down_again(self, coordinator: Coordinator) -> None:
        classic = stable_classic_group(coordinator)
        group, _ = join_as_consumer(coordinator, classic)
        assert group is not None
        coordinator.group = group
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="c", member_epoch=-1)
        assert coordinator.send(request).error_code == 0
        again = self.to_classic(coordinator)
        assert len(again.members) == 2
        assert again.generation_id > classic.generation_id
