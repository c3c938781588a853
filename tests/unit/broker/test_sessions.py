"""Whom the controller takes for alive, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random

import pytest

from barnabas.broker.sessions import Sessions
from barnabas.cluster.brokers import SUPPORTED_FEATURES
from barnabas.cluster.events import BrokerHeartbeat, RegisterBroker
from barnabas.cluster.image import Endpoint
from barnabas.cluster.metadata_log import MetadataLog
from barnabas.coordination.memory import MemoryMetadata, MemoryStore
from barnabas.coordination.store import Refusal, Refused
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.seams import Socket
from tests.simulation.simulated_network import SimulatedListener, SimulatedNetwork
from tests.simulation.virtual_loop import VirtualClock, VirtualLoop

HOST, PORT = "127.0.0.1", 9092
SESSION_S = 9.0
OTHER = 2


class World:
    """A controller, and another broker that is nothing but a listener and the heartbeats that a test sends for it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.clock = VirtualClock(loop)
        self.network = SimulatedNetwork(loop, Random(1))
        self.store = MemoryMetadata()
        self.epoch = -1
        self.sockets: list[object] = []

    async def start(self, broker_id: int = 1) -> None:
        store = MemoryStore(self.store, broker_id)
        await store.open()
        self.session = store
        config = BrokerConfig({})
        self.log = MetadataLog(store, self.clock, Random(2), config)
        self.sessions = Sessions(self.log, self.network, self.clock, config)
        await self.log.start()
        self.task = asyncio.create_task(self.sessions.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.log.stop()
        await self.session.close()

    def listen(self) -> SimulatedListener:
        return self.network.listen(HOST, PORT, lambda socket, peer: self.sockets.append(socket))

    async def enter(self) -> None:
        endpoint = Endpoint("PLAINTEXT", HOST, PORT, 0)
        event = RegisterBroker(OTHER, bytes(16), (endpoint,), SUPPORTED_FEATURES)
        self.epoch = (await self.log.submit(event)).epoch
        await self.beat()

    async def beat(self) -> None:
        await self.sessions.heartbeat(BrokerHeartbeat(OTHER, self.epoch, self.log.image.index))

    def lives(self) -> bool:
        return self.log.image.is_alive(OTHER)

    def leads(self) -> bool:
        return self.log.is_controller

    def drop_connections(self) -> None:
        for end in self.network.connections():
            self.network.reset(end)


def run(story: Callable[[World], Coroutine[None, None, None]]) -> None:
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    world = World(loop)

    async def whole() -> None:
        await world.start()
        await story(world)
        await world.stop()

    try:
        loop.run_until_complete(whole())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_who_sends_heartbeats_stays_alive() -> None:
    async def story(world: World) -> None:
        world.listen()
        await world.enter()
        for _ in range(20):
            await asyncio.sleep(SESSION_S - 1)
            await world.beat()
            assert world.lives()

    run(story)


def test_who_is_silent_is_fenced_after_the_time_out_and_not_before() -> None:
    async def story(world: World) -> None:
        world.listen()
        await world.enter()
        await asyncio.sleep(SESSION_S - 0.1)
        assert world.lives()
        await asyncio.sleep(1)
        assert not world.lives()
        await world.beat()
        assert world.lives()

    run(story)


def test_who_is_gone_with_its_connections_is_fenced_at_once() -> None:
    async def story(world: World) -> None:
        listener = world.listen()
        await world.enter()
        await asyncio.sleep(1)
        listener.close()
        world.drop_connections()
        await asyncio.sleep(1)
        assert not world.lives()

    run(story)


def test_a_connection_that_breaks_is_no_death_while_new_ones_are_taken() -> None:
    async def story(world: World) -> None:
        world.listen()
        await world.enter()
        for _ in range(5):
            await asyncio.sleep(0.5)
            world.drop_connections()
        await asyncio.sleep(1)
        assert world.lives()

    run(story)


def test_who_closes_every_connection_at_once_is_not_asked_without_end() -> None:
    """As one does that has as many connections as it takes."""

    async def story(world: World) -> None:
        def close(socket: Socket, peer: str) -> None:
            world.sockets.append(socket)
            socket.close()

        world.network.listen(HOST, PORT, close)
        await world.enter()
        await asyncio.sleep(2)
        assert 5 < len(world.sockets) < 30
        assert world.lives()

    run(story)


def test_who_could_never_be_reached_but_sends_heartbeats_is_alive() -> None:
    async def story(world: World) -> None:
        await world.enter()
        for _ in range(5):
            await asyncio.sleep(1)
            assert world.lives()
            await world.beat()

    run(story)


def test_a_new_controller_gives_everybody_a_whole_time_out() -> None:
    async def story(world: World) -> None:
        world.listen()
        await world.enter()
        await asyncio.sleep(SESSION_S - 1)
        await world.stop()
        await world.start(3)
        await asyncio.sleep(SESSION_S - 1)
        assert world.lives()
        await asyncio.sleep(2)
        assert not world.lives()

    run(story)


def test_a_controller_that_was_asleep_blames_nobody() -> None:
    async def story(world: World) -> None:
        world.listen()
        await world.enter()
        await asyncio.sleep(1)
        world.clock.monotonic = lambda: world.loop.time() + 60  # type: ignore[method-assign]
        await asyncio.sleep(SESSION_S - 1)
        assert world.lives()
        await asyncio.sleep(2)
        assert not world.lives()

    run(story)


def test_a_heartbeat_that_changes_nothing_does_not_wait_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.listen()
        await world.enter()
        with monkeypatch.context() as patch:
            patch.setattr(world.log, "submit", None)
            await world.beat()

    run(story)


def test_a_heartbeat_of_an_earlier_process_keeps_nobody_alive() -> None:
    async def story(world: World) -> None:
        await world.enter()
        with pytest.raises(KafkaError) as caught:
            await world.sessions.heartbeat(BrokerHeartbeat(OTHER, world.epoch - 1, 100))
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH

    run(story)


def test_a_controller_whose_process_is_dead_is_replaced_before_its_session_with_the_store_ends() -> None:
    async def story(world: World) -> None:
        listener = world.listen()
        await world.enter()
        other = MemoryStore(world.store, OTHER)
        await other.open()
        assert await other.campaign(1, gone=1) == 2
        await asyncio.sleep(1)
        assert not world.leads()
        world.drop_connections()
        await asyncio.sleep(1)
        assert not world.leads(), "it can be reached"
        listener.close()
        world.drop_connections()
        await asyncio.sleep(1)
        assert world.leads()
        assert await other.append(2, world.log.image.index, b"late", [b"record"]) == Refused(Refusal.STALE_EPOCH)

    run(story)
