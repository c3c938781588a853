"""A broker's side of its registration: what it waits for before it serves."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

from barnabas.broker.heartbeats import Heartbeats
from barnabas.cluster.events import BrokerEpoch, BrokerHeartbeat, BrokerState
from barnabas.core.broker_config import BrokerConfig

EPOCH = 5


class Cluster:
    """A controller that fences the broker again while its first "you are not fenced" is still under way."""

    def __init__(self) -> None:
        self.heartbeats = 0
        self.has_left = False
        self.index = EPOCH + 1

    async def submit(self, event: Any, patience_s: float) -> BrokerEpoch | BrokerState:
        if not isinstance(event, BrokerHeartbeat):
            return BrokerEpoch(EPOCH)
        self.heartbeats += 1
        return BrokerState(True, False, False)

    def is_alive(self, broker_id: int) -> bool:
        return self.heartbeats > 1

    async def refresh(self) -> None:
        pass

    async def leave_what_others_have(self) -> None:
        assert self.heartbeats == 0, "a leader could be elected before"
        self.has_left = True

    async def until(self, is_so: Any) -> None:
        assert is_so(self)

    @property
    def image(self) -> Cluster:
        return self


def test_a_broker_that_is_fenced_again_while_it_starts_goes_on_sending_heartbeats() -> None:
    async def submit(function: Any, *arguments: object) -> int:
        return -1

    async def scenario() -> None:
        cluster = Cluster()
        broker: Any = SimpleNamespace(
            broker_id=1,
            broker_epoch=-1,
            config=BrokerConfig({}),
            manager=SimpleNamespace(
                directories=[SimpleNamespace(is_offline=False, directory_id="")], is_taken_up=False
            ),
            replicas=SimpleNamespace(settled=cluster.refresh),
            damaged_replicas=cluster,
            endpoints=(),
            executor=SimpleNamespace(submit=submit),
            controller=cluster,
            metadata=cluster,
        )
        disk: Any = None
        await asyncio.wait_for(Heartbeats(broker, disk, Random(0), "").enter(), 10)
        assert broker.broker_epoch == EPOCH
        assert cluster.heartbeats == 2
        assert cluster.has_left

    asyncio.run(scenario())
