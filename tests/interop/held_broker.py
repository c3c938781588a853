"""`barnabas up` whose internal topics are held back until a request waits for their coordinator.

Used as a wrapper: `python held_broker.py HELD COMMAND...`. HELD is `create` (the partitions are not created) or `load`
(their shards are not loaded). The metadata has the topics meanwhile, and FindCoordinator names this broker.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from barnabas.broker.coordinator_runtime import ShardDriver
from barnabas.broker.coordinators import Coordinator
from barnabas.cli.main import main
from barnabas.storage.log_config import LogConfig
from barnabas.storage.manager import LogManager

HELD_FOR_S = 10.0  # at most


def hold(what: str) -> None:
    is_awaited = asyncio.Event()
    ready, create_many, load = Coordinator.ready, LogManager.create_many, ShardDriver._load

    async def awaited_ready(self: Coordinator[Any], key: str) -> Any:
        is_awaited.set()
        return await ready(self, key)

    async def until_awaited() -> None:
        async with asyncio.timeout(HELD_FOR_S):
            await is_awaited.wait()

    async def held_create_many(
        self: LogManager, topic: str, partitions: Sequence[int], topic_id: bytes, config: LogConfig
    ) -> None:
        if topic.startswith("__"):
            await until_awaited()
        await create_many(self, topic, partitions, topic_id, config)

    async def held_load(self: ShardDriver[Any]) -> None:
        await until_awaited()
        await load(self)

    Coordinator.ready = awaited_ready  # type: ignore[method-assign]
    if what == "create":
        LogManager.create_many = held_create_many  # type: ignore[method-assign]
    else:
        ShardDriver._load = held_load  # type: ignore[method-assign]


if __name__ == "__main__":
    hold(sys.argv[1])
    sys.argv = ["barnabas", *sys.argv[sys.argv.index("barnabas.cli") + 1 :]]
    main()
