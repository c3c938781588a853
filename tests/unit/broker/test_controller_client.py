"""How a broker reaches the controller: here or elsewhere, now or when there is one again, never without end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.controller_client import FORWARDED, ControllerAway, ControllerClient, ControllerLink
from barnabas.broker.forwarding import by_controller
from barnabas.broker.metrics import Metrics
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.net.channel import Channel


class Metadata:
    broker_id = 1
    controller_id = 1
    controller_epoch = 1
    is_controller = False
    trouble = ""
    image: Any = SimpleNamespace(brokers={})

    def watch_controller(self, callback: Callable[[], None]) -> None:
        pass

    def not_controller(self) -> KafkaError:
        return KafkaError(ErrorCode.NOT_CONTROLLER, "not here")


def client(metadata: Any) -> ControllerClient:
    nothing: Any = None
    return ControllerClient(metadata, nothing, nothing, "PLAINTEXT")


def answers(*outcomes: object) -> Callable[[], Any]:
    """Gives these one after the other; exceptions are raised."""
    left = list(outcomes)

    async def ask() -> object:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return ask


NOT_CONTROLLER = KafkaError(ErrorCode.NOT_CONTROLLER)


@pytest.mark.parametrize(
    "failures", [(), (NOT_CONTROLLER,), (ControllerAway("dead"), NOT_CONTROLLER, ControllerAway())]
)
def test_a_question_is_put_again_until_a_controller_answers(failures: tuple[Exception, ...]) -> None:
    async def story() -> None:
        assert await client(Metadata()).persist(answers(*failures, "yes"), 5) == "yes"

    asyncio.run(story())


def test_a_refusal_is_an_answer() -> None:
    async def story() -> None:
        refusal = KafkaError(ErrorCode.INVALID_REQUEST, "no")
        with pytest.raises(KafkaError) as caught:
            await client(Metadata()).persist(answers(refusal), 5)
        assert caught.value is refusal

    asyncio.run(story())


def test_a_question_that_is_put_once_may_be_answered_by_who_is_no_controller() -> None:
    async def story() -> None:
        with pytest.raises(KafkaError) as caught:
            await client(Metadata()).persist(answers(NOT_CONTROLLER), 5, once=True)
        assert caught.value is NOT_CONTROLLER

    asyncio.run(story())


def test_nobody_waits_for_longer_than_told_and_learns_why() -> None:
    async def story() -> None:
        asker = client(Metadata())
        with pytest.raises(KafkaError) as caught:
            await asker.persist(lambda: asker.forward("anything", 0), 0.05)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert "no broker is the controller" in str(caught.value)

    asyncio.run(story())


def test_a_store_out_of_reach_is_the_reason_that_is_told() -> None:
    async def story() -> None:
        metadata = Metadata()
        metadata.trouble = "ZooKeeper at 127.0.0.1:2181 did not answer"
        with pytest.raises(KafkaError, match=r"metadata store is out of reach \(ZooKeeper at 127.0.0.1:2181"):
            await client(metadata).persist(asyncio.Event().wait, 0.05)

    asyncio.run(story())


def test_a_connection_that_was_lost_without_a_word_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class LostChannel:
        closed = False

        async def request(self, message: object, version: int) -> None:
            await asyncio.Event().wait()

        def close(self) -> None:
            self.closed = True

    opened: list[LostChannel] = []

    async def open_channel(*_: object) -> LostChannel:
        opened.append(LostChannel())
        return opened[-1]

    async def story() -> None:
        metadata: Any = Metadata()
        endpoint = SimpleNamespace(host="127.0.0.1", port=9092)
        metadata.image = SimpleNamespace(brokers={1: SimpleNamespace(id=1, endpoint=lambda _: endpoint)})
        nothing: Any = None
        link = ControllerLink(nothing, metadata, "PLAINTEXT", "barnabas-broker-2", 0.01)
        for _ in range(2):
            with pytest.raises(ControllerAway):
                await link.request("anything", 0)
        assert [channel.closed for channel in opened] == [True, True]

    monkeypatch.setattr(Channel, "open", open_channel)
    asyncio.run(story())


def context(metadata: Metadata, client_id: str | None = None, forwarded: list[object] | None = None) -> Any:
    """What a handler gets; what is passed on is noted, and answered at once."""
    notes: list[object] = [] if forwarded is None else forwarded
    controller = client(metadata)

    async def forward(request: object, version: int) -> str:
        notes.append((request, version))
        return "from afar"

    async def catch_up() -> None:
        notes.append("caught up")

    controller.forward = forward  # type: ignore[method-assign]
    broker = SimpleNamespace(metadata=metadata, controller=controller, catch_up=catch_up, metrics=Metrics())
    route = SimpleNamespace(key=19, has_error_code=False)
    return SimpleNamespace(broker=broker, client_id=client_id, version=3, route=route)


@by_controller(lambda request, failure: f"{failure.code.name}: {failure.message}")
async def handle(request: object, context: Any) -> str:
    return "from here"


def test_a_request_is_carried_out_where_the_controller_is() -> None:
    async def story() -> None:
        metadata, forwarded = Metadata(), list[object]()
        assert await handle("request", context(metadata, None, forwarded)) == "from afar"
        assert forwarded == [("request", 3), "caught up"]
        metadata.is_controller = True
        assert await handle("request", context(metadata)) == "from here"
        assert await handle("request", context(metadata, FORWARDED)) == "from here"

    asyncio.run(story())


def test_what_was_passed_on_is_not_passed_on_again() -> None:
    async def story() -> None:
        forwarded: list[object] = []
        with pytest.raises(KafkaError) as caught:
            await handle("request", context(Metadata(), FORWARDED, forwarded))
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert forwarded == []

    asyncio.run(story())


@pytest.mark.parametrize("client_id", [None, FORWARDED])
def test_a_client_waits_for_as_long_as_it_says_and_then_hears_why_not(client_id: str | None) -> None:
    @by_controller(lambda request, failure: f"{failure.code.name}: {failure.message}")
    async def hangs(request: object, context: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    async def story() -> None:
        metadata = Metadata()
        metadata.is_controller = True
        asked = context(metadata, client_id)
        answer = await asyncio.wait_for(hangs(SimpleNamespace(timeout_ms=50), asked), 5)
        assert answer == "REQUEST_TIMED_OUT: no controller has answered within 0.05 s: it is busy"
        assert asked.broker.metrics.errors == {(19, ErrorCode.REQUEST_TIMED_OUT): 1}

    asyncio.run(story())


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_without_a_time_out_is_carried_out(timeout_ms: int) -> None:
    async def story() -> None:
        metadata = Metadata()
        metadata.is_controller = True
        assert await handle(SimpleNamespace(timeout_ms=timeout_ms), context(metadata)) == "from here"

    asyncio.run(story())
