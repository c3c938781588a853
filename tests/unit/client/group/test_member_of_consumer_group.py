"""The consumer protocol (KIP-848) from a member's side: what it tells, gives up and takes, heartbeat by heartbeat."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from barnabas.client.group.consumer_member import ConsumerMember
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.steps import Ask, LookUp, Rest, Step
from barnabas.client.group.values import Change, Subscription
from barnabas.client.metadata import TopicInfo, TopicPartition
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

ORDERS = frozenset(["orders"])
ORDERS_ID = b"orders".ljust(16, b"\0")
KNOWN = {"orders": TopicInfo("orders", ORDERS_ID, False, ())}
INTERVAL_S = 5.0


def orders(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("orders", number) for number in numbers)


class Game:
    """Plays the coordinator and the caller of one member."""

    def __init__(self, subscription: Subscription | None = None, **options: Any) -> None:
        chosen = GroupOptions(group_id="g", **options)
        self.member = ConsumerMember(chosen, subscription or Subscription(ORDERS), "me")
        self.now = self.polled_at = 0.0
        self.busy = False

    def step(self) -> Step:
        return self.member.next(self.now, self.polled_at, busy=self.busy)

    def beats(self, epoch: int, *numbers: int, unchanged: bool = False) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat, answered with an epoch and maybe a target."""
        request = self.asks()
        target = None if unchanged else Assignment([TopicPartitions(ORDERS_ID, list(numbers))] if numbers else [])
        self.answer(request, member_id="me", member_epoch=epoch, heartbeat_interval_ms=5000, assignment=target)
        return request

    def asks(self) -> ConsumerGroupHeartbeatRequest:
        step = self.step()
        assert isinstance(step, Ask), step
        message: ConsumerGroupHeartbeatRequest = step.message
        return message

    def answer(self, request: ConsumerGroupHeartbeatRequest, **fields: Any) -> None:
        self.member.answered(request, ConsumerGroupHeartbeatResponse(**fields), self.now)

    def refuses(self, code: ErrorCode, message: str | None = None) -> None:
        self.answer(self.asks(), error_code=code, error_message=message)

    def does(self) -> Change:
        assert isinstance(self.step(), Rest)
        change = self.member.change
        assert change is not None
        self.member.done(change)
        return change

    def settles(self, *numbers: int) -> None:
        self.beats(1, *numbers)
        assert self.step() == LookUp(ORDERS)
        self.member.looked_up(KNOWN, self.now)
        assert self.does().assigned == orders(*numbers)
        assert self.beats(1, unchanged=True).topic_partitions == [TopicPartitions(ORDERS_ID, list(numbers))]


def test_who_joins_tells_everything_and_later_only_what_has_changed() -> None:
    game = Game(group_remote_assignor="range", client_rack="r1", max_poll_interval_ms=60_000)
    first = game.beats(1)
    assert first == ConsumerGroupHeartbeatRequest(
        "g", "me", 0, None, "r1", 60_000, ["orders"], None, "range", topic_partitions=[]
    )
    game.now += INTERVAL_S
    assert game.beats(1, unchanged=True) == ConsumerGroupHeartbeatRequest("g", "me", 1)
    assert game.step() == Rest(game.now + INTERVAL_S)


def test_a_new_target_is_carried_out_and_told_at_once() -> None:
    game = Game()
    game.settles(0, 1)
    game.now += INTERVAL_S
    game.beats(2, 1, 2)
    change = game.does()
    assert (change.revoked, change.assigned) == (orders(0), orders(2))
    told = game.beats(2, unchanged=True)
    assert (told.member_epoch, told.topic_partitions) == (2, [TopicPartitions(ORDERS_ID, [1, 2])])
    assert game.member.identity.generation == 2


def test_heartbeats_go_on_while_the_caller_carries_out_a_change() -> None:
    game = Game()
    game.settles(0, 1)
    game.now += INTERVAL_S
    game.beats(2, 0)
    assert isinstance(game.step(), Rest)
    change = game.member.change
    game.busy = True
    game.now += INTERVAL_S
    assert game.beats(2, unchanged=True).topic_partitions is None
    assert game.member.change is change
    assert game.member.owned == frozenset(orders(0, 1))


