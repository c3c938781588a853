"""The end of a membership: by request, by itself, and when its caller has gone away."""

from __future__ import annotations

import asyncio
import math
from random import Random
from types import SimpleNamespace
from typing import Any

from barnabas.client.group.handover import Handover
from barnabas.client.group.membership import Membership
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.steps import Rest
from barnabas.client.group.values import GroupMetadata, Subscription
from barnabas.core.clock import SystemClock
from barnabas.core.errors import ErrorCode, KafkaError


def test_the_end_does_not_disturb_a_farewell_that_has_begun() -> None:
    async def story() -> None:
        closing, may_close = asyncio.Event(), asyncio.Event()

        async def close() -> None:
            closing.set()
            await may_close.wait()

        async def live() -> None:
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not this group")

        client: Any = SimpleNamespace(clock=SystemClock(), random=Random(1), close=close)
        handover = Handover(GroupMetadata("g"), 0.0, lambda: None)
        membership = Membership(client, GroupOptions(group_id="g"), Subscription(frozenset(["orders"])), handover)
        membership._live = live  # type: ignore[method-assign]
        running = asyncio.ensure_future(membership.run())
        await closing.wait()
        membership.end(leave=True)
        may_close.set()
        await running  # is not cancelled
        assert isinstance(handover.problem, KafkaError)

    asyncio.run(asyncio.wait_for(story(), 10))


class SilentMachine:
    """Has left its group because the caller was silent, and waits for a sign of life."""

    problem, change, outside = None, None, "silent"
    silent, generation = True, -1
    identity, owned = GroupMetadata("g"), frozenset[Any]()

    def next(self, now: float, polled_at: float, *, busy: bool) -> Rest:
        return Rest(math.inf)

    def farewell(self) -> None:
        return None


def test_a_membership_ends_when_its_caller_goes_away_after_it_was_silent() -> None:
    async def story() -> None:
        wakes = 0

        def wake_caller() -> None:
            nonlocal wakes
            wakes += 1
            if wakes > 2:
                raise RuntimeError("Event loop is closed")

        async def close() -> None: ...

        async def silent() -> Any:
            return SilentMachine()

        client: Any = SimpleNamespace(clock=SystemClock(), random=Random(1), close=close)
        handover = Handover(GroupMetadata("g"), 0.0, wake_caller)
        options = GroupOptions(group_id="g", max_poll_interval_ms=10)
        membership = Membership(client, options, Subscription(frozenset(["orders"])), handover)
        membership._choose_protocol = silent  # type: ignore[method-assign]
        await membership.run()
        assert handover.silent

    asyncio.run(asyncio.wait_for(story(), 10))
