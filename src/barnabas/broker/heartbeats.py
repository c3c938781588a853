"""A broker's side of its registration: enter, tell the controller that it is alive, leave in order.

It runs on the broker's own loop, so that a loop that hangs is seen.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from barnabas.broker.previous_epoch import note_epoch, previous_epoch
from barnabas.cluster import image as images
from barnabas.cluster.brokers import SUPPORTED_FEATURES
from barnabas.cluster.events import BrokerHeartbeat, BrokerState, RegisterBroker
from barnabas.core import ids, logs
from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from random import Random

    from barnabas.broker.app import Broker
    from barnabas.core.seams import Disk

_log = logs.get_logger(__name__)
_PATIENCE_S = 5.0  # how long an attempt lasts before we say what we wait for
_PAUSE_S = 0.02  # where the next heartbeat is awaited
_LEAVE_PATIENCE_S = 1.0
_INTERVALS_UNHEARD = 2


class Heartbeats:
    def __init__(self, broker: Broker, disk: Disk, random: Random, boot_id: str) -> None:
        self._broker = broker
        self._disk = disk
        self._random = random
        self._boot_id = boot_id
        self._interval_s: float = broker.config["broker.heartbeat.interval.ms"] / 1000
        self._answered_at = -math.inf

    async def enter(self) -> None:
        """Register under a new epoch and become one who may serve; waits for a controller as long as it takes."""
        broker = self._broker
        directories = broker.manager.directories
        before = await broker.executor.submit(previous_epoch, self._disk, directories, self._boot_id)
        broker.broker_epoch = await self._register(before)
        await self._note_epoch()
        await broker.metadata.refresh()
        await broker.metadata.until(lambda image: image.index > broker.broker_epoch)
        if not broker.manager.is_taken_up:
            await broker.replicas.settled()
            await broker.damaged_replicas.leave_what_others_have()
        while True:
            await self._until_unfenced()
            await broker.metadata.refresh()
            if broker.metadata.image.is_alive(broker.broker_id) or not self._has_disk():
                return
            # Either the news is late, or we were fenced again before it came; then only another heartbeat helps.
            await asyncio.sleep(_PAUSE_S)

    async def _note_epoch(self) -> None:
        broker = self._broker
        for directory in broker.manager.directories:
            if not directory.is_offline:
                try:
                    await broker.executor.submit(note_epoch, self._disk, directory, self._boot_id, broker.broker_epoch)
                except OSError as error:
                    broker.manager.take_offline(directory, error)

    async def run(self) -> None:
        is_registered = True
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await (self._until_unfenced() if is_registered else self.enter())
            except KafkaError as error:
                _log.error("heartbeat refused", problem=str(error))
                is_registered = error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED
            else:
                is_registered = True

    async def leave(self) -> None:
        """Hand over what we lead, so that nobody finds out about our end by an error. In vain if nobody is left."""
        broker = self._broker
        others = (other for other in broker.metadata.image.brokers.values() if other.id != broker.broker_id)
        if broker.broker_epoch < 0 or not any(other.may_lead for other in others):
            return
        try:
            async with asyncio.timeout(_LEAVE_PATIENCE_S):
                while not (await self._beat(want_shut_down=True)).should_shut_down:  # noqa: ASYNC110
                    await asyncio.sleep(_PAUSE_S)
        except (TimeoutError, KafkaError) as error:
            _log.warning("left without a word to the controller", problem=str(error))

    async def _register(self, previous_broker_epoch: int) -> int:
        broker = self._broker
        directories = (directory.directory_id for directory in broker.manager.directories)
        event = RegisterBroker(
            broker.broker_id,
            ids.random_uuid(self._random),
            tuple(images.Endpoint(endpoint.name, endpoint.host, endpoint.port, 0) for endpoint in broker.endpoints),
            SUPPORTED_FEATURES,
            broker.config["broker.rack"] or None,
            tuple(sorted(ids.parse_uuid(directory) for directory in directories if directory)),
            previous_broker_epoch,
        )
        while True:
            try:
                return (await broker.controller.submit(event, _PATIENCE_S)).epoch
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise
                _log.warning("waiting for a controller to register with", problem=str(error))

    async def _until_unfenced(self) -> None:
        # What we wait for is known to the controller alone.
        while (await self._beat()).is_fenced and self._has_disk():  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_S)

    @property
    def is_answered(self) -> bool:
        """Whether the controller has lately taken us for alive; else others may have followed us as leaders."""
        return self._broker.clock.monotonic() - self._answered_at < _INTERVALS_UNHEARD * self._interval_s

    def _has_disk(self) -> bool:
        """Who has none left can do nothing for anybody until it is started again."""
        return not all(directory.is_offline for directory in self._broker.manager.directories)

    async def _beat(self, *, want_shut_down: bool = False) -> BrokerState:
        """One sign of life. It goes to the next controller if there is none; it is never too late for it."""
        broker = self._broker
        while True:
            event = BrokerHeartbeat(
                broker.broker_id,
                broker.broker_epoch,
                broker.metadata.image.index,
                want_fence=not self._has_disk(),
                want_shut_down=want_shut_down,
            )
            asked_at = broker.clock.monotonic()  # who is frozen while the answer comes does not know how old it is
            try:
                state = await broker.controller.submit(event, _PATIENCE_S)
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise
                _log.warning("no controller to tell that this broker is alive", problem=str(error))
            else:
                self._answered_at = asked_at
                return state