def test_after_an_answer_that_got_lost_everything_is_told_again() -> None:
    game = Game()
    game.settles(0)
    game.now += INTERVAL_S
    game.member.failed(game.asks())
    told = game.beats(1, unchanged=True)
    assert (told.member_epoch, told.subscribed_topic_names, told.rebalance_timeout_ms) == (1, ["orders"], 300_000)
    assert told.topic_partitions == [TopicPartitions(ORDERS_ID, [0])]


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_has_lost_its_partitions_and_joins_again_under_its_id(code: ErrorCode) -> None:
    game = Game()
    game.settles(0)
    game.now += INTERVAL_S
    game.refuses(code)
    assert game.member.generation == -1
    assert game.member.outside
    assert game.does().lost == orders(0)
    again = game.beats(7)
    assert (again.member_id, again.member_epoch, again.topic_partitions) == ("me", 0, [])


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (ErrorCode.UNRELEASED_INSTANCE_ID, "group_instance_id='one' is in use"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "group_remote_assignor='strange'"),
        (ErrorCode.INVALID_REQUEST, "in the broker's words"),
    ],
)
def test_what_the_group_refuses_for_good_says_why(code: ErrorCode, says: str) -> None:
    game = Game(group_instance_id="one", group_remote_assignor="strange")
    game.refuses(code, "in the broker's words")
    assert game.member.problem is not None
    assert game.member.problem.code == code
    assert says in str(game.member.problem)


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("one", -2)])
def test_a_static_member_says_that_it_will_be_back(instance: str | None, epoch: int) -> None:
    game = Game(group_instance_id=instance)
    assert game.member.farewell() is None
    game.settles(0)
    farewell = game.member.farewell()
    assert farewell is not None
    assert (farewell.member_epoch, farewell.instance_id) == (epoch, instance)


def test_a_caller_that_is_silent_too_long_makes_the_member_leave_until_it_is_heard_of() -> None:
    game = Game(max_poll_interval_ms=4000)
    game.settles(0)
    assert game.step() == Rest(4.0)
    game.now = 4.0
    leaving = game.asks()
    assert leaving.member_epoch == -1
    game.answer(leaving, member_epoch=-1)
    assert game.step() == Rest(inf)
    assert "max_poll_interval_ms=4000" in game.member.outside
    game.polled_at = game.now = 9.0
    assert game.does().lost == orders(0)
    assert game.asks().member_epoch == 0


def test_a_topic_whose_name_is_not_known_yet_is_asked_for_until_it_is() -> None:
    game = Game(Subscription(pattern="ord.*"))
    joining = game.beats(1, 0)
    assert (joining.subscribed_topic_names, joining.subscribed_topic_regex) == ([], "ord.*")
    assert game.step() == LookUp(None)
    game.member.looked_up({}, game.now)
    assert game.step() == Rest(1.0)
    game.now = 1.0
    assert game.step() == LookUp(None)
    game.member.looked_up(KNOWN, game.now)
    assert game.does().assigned == orders(0)


def test_a_topic_that_was_made_anew_is_told_by_its_new_id() -> None:
    game = Game()
    game.settles(0)
    game.now += INTERVAL_S
    new_id = b"new".ljust(16, b"\0")
    request = game.asks()
    target = Assignment([TopicPartitions(new_id, [0])])
    game.answer(request, member_epoch=2, heartbeat_interval_ms=5000, assignment=target)
    assert game.step() == LookUp(ORDERS)
    game.member.looked_up({"orders": TopicInfo("orders", new_id, False, ())}, game.now)
    assert game.asks().topic_partitions == [TopicPartitions(new_id, [0])]


def test_another_subscription_is_told_at_once() -> None:
    game = Game(Subscription(pattern="ord.*"))
    game.beats(1)
    game.member.subscribe(Subscription(frozenset(["others"])))
    told = game.beats(2)
    assert (told.subscribed_topic_names, told.subscribed_topic_regex) == (["others"], "")


def test_who_doubts_the_member_makes_it_ask_at_once() -> None:
    game = Game()
    game.settles(0)
    assert isinstance(game.step(), Rest)
    game.member.suspect()
    game.asks()


def test_who_was_not_answered_yet_leaves_all_the_same() -> None:
    game = Game()
    game.asks()
    farewell = game.member.farewell()
    assert farewell is not None
    assert (farewell.member_id, farewell.member_epoch) == ("me", -1)
