"""The classic protocol from a member's side: what it sends, gives up and takes, event by event."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from barnabas.client.group.classic_member import ClassicMember
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.steps import Ask, LookUp, Rest, Step
from barnabas.client.group.values import Change, Subscription
from barnabas.client.metadata import PartitionInfo, TopicInfo, TopicPartition
from barnabas.coordinator.consumer_protocol import (
    ConsumerProtocolAssignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from barnabas.coordinator.consumer_protocol import TopicPartition as TopicPartitions
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.k13_leave_group import LeaveGroupRequest
from barnabas.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

MAX_POLL_S = 300.0
ORDERS = frozenset(["orders"])


def orders(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("orders", number) for number in numbers)


def topic(name: str, partitions: int, is_internal: bool = False) -> TopicInfo:
    return TopicInfo(
        name, bytes(16), is_internal, tuple(PartitionInfo(n, 1, 0, (1,), (1,), ()) for n in range(partitions))
    )


class Game:
    """Plays the coordinator and the caller of one member; every step is carried out as it comes."""

    def __init__(self, subscription: Subscription | None = None, **options: Any) -> None:
        chosen = GroupOptions(group_id="g", group_protocol="classic", **options)
        self.member = ClassicMember(chosen, subscription or Subscription(ORDERS))
        self.now = 0.0
        self.polled_at = 0.0
        self.busy = False

    def step(self) -> Step:
        return self.member.next(self.now, self.polled_at, busy=self.busy)

    def asks(self, kind: type) -> Any:
        step = self.step()
        assert isinstance(step, Ask), step
        assert isinstance(step.message, kind)
        return step.message

    def answer(self, response: Any) -> None:
        self.member.answered(None, response, self.now)

    def rests(self) -> Change | None:
        """Nothing to send; the change that is offered, if any."""
        step = self.step()
        assert isinstance(step, Rest), step
        return self.member.change

    def joins(self, generation: int = 1, members: list[JoinGroupResponseMember] | None = None, **more: Any) -> Any:
        """The member joins; as a leader if it is given the members."""
        request = self.asks(JoinGroupRequest)
        leader = "me" if members is not None else "other"
        name = request.protocols[0].name
        self.answer(JoinGroupResponse(0, 0, generation, "consumer", name, leader, False, "me", members or [], **more))
        return request

    def syncs(self, *numbers: int) -> SyncGroupRequest:
        request: SyncGroupRequest = self.asks(SyncGroupRequest)
        share = ConsumerProtocolAssignment([TopicPartitions("orders", list(numbers))] if numbers else [])
        self.answer(SyncGroupResponse(assignment=encode_assignment(share, 3)))
        return request

    def does(self) -> Change:
        """The caller carries out what is offered."""
        change = self.rests()
        assert change is not None
        self.member.done(change)
        return change

    def beats(self, code: ErrorCode = ErrorCode.NONE) -> HeartbeatRequest:
        self.now += 3.0
        self.polled_at = self.now
        request: HeartbeatRequest = self.asks(HeartbeatRequest)
        self.answer(HeartbeatResponse(0, code))
        return request

    def settles(self, *numbers: int) -> None:
        self.joins()
        self.syncs(*numbers)
        assert self.does().assigned == orders(*numbers)


COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky"]}


def test_a_member_id_is_fetched_first_and_used_from_then_on() -> None:
    game = Game()
    assert game.asks(JoinGroupRequest).member_id == ""
    game.answer(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
    assert game.asks(JoinGroupRequest).member_id == "me"


def test_a_member_offers_its_assignors_in_order_with_what_it_reads() -> None:
    request = Game(client_rack="r1").asks(JoinGroupRequest)
    assert [protocol.name for protocol in request.protocols] == ["range", "cooperative-sticky"]
    told = decode_subscription(request.protocols[0].metadata)
    assert (told.topics, told.rack_id, told.generation_id) == (["orders"], "r1", -1)
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (45_000, 300_000)


def test_a_member_beats_in_time_and_rests_in_between() -> None:
    game = Game()
    game.settles(0, 1)
    step = game.step()
    assert step == Rest(3.0)
    assert game.beats().generation_id == 1
    assert game.member.change is None


def test_an_eager_member_gives_up_everything_before_it_joins_again_and_beats_meanwhile() -> None:
    game = Game()
    game.settles(0, 1)
    game.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    revoked = game.rests()
    assert revoked is not None
    assert revoked.revoked == orders(0, 1)
    game.busy = True  # it has taken the change
    game.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    assert isinstance(game.step(), Rest)
    game.busy = False
    game.member.done(revoked)
    game.joins(2)
    game.syncs(1)
    assert game.does().assigned == orders(1)


def test_a_cooperative_member_keeps_what_it_has_and_joins_again_after_giving_up() -> None:
    game = Game(**COOPERATIVE)
    game.settles(0, 1, 2)
    game.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    told = decode_subscription(game.joins(2).protocols[0].metadata)
    assert [(each.topic, each.partitions) for each in told.owned_partitions] == [("orders", [0, 1, 2])]
    assert told.generation_id == 1
    game.syncs(0, 1)
    assert game.does().revoked == orders(2)
    game.joins(3)
    game.syncs(0, 1)
    assert game.rests() is None
    assert game.member.owned == frozenset(orders(0, 1))


def test_a_change_that_was_not_taken_yet_is_replaced_when_the_group_moves_on() -> None:
    game = Game()
    game.joins()
    game.syncs(0)
    assert game.rests() is not None
    game.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    game.joins(2)  # it owns nothing yet, and so has nothing to give up
    game.syncs(1)
    assert game.does().assigned == orders(1)


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")]
)
def test_a_member_that_was_left_behind_has_lost_its_partitions(code: ErrorCode, member_id: str) -> None:
    game = Game(**COOPERATIVE)
    game.settles(0, 1)
    game.beats(code)
    assert game.member.generation == -1
    assert game.member.outside
    assert game.does().lost == orders(0, 1)
    request = game.joins(2)
    assert request.member_id == member_id
    assert decode_subscription(request.protocols[0].metadata).owned_partitions == []


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_SESSION_TIMEOUT]
)
def test_what_the_group_refuses_for_good_ends_the_membership(code: ErrorCode) -> None:
    game = Game()
    game.asks(JoinGroupRequest)
    game.answer(JoinGroupResponse(error_code=code))
    assert game.member.problem is not None
    assert game.member.problem.code == code


def test_a_sync_that_was_not_answered_is_a_reason_to_join_again() -> None:
    game = Game()
    game.joins()
    game.member.failed(game.asks(SyncGroupRequest))
    game.joins(2)
    game.syncs(0)
    assert game.does().assigned == orders(0)


def test_a_caller_that_is_silent_too_long_makes_the_member_leave_until_it_is_heard_of() -> None:
    game = Game()
    game.settles(0)
    game.now = MAX_POLL_S - 0.1
    game.asks(HeartbeatRequest)
    game.answer(HeartbeatResponse())
    step = game.step()
    assert step == Rest(MAX_POLL_S)
    game.now = MAX_POLL_S
    assert game.asks(LeaveGroupRequest).members[0].member_id == "me"
    assert game.step() == Rest(inf)
    assert game.member.silent
    assert "max_poll_interval_ms=300000" in game.member.outside
    game.polled_at = game.now = 400.0
    assert game.does().lost == orders(0)
    assert game.asks(JoinGroupRequest).member_id == ""


def test_a_static_member_does_not_leave() -> None:
    game = Game(group_instance_id="one")
    game.settles(0)
    assert game.member.farewell() is None
    assert Game().member.farewell() is None  # one that never came has nothing to leave
    assert game.member.identity == ("g", "me", 1, "one")


def test_the_leader_shares_out_what_there_is() -> None:
    game = Game(partition_assignment_strategy=["range"])
    mine = game.asks(JoinGroupRequest).protocols[0].metadata
    game.joins(members=[JoinGroupResponseMember("me", None, mine), JoinGroupResponseMember("you", None, mine)])
    assert game.step() == LookUp(ORDERS)
    game.member.looked_up({"orders": topic("orders", 3)}, game.now)
    shares = {
        each.member_id: decode_assignment(each.assignment).assigned_partitions for each in game.syncs(0, 1).assignments
    }
    assert {member: [(t.topic, t.partitions) for t in share] for member, share in shares.items()} == {
        "me": [("orders", [0, 1])],
        "you": [("orders", [2])],
    }


def test_the_leader_prefers_what_is_near_to_the_readers() -> None:
    game = Game(partition_assignment_strategy=["range"], client_rack="west")
    mine = game.asks(JoinGroupRequest).protocols[0].metadata
    yours = Game(client_rack="east").asks(JoinGroupRequest).protocols[0].metadata
    game.joins(members=[JoinGroupResponseMember("me", None, mine), JoinGroupResponseMember("you", None, yours)])
    split = TopicInfo("orders", bytes(16), False, tuple(PartitionInfo(n, n, 0, (n,), (n,), ()) for n in range(2)))
    game.member.looked_up({"orders": split}, game.now, {0: "east", 1: "west"})
    shares = {each.member_id: decode_assignment(each.assignment) for each in game.syncs(1).assignments}
    assert shares["me"].assigned_partitions == [TopicPartitions("orders", [1])]
    assert shares["you"].assigned_partitions == [TopicPartitions("orders", [0])]


def test_a_leader_that_finds_more_partitions_or_topics_asks_for_a_rebalance() -> None:
    game = Game(Subscription(frozenset(["orders", "later"])), metadata_max_age_ms=1500, **COOPERATIVE)
    mine = game.asks(JoinGroupRequest).protocols[0].metadata
    game.joins(members=[JoinGroupResponseMember("me", None, mine)])
    game.member.looked_up({"orders": topic("orders", 1)}, game.now)
    game.syncs(0)
    game.does()
    assert game.step() == Rest(1.0)  # a topic that is missing is asked for soon
    game.now = 1.0
    assert game.step() == LookUp(frozenset(["orders", "later"]))
    game.member.looked_up({"orders": topic("orders", 1)}, game.now)
    assert isinstance(game.step(), Rest)
    game.now = 2.0
    game.step()
    game.member.looked_up({"orders": topic("orders", 1), "later": topic("later", 1)}, game.now)
    game.asks(JoinGroupRequest)


def test_a_static_leader_that_came_back_leaves_the_shares_as_they_are() -> None:
    game = Game(group_instance_id="one")
    request = game.asks(JoinGroupRequest)
    members = [JoinGroupResponseMember("me", "one", request.protocols[0].metadata)]
    game.answer(JoinGroupResponse(0, 0, 4, "consumer", "range", "me", True, "me", members))
    assert game.syncs(0).assignments == []
    game.member.looked_up({"orders": topic("orders", 1)}, game.now)
    assert game.does().assigned == orders(0)


def test_a_pattern_takes_whole_names_of_topics_that_are_not_internal() -> None:
    game = Game(Subscription(pattern="ord.*|__.*"))
    assert game.step() == LookUp(None)
    found = ["orders", "orderly", "my-orders", "__offsets"]
    game.member.looked_up({name: topic(name, 1, name.startswith("__")) for name in found}, game.now)
    told = decode_subscription(game.asks(JoinGroupRequest).protocols[0].metadata)
    assert told.topics == ["orderly", "orders"]


def test_another_subscription_is_a_reason_to_join_again_and_to_give_up_what_is_not_in_it() -> None:
    game = Game(**COOPERATIVE)
    game.settles(0)
    game.member.subscribe(Subscription(frozenset(["others"])))
    assert game.does().revoked == orders(0)
    assert decode_subscription(game.joins(2).protocols[0].metadata).topics == ["others"]


def test_who_doubts_the_member_makes_it_ask_at_once() -> None:
    game = Game()
    game.settles(0)
    assert isinstance(game.step(), Rest)
    game.member.suspect()
    game.asks(HeartbeatRequest)


def test_a_change_that_stays_the_same_is_proposed_once() -> None:
    game = Game()
    game.joins()
    game.syncs(0)
    first = game.rests()
    game.beats()
    assert game.rests() is first
