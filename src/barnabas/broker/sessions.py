"""Who is alive, as the controller knows it: brokers that send no heartbeat for too long are fenced.

A process that dies takes its connections with it, and a machine whose broker is dead refuses new ones; so the
controller keeps a connection to every broker, and where that breaks and cannot be opened again because it is refused,
it need not wait for the time-out. In the same way the others watch the controller: when it is dead, one of them takes
its place, and need not wait until the metadata store has found out.

When the heartbeats came is kept here alone, in no log: a new controller gives every broker a whole time-out, and so
does one that was asleep itself and cannot know what it has missed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.cluster.events import BrokerHeartbeat, BrokerState, FenceBroker
from barnabas.core import logs
from barnabas.core.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.cluster.image import Broker, Endpoint
    from barnabas.cluster.metadata_log import MetadataLog
    from barnabas.core.broker_config import BrokerConfig
    from barnabas.core.seams import Clock, Network, Socket

_CHECKS_PER_SESSION = 20
_RECONNECT_PAUSE_S = 0.1
_log = logs.get_logger(__name__)

Incarnation = tuple[int, int]
"""A broker's id and its epoch."""


class Sessions:
    """What was heard is forgotten when this broker is no longer the controller."""

    def __init__(self, metadata: MetadataLog, network: Network, clock: Clock, config: BrokerConfig) -> None:
        self._metadata = metadata
        self._network = network
        self._clock = clock
        self._timeout_s: float = config["broker.session.timeout.ms"] / 1000
        self._listener = config.inter_broker_listener
        self._controller_epoch = -1
        self._last_check = clock.monotonic()
        self._counted_since: dict[Incarnation, float] = {}  # the last sign of life, or when we began to wait for one
        self._heard: set[Incarnation] = set()
        self._watches: dict[Incarnation, asyncio.Task[None]] = {}
        self._fencing: dict[Incarnation, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        metadata.watch_controller(self._news.set)
        metadata.subscribe(lambda delta, image: self._news.set())

    async def heartbeat(self, event: BrokerHeartbeat) -> BrokerState:
        """Most of them change nothing, and are answered even while the metadata store is out of reach."""
        reply, must_write = self._metadata.preview(event)
        incarnation = (event.broker_id, event.broker_epoch)
        self._counted_since[incarnation] = self._clock.monotonic()
        self._heard.add(incarnation)
        return await self._metadata.submit(event) if must_write else reply

    async def run(self) -> None:
        pause_s = self._timeout_s / _CHECKS_PER_SESSION
        try:
            while True:
                self._check()
                try:
                    async with asyncio.timeout(pause_s):
                        await self._news.wait()
                except TimeoutError:
                    continue
                self._news.clear()
        finally:
            for task in (*self._watches.values(), *self._fencing.values()):
                task.cancel()

    def _check(self) -> None:
        now = self._clock.monotonic()
        was_asleep = now - self._last_check > self._timeout_s / 2
        self._last_check = now
        leads = self._metadata.is_controller
        if not leads or was_asleep or self._metadata.controller_epoch != self._controller_epoch:
            self._controller_epoch = self._metadata.controller_epoch
            self._counted_since.clear()
            self._heard.clear()
        alive = {(broker.id, broker.epoch): broker for broker in self._brokers()}
        for gone in self._watches.keys() - alive.keys():
            self._watches.pop(gone).cancel()
        for gone in self._counted_since.keys() - alive.keys():
            del self._counted_since[gone]
            self._heard.discard(gone)
        for incarnation, broker in alive.items():
            silent_s = now - self._counted_since.setdefault(incarnation, now)
            if leads and silent_s > self._timeout_s:
                self._fence(incarnation, f"no heartbeat for {silent_s:.1f} s")
            endpoint = broker.endpoint(self._listener)
            if endpoint is not None and incarnation not in self._watches and broker.id != self._metadata.broker_id:
                self._watches[incarnation] = asyncio.create_task(self._watch(incarnation, endpoint))

    def _brokers(self) -> list[Broker]:
        """Whose life matters here: of all that serve to the controller, and of the controller to the others."""
        metadata = self._metadata
        return [
            broker
            for broker in metadata.image.brokers.values()
            if (not broker.fenced if metadata.is_controller else broker.id == metadata.controller_id)
        ]

    def _fence(self, incarnation: Incarnation, reason: str) -> None:
        if incarnation not in self._fencing:
            task = self._fencing[incarnation] = asyncio.create_task(self._submit_fence(incarnation, reason))
            task.add_done_callback(lambda _: self._fencing.pop(incarnation))

    async def _submit_fence(self, incarnation: Incarnation, reason: str) -> None:
        broker_id, epoch = incarnation
        _log.warning("broker is fenced", broker=broker_id, reason=reason)
        try:
            await self._metadata.submit(FenceBroker(broker_id, epoch))
        except KafkaError as error:
            _log.info("broker is not fenced", broker=broker_id, reason=str(error))

    # Connections

    async def _watch(self, incarnation: Incarnation, endpoint: Endpoint) -> None:
        was_connected = False
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    socket = await self._network.connect(endpoint.host, endpoint.port)
            except ConnectionRefusedError:
                self._refused(incarnation, endpoint, was_connected)
            except OSError as error:
                _log.debug("broker not reached", broker=incarnation[0], problem=str(error))
            else:
                was_connected = True
                since = self._clock.monotonic()
                await self._end_of(socket)
                if self._clock.monotonic() - since > _RECONNECT_PAUSE_S:
                    continue  # one that closes every connection at once has too many
            await asyncio.sleep(_RECONNECT_PAUSE_S)

    def _refused(self, incarnation: Incarnation, endpoint: Endpoint, was_connected: bool) -> None:
        if not self._metadata.is_controller:
            if was_connected:
                self._metadata.depose(incarnation[0])
        # Who sends heartbeats, but never could be reached from here, is alive all the same.
        elif was_connected or incarnation not in self._heard:
            self._fence(incarnation, f"{endpoint.host}:{endpoint.port} refuses connections")

    async def _end_of(self, socket: Socket) -> None:
        """Return when the peer ends a connection on which nothing is ever said."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        scratch = memoryview(bytearray(1))

        def readable() -> None:
            try:
                if socket.recv_into(scratch):
                    return
            except BlockingIOError:
                return
            except OSError:
                pass
            if not ended.done():
                ended.set_result(None)

        self._network.on_readable(socket, readable)
        try:
            await ended
        finally:
            self._network.on_readable(socket, None)
            socket.close()
