"""The thread of memberships holds each one until it ends."""

from __future__ import annotations

import asyncio
import gc
import weakref
from concurrent.futures import Future

from barnabas.client.group.hosts import ThreadHost

WITHIN_S = 30


class Membership:
    """Waits for something that nobody but itself refers to."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()

    async def run(self, started: Future[weakref.ref[Membership]]) -> None:
        started.set_result(weakref.ref(self))
        await self.wake.wait()


async def begin(host: ThreadHost) -> tuple[weakref.ref[Membership], asyncio.Future[None]]:
    started: Future[weakref.ref[Membership]] = Future()
    ended = host.start(Membership().run(started))
    membership = await asyncio.wait_for(asyncio.wrap_future(started), WITHIN_S)
    waits: Future[None] = Future()
    host.to_member(lambda: waits.set_result(None))  # behind its first step
    await asyncio.wait_for(asyncio.wrap_future(waits), WITHIN_S)
    return membership, ended


def test_membership_is_not_collected_before_it_ends() -> None:
    async def story() -> None:
        host = ThreadHost()
        membership, ended = await begin(host)
        gc.collect()

        def wake() -> None:
            alive = membership()
            assert alive is not None
            alive.wake.set()

        host.to_member(wake)
        await asyncio.wait_for(ended, WITHIN_S)
        host.close()

    asyncio.run(story())
