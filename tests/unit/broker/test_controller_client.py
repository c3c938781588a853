"""How a broker reaches the controller: here or elsewhere, now or when there is one again, never without end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.controller_client import FORWARDED, ControllerAway, ControllerClient
from barnabas.broker.forwarding import by_controller
from barnabas.core.errors import ErrorCode, KafkaError


class Metadata:
    broker_id = 1
    controller_id = 1
    controller_epoch = 1
    is_controller = False
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


def test_nobody_waits_for_longer_than_told_and_learns_why() -> None:
    async def story() -> None:
        asker = client(Metadata())
        with pytest.raises(KafkaError) as caught:
            await asker.persist(lambda: asker.forward("anything", 0), 0.05)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert "no broker is the controller" in str(caught.value)

    asyncio.run(story())


def context(metadata: Metadata, client_id: str | None, forwarded: list[object]) -> Any:
    class Controller:
        async def forward(self, request: object, version: int) -> str:
            forwarded.append((request, version))
            return "from afar"

        async def persist(self, ask: Callable[[], Any], patience_s: float) -> object:
            return await ask()

    async def catch_up() -> None:
        forwarded.append("caught up")

    broker = SimpleNamespace(metadata=metadata, controller=Controller(), catch_up=catch_up)
    return SimpleNamespace(broker=broker, client_id=client_id, version=3)


@by_controller
async def handle(request: str, context: Any) -> str:
    return "from here"


def test_a_request_is_carried_out_where_the_controller_is() -> None:
    async def story() -> None:
        metadata, forwarded = Metadata(), list[object]()
        assert await handle("request", context(metadata, None, forwarded)) == "from afar"
        assert forwarded == [("request", 3), "caught up"]
        metadata.is_controller = True
        assert await handle("request", context(metadata, None, forwarded)) == "from here"
        assert await handle("request", context(metadata, FORWARDED, forwarded)) == "from here"

    asyncio.run(story())


def test_what_was_passed_on_is_not_passed_on_again() -> None:
    async def story() -> None:
        forwarded: list[object] = []
        with pytest.raises(KafkaError) as caught:
            await handle("request", context(Metadata(), FORWARDED, forwarded))
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert forwarded == []

    asyncio.run(story())
