"""Gives leaderships back to the preferred replicas, every now and then, while this broker is the controller.

A broker that has been away comes back as a follower of everything, and would stay one. `cluster.leaders` says which
brokers miss too many of the partitions that prefer them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.cluster.events import BalanceLeaders
from barnabas.cluster.leaders import MAX_MOVES
from barnabas.core import logs
from barnabas.core.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.cluster.metadata_log import MetadataLog
    from barnabas.core.broker_config import BrokerConfig

_log = logs.get_logger(__name__)


class LeaderBalance:
    def __init__(self, metadata: MetadataLog, config: BrokerConfig) -> None:
        self._metadata = metadata
        self._interval_s: int = config["leader.imbalance.check.interval.seconds"]
        self._event = BalanceLeaders(config["leader.imbalance.per.broker.percentage"])
        self._is_enabled: bool = config["auto.leader.rebalance.enable"]

    async def run(self) -> None:
        while self._is_enabled:
            await asyncio.sleep(self._interval_s)
            if self._metadata.is_controller:
                await self._balance()

    async def _balance(self) -> None:
        moved = MAX_MOVES
        try:
            while moved >= MAX_MOVES:
                moved = await self._metadata.submit(self._event)
                if moved:
                    _log.info("leaderships given back to preferred replicas", partitions=moved)
        except KafkaError as error:
            _log.info("leaders not balanced", problem=str(error))
