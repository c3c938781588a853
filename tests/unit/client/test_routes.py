"""Where calls go, what is asked again, and what becomes of each item: on a client whose brokers are functions."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import pytest

from barnabas.client.client import Client
from barnabas.client.errors import CannotReach, refused
from barnabas.client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo, TopicPartition
from barnabas.client.outcomes import PartlyFailed, alone, settled
from barnabas.client.routes import ANY, BROKERS, CONTROLLER, GROUPS, LEADERS, ask, ask_one, ask_singly
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k03_metadata import MetadataRequest
from barnabas.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

BROKER_LIST = {number: BrokerInfo(number, f"host{number}", 9092, None) for number in (1, 2)}
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Clock:
    """A second passes whenever somebody looks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1
        return self.seconds

    def now_ms(self) -> int:
        raise AssertionError("nobody asks for the time of day")


class World:
    """Two brokers: `asked` are those that got a request, 0 for any; coordinators and leaders move when told to."""

    def __init__(self) -> None:
        clock = Clock()
        self.client = Client("host1", network=cast(Any, None), clock=clock, random=Random(1), retry_timeout_ms=20_000)
        self.client.backoff_seconds = lambda tries: 0.0  # type: ignore[method-assign]
        self.client.ask = self._ask  # type: ignore[method-assign,assignment]
        self.client.metadata.ask_any = self._ask_any  # type: ignore[method-assign]
        self.client.metadata.refresh = self._refresh  # type: ignore[method-assign]
        self.asked: list[tuple[int, object]] = []
        self.answers: list[object] = []
        self.coordinators: dict[str, list[int | ErrorCode]] = {}
        self.leaders = [(1, 2), (1, 2)]
        self.refreshes = 0
        self._show(self.leaders[0])

    def _show(self, leaders: tuple[int, int]) -> None:
        partitions = tuple(PartitionInfo(index, leader, 0, (), (), ()) for index, leader in enumerate(leaders))
        topic = TopicInfo("t", bytes(16), False, partitions)
        self.client.metadata.cluster = ClusterInfo("c", 1 + self.refreshes, BROKER_LIST, {"t": topic})

    async def _refresh(self, topics: object, *, create: bool = False) -> None:
        self.refreshes = min(1, self.refreshes + 1)
        self._show(self.leaders[self.refreshes])
        if topics == ["absent"]:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'absent' does not exist")

    async def _ask_any(self, message: object, *, highest: int | None = None) -> object:
        if isinstance(message, FindCoordinatorRequest):
            return FindCoordinatorResponse(coordinators=[self._find(key) for key in message.coordinator_keys])
        assert not isinstance(message, MetadataRequest)
        return self._answer(0, message)

    def _find(self, key: str) -> Coordinator:
        places = self.coordinators[key]
        place = places.pop(0) if len(places) > 1 else places[0]
        if isinstance(place, ErrorCode):
            return Coordinator(key, -1, "", -1, place, None)
        return Coordinator(key, place, f"host{place}", 9092, 0, None)

    async def _ask(self, broker: BrokerInfo, message: object, *, highest: int | None = None) -> object:
        return self._answer(broker.node_id, message)

    def _answer(self, broker: int, message: object) -> object:
        self.asked.append((broker, message))
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, KafkaError):
            raise answer
        return answer


def items(some: list[Any]) -> list[Any]:
    return some


def test_a_call_about_nothing_asks_nobody() -> None:
    world = World()
    assert asyncio.run(ask(world.client, ANY, [], items, dict)) == {}
    assert world.asked == []


def test_each_leader_gets_one_request_and_the_others_are_not_asked_again() -> None:
    world = World()
    world.leaders[1] = (2, 2)
    moved = refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t-0")
    world.answers = [{A: moved}, {B: "b"}, {A: "a"}]
    assert asyncio.run(ask(world.client, LEADERS, [A, B], items, dict)) == {A: "a", B: "b"}
    assert world.asked == [(1, [A]), (2, [B]), (2, [A])]


