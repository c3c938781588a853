"""A broker whose disk has failed leaves the in-sync replicas of the partitions on it: nobody is to wait for it there.

What it has led, others take over. With no disk left it asks to be fenced as a whole (`heartbeats`). A disk that works
again is used after a restart, and counts as new then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.departures import departure
from barnabas.broker.previous_epoch import forget_epoch
from barnabas.core import logs
from barnabas.core.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.cluster.events import AlterPartition
    from barnabas.core.seams import Disk
    from barnabas.storage.directory import LogDirectory

_PAUSE_S = 1.0  # before what went wrong is tried again
_log = logs.get_logger(__name__)


class FailedDisks:
    def __init__(self, broker: Broker, disk: Disk) -> None:
        self._broker = broker
        self._disk = disk
        self._forgotten: set[LogDirectory] = set()
        self._news = asyncio.Event()
        self._news.set()  # logs may not have been opened at the start

    def look(self) -> None:
        """A disk may have failed, or a partition on one that has may count on us."""
        self._news.set()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._forget_epochs()
            try:
                await asyncio.gather(*map(self._broker.controller.submit, self._departures()))
            except KafkaError as error:
                _log.warning("in-sync replicas on a failed disk not left, trying again", problem=str(error))
                await asyncio.sleep(_PAUSE_S)
                self._news.set()

    def _departures(self) -> list[AlterPartition]:
        broker = self._broker
        return [
            departure(broker, name, index, partition)
            for name, index in broker.replicas.unusable()
            if (partition := broker.metadata.image.partition(name, index)) and broker.broker_id in partition.isr
        ]

    async def _forget_epochs(self) -> None:
        """The next start of this broker is not to claim that it has kept everything."""
        for directory in self._broker.manager.directories:
            if directory.is_offline and directory not in self._forgotten:
                self._forgotten.add(directory)
                try:
                    await self._broker.executor.submit(forget_epoch, self._disk, directory)
                except OSError as error:
                    _log.info("failed disk cannot be written to", directory=directory.path, problem=str(error))
