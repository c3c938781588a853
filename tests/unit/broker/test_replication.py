"""What a broker has asked for of its in-sync replicas when it stops."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from barnabas.broker.replication import Replication
from barnabas.core.broker_config import BrokerConfig


def test_a_wish_that_is_under_way_when_the_broker_stops_is_taken_back() -> None:
    asyncio.run(_stop_with_a_wish())


async def _stop_with_a_wish() -> None:
    asked = asyncio.Event()

    async def submit(_: object) -> None:
        asked.set()
        await asyncio.Event().wait()  # the controller does not answer

    broker: Any = MagicMock()
    broker.config = BrokerConfig({"node.id": "1"})
    broker.broker_id, broker.broker_epoch = 1, 7
    broker.controller.submit = submit
    replication = Replication(broker, MagicMock())
    log = SimpleNamespace(topic_id=bytes(16), partition=0)
    partition: Any = SimpleNamespace(log=log, leader_epoch=1, partition_epoch=1)
    answer = broker.replicas.alter_isr(partition, ((1, 7), (2, 8)))
    await asked.wait()
    await replication.close()
    assert answer.cancelled()
    assert broker.replicas.alter_isr is None