def test_a_coordinator_is_looked_for_until_it_is_there_and_the_right_one() -> None:
    world = World()
    world.coordinators = {"g": [ErrorCode.COORDINATOR_NOT_AVAILABLE, 1, 2], "h": [1]}
    world.answers = [{"h": "H"}, {"g": refused(ErrorCode.NOT_COORDINATOR, "g")}, {"g": "G"}]
    assert asyncio.run(ask(world.client, GROUPS, ["g", "h"], items, dict)) == {"g": "G", "h": "H"}
    assert world.asked == [(1, ["h"]), (1, ["g"]), (2, ["g"])]


def test_a_new_controller_is_found() -> None:
    world = World()
    world.answers = [refused(ErrorCode.NOT_CONTROLLER, "create"), "done"]
    assert asyncio.run(ask_one(world.client, CONTROLLER, None, "create", str)) == "done"
    assert world.asked == [(1, "create"), (2, "create")]


def test_a_broker_that_cannot_be_reached_fails_its_items_alone_when_the_time_is_up() -> None:
    world = World()
    down = CannotReach("broker 2 at host2:9092", ConnectionRefusedError())
    world.answers = ["one", *[down] * 100]
    answers = asyncio.run(ask_singly(world.client, BROKERS, [1, 2], str, str))
    assert answers == {1: "one", 2: down}
    assert {broker for broker, _ in world.asked[1:]} == {2}
    assert 3 < len(world.asked) < 30


def test_a_final_error_is_not_asked_about_again() -> None:
    world = World()
    exists = refused(ErrorCode.TOPIC_ALREADY_EXISTS, "t")
    world.answers = [{"t": exists, "u": "made"}]
    assert asyncio.run(ask(world.client, CONTROLLER, ["t", "u"], items, dict)) == {"t": exists, "u": "made"}
    assert len(world.asked) == 1


def test_a_topic_that_stays_unknown_is_given_up_before_the_time_for_retries() -> None:
    world = World()
    partition = TopicPartition("absent", 0)
    answers = asyncio.run(ask(world.client, LEADERS, [partition], items, dict))
    assert isinstance(error := answers[partition], KafkaError)
    assert str(error) == "topic 'absent' does not exist"
    assert cast(Clock, world.client.clock).seconds < 15


def test_an_item_that_the_answer_leaves_out_is_an_error() -> None:
    world = World()
    world.answers = [{"t": "made"}]
    answers = asyncio.run(ask(world.client, CONTROLLER, ["t", "u"], items, dict))
    assert answers["t"] == "made"
    assert isinstance(answers["u"], KafkaError)
    assert "nothing about u" in str(answers["u"])


def test_a_broker_that_does_not_serve_is_named() -> None:
    answers = asyncio.run(ask_singly(World().client, BROKERS, [7], str, str))
    assert str(answers[7]) == "broker 7 does not serve; is it running?"


def test_what_was_done_and_what_failed_are_kept_apart() -> None:
    denied, late = refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a"), refused(ErrorCode.REQUEST_TIMED_OUT, "b")
    with pytest.raises(PartlyFailed) as caught:
        settled({"a": denied, "b": late, "c": 3})
    failed = caught.value
    assert (failed.done, failed.errors) == ({"c": 3}, {"a": denied, "b": late})
    assert (failed.code, failed.retriable) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)
    assert str(failed) == "2 of 3 failed: a: topic authorization failed; b: request timed out"
    assert settled({"c": 3}) == {"c": 3}


def test_many_errors_are_not_all_told() -> None:
    errors = {number: refused(ErrorCode.INVALID_CONFIG, f"key {number}") for number in range(9)}
    with pytest.raises(PartlyFailed, match=r"^9 of 9 failed: key 0: .*; key 1: .*; key 2: .*; \.\.\.$"):
        settled(errors)
    same = refused(ErrorCode.UNSUPPORTED_VERSION, "it")
    with pytest.raises(PartlyFailed, match=r"^9 of 9 failed: it: unsupported version$"):
        settled(dict.fromkeys(range(9), same))


def test_the_error_of_a_single_thing_is_its_own() -> None:
    error = refused(ErrorCode.GROUP_ID_NOT_FOUND, "group 'g'")

    async def many() -> dict[str, int]:
        return settled({"g": error})

    with pytest.raises(KafkaError) as caught:
        asyncio.run(alone(many()))
    assert caught.value is error
