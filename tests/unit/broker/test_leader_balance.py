"""When the controller gives leaderships back, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.broker.leader_balance import LeaderBalance
from barnabas.cluster.events import BalanceLeaders
from barnabas.cluster.leaders import MAX_MOVES
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.errors import ErrorCode, KafkaError
from tests.simulation.virtual_loop import VirtualLoop

INTERVAL_S = 300


class Controller:
    """Notes when it was asked to balance leaders, and answers what it is told to."""

    def __init__(self, loop: VirtualLoop, leads: bool, answers: tuple[int | KafkaError, ...]) -> None:
        self.is_controller = leads
        self.asked: list[tuple[float, int]] = []
        self._loop = loop
        self._answers = list(answers)

    async def submit(self, event: BalanceLeaders) -> int:
        self.asked.append((self._loop.time(), event.imbalance_percentage))
        answer = self._answers.pop(0) if self._answers else 0
        if isinstance(answer, KafkaError):
            raise answer
        return answer


def asked_within(seconds: float, *answers: int | KafkaError, leads: bool = True, **settings: str) -> list[Any]:
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    metadata: Any = Controller(loop, leads, answers)

    async def story() -> None:
        config = BrokerConfig({key.replace("_", "."): value for key, value in settings.items()})
        task = asyncio.create_task(LeaderBalance(metadata, config).run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    try:
        loop.run_until_complete(story())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    asked: list[Any] = metadata.asked
    return asked


def test_the_controller_looks_every_five_minutes_for_brokers_that_miss_more_than_a_tenth() -> None:
    assert asked_within(2.5 * INTERVAL_S) == [(INTERVAL_S, 10), (2 * INTERVAL_S, 10)]


def test_as_often_and_as_strictly_as_configured() -> None:
    asked = asked_within(3.5, leader_imbalance_check_interval_seconds="1", leader_imbalance_per_broker_percentage="0")
    assert asked == [(1, 0), (2, 0), (3, 0)]


def test_a_large_balance_goes_on_at_once() -> None:
    asked = asked_within(1.5 * INTERVAL_S, MAX_MOVES, MAX_MOVES, 7)
    assert asked == [(INTERVAL_S, 10)] * 3


def test_a_refusal_ends_the_round_and_not_the_balance() -> None:
    asked = asked_within(2.5 * INTERVAL_S, KafkaError(ErrorCode.NOT_CONTROLLER))
    assert [when for when, _ in asked] == [INTERVAL_S, 2 * INTERVAL_S]


@pytest.mark.parametrize(("leads", "enabled"), [(False, "true"), (True, "false")])
def test_nobody_balances_who_does_not_lead_or_is_told_not_to(leads: bool, enabled: str) -> None:
    assert asked_within(3 * INTERVAL_S, leads=leads, auto_leader_rebalance_enable=enabled) == []
