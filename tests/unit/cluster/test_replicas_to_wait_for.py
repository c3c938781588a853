"""Whoever has changed the metadata waits until it can use the change, but not while very many logs are made."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.cluster.delta import Delta
from barnabas.cluster.image import EMPTY, Partition, Topic
from barnabas.cluster.replicas import Replicas
from barnabas.storage.log_config import LogConfig

ME, ELSEWHERE = 1, 2


@pytest.mark.parametrize(("partitions", "is_waited_for"), [(200, True), (201, False)])
def test_a_large_topic_is_not_waited_for(partitions: int, is_waited_for: bool) -> None:
    async def story() -> None:
        replicas = Replicas(ME, None, lambda topic: LogConfig())  # type: ignore[arg-type]  # it makes no log here
        placed = Partition((ELSEWHERE,), (ELSEWHERE,), ELSEWHERE, 0, 0)
        replicas.follow(Delta(created=(Topic("topic", bytes(16), (placed,) * partitions),)), EMPTY)
        usable, settled = (asyncio.create_task(wait()) for wait in (replicas.usable, replicas.settled))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert usable.done() is not is_waited_for
        assert not settled.done()
        working = asyncio.create_task(replicas.run())
        await asyncio.wait_for(asyncio.gather(usable, settled), 5)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

        replicas.follow(Delta(), EMPTY)  # what comes after it is waited for again
        waiting = asyncio.create_task(replicas.usable())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    asyncio.run(story())
