"""A membership that is told to end while it ends by itself says farewell all the same."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

from barnabas.client.group.handover import Handover
from barnabas.client.group.membership import Membership
from barnabas.client.group.options import GroupOptions
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
