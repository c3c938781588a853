from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest

from barnabas.core.seams import Network, Socket
from tests.simulation.simulated_disk import SimulatedDisk
from tests.simulation.simulated_network import SimulatedNetwork, SimulatedSocket
from tests.simulation.simulated_process import Process
from tests.simulation.virtual_loop import VirtualLoop

HOST, PORT = "127.0.0.1", 9092
MESSAGE = random.Random(0).randbytes(300_000)


async def send_all(network: Network, socket: Socket, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[socket.send(rest) :]
        except BlockingIOError:
            await ready(network.on_writable, socket)


async def receive(network: Network, socket: Socket) -> bytes:
    """Something, or nothing at the end."""
    buffer = bytearray(1000)
    while True:
        try:
            return bytes(buffer[: socket.recv_into(memoryview(buffer))])
        except BlockingIOError:
            await ready(network.on_readable, socket)


async def ready(register: Callable[[Socket, Callable[[], None] | None], None], socket: Socket) -> None:
    event = asyncio.Event()
    register(socket, event.set)
    await event.wait()
    register(socket, None)


async def echo(network: Network, socket: Socket) -> None:
    while data := await receive(network, socket):
        await send_all(network, socket, data)
    socket.close()


class World:
    """A network with an echo server on it, which counts as a process of its own."""

    def __init__(self, seed: int = 0) -> None:
        self.trace: list[tuple[float, str, str, int]] = []
        self.loop = VirtualLoop()
        self.network = SimulatedNetwork(self.loop, random.Random(seed), self._watch)
        self.server = Process(self.loop, "server", "machine")
        self.accepted: list[Socket] = []
        self._echoes: list[asyncio.Task[None]] = []  # a loop's own hold on its tasks is weak
        self.server.call(self.network.listen, HOST, PORT, self._accept)

    def _watch(self, event: str, name: str, size: int) -> None:
        self.trace.append((self.loop.time(), event, name, size))

    def _accept(self, socket: Socket, peer: str) -> None:
        self.accepted.append(socket)
        self._echoes.append(asyncio.ensure_future(echo(self.network, socket)))

    def run(self, scenario: Callable[[World], Awaitable[None]]) -> None:
        self.loop.run_until_complete(scenario(self))
        self.loop.close()

    async def connect(self) -> SimulatedSocket:
        return await self.network.connect(HOST, PORT)


async def exchange(world: World) -> None:
    socket = await world.connect()
    sending = asyncio.ensure_future(send_all(world.network, socket, MESSAGE))
    answer = b""
    while len(answer) < len(MESSAGE):
        answer += await receive(world.network, socket)
    await sending
    assert answer == MESSAGE
    socket.close()


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_and_whole_through_any_segmentation(seed: int) -> None:
    world = World(seed)
    world.run(exchange)
    assert len(world.trace) > 5


def test_the_same_seed_gives_the_same_traffic_and_another_gives_another() -> None:
    traces = []
    for seed in (1, 1, 2):
        world = World(seed)
        world.run(exchange)
        traces.append(world.trace)
    assert traces[0] == traces[1] != traces[2]


def test_a_full_buffer_blocks_until_the_peer_reads() -> None:
    async def scenario(world: World) -> None:
        world.network.listen(HOST, 1, lambda socket, peer: world.accepted.append(socket))
        socket = await world.network.connect(HOST, 1)
        with contextlib.suppress(BlockingIOError):
            while True:
                socket.send(MESSAGE)
        await asyncio.sleep(1)
        with pytest.raises(BlockingIOError):
            socket.send(MESSAGE)
        (far,) = world.accepted
        assert len(await receive(world.network, far)) == 1000
        await ready(world.network.on_writable, socket)
        assert socket.send(MESSAGE) > 0
        with pytest.raises(BlockingIOError):
            socket.recv_into(memoryview(bytearray(1)))

    World().run(scenario)


def test_a_call_back_is_repeated_while_its_socket_is_ready_and_until_it_is_taken_away() -> None:
    async def scenario(world: World) -> None:
        socket = await world.connect()
        await send_all(world.network, socket, b"abc")
        calls: list[bytes] = []

        def take_one() -> None:
            buffer = bytearray(1)
            socket.recv_into(memoryview(buffer))
            calls.append(bytes(buffer))
            if len(calls) == 2:
                world.network.on_readable(socket, None)

        world.network.on_readable(socket, take_one)
        await asyncio.sleep(5)
        assert calls == [b"a", b"b"]
        assert await receive(world.network, socket) == b"c"

    World().run(scenario)


def test_a_range_of_a_file_is_sent() -> None:
    async def scenario(world: World) -> None:
        disk = SimulatedDisk(random.Random(0))
        file = disk.open("/file", create=True)
        file.append(b"0123456789")
        socket = await world.connect()
        position = 2
        while position < 8:
            position += socket.sendfile(file, position, 8 - position)
        answer = b""
        while len(answer) < 6:
            answer += await receive(world.network, socket)
        assert answer == b"234567"

    World().run(scenario)


def test_where_nobody_listens_a_connection_is_refused() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ConnectionRefusedError):
            await world.network.connect(HOST, PORT + 1)
        with pytest.raises(OSError, match="in use"):
            world.network.listen(HOST, PORT, lambda socket, peer: None)
        listener = world.network.listen(HOST, 0, lambda socket, peer: None)
        await world.network.connect(HOST, listener.port)
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await world.network.connect(HOST, listener.port)

    World().run(scenario)


def test_the_peer_of_a_closed_end_reads_to_the_end_and_is_then_reset() -> None:
    async def scenario(world: World) -> None:
        world.network.listen(HOST, 1, lambda socket, peer: world.accepted.append(socket))
        socket = await world.network.connect(HOST, 1)
        await send_all(world.network, socket, b"last words")
        socket.close()
        with pytest.raises(OSError, match="closed"):
            socket.send(b"more")
        await asyncio.sleep(1)
        (far,) = world.accepted
        received = b""
        while part := await receive(world.network, far):
            received += part
        assert received == b"last words"
        far.send(b"to nobody")
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            far.send(b"again")

    World().run(scenario)


def test_both_ends_hear_of_a_reset() -> None:
    async def scenario(world: World) -> None:
        world.network.listen(HOST, 1, lambda socket, peer: world.accepted.append(socket))
        socket = await world.network.connect(HOST, 1)
        await asyncio.sleep(1)
        world.network.reset(socket)
        with pytest.raises(ConnectionResetError):
            await receive(world.network, socket)
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            world.accepted[0].send(b"x")

    World().run(scenario)


def test_a_lost_connection_says_nothing() -> None:
    async def scenario(world: World) -> None:
        socket = await world.connect()
        world.network.lose(socket)
        socket.send(b"hello?")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receive(world.network, socket), 3600)

    World().run(scenario)


def test_a_stalled_connection_goes_on_later() -> None:
    async def scenario(world: World) -> None:
        socket = await world.connect()
        world.network.stall(socket, 60)
        socket.send(b"x")
        assert await receive(world.network, socket) == b"x"
        assert world.loop.time() > 60

    World().run(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_process_leaves_a_closed_connection_and_a_free_port(seed: int) -> None:
    async def scenario(world: World) -> None:
        socket = await world.connect()
        await send_all(world.network, socket, b"x")
        await receive(world.network, socket)
        world.server.kill()
        assert await receive(world.network, socket) == b""
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        world.network.listen(HOST, PORT, lambda socket, peer: None)
        await world.connect()

    World(seed).run(scenario)


def test_a_machine_without_power_is_silent_until_it_is_up_again() -> None:
    outcomes = set()

    async def scenario(world: World) -> None:
        socket = await world.connect()
        await send_all(world.network, socket, b"x")
        await receive(world.network, socket)
        world.server.kill(power_cut=True)
        socket.send(b"anybody there?")
        try:
            await asyncio.wait_for(receive(world.network, socket), 60)
        except (TimeoutError, ConnectionResetError) as error:
            outcomes.add(type(error))

    for seed in range(20):
        World(seed).run(scenario)
    assert outcomes == {TimeoutError, ConnectionResetError}


CLIENTS, MACHINE = "", "machine"


@pytest.mark.parametrize("way", [(CLIENTS, MACHINE), (MACHINE, CLIENTS)])
def test_what_is_sent_over_a_way_that_is_cut_arrives_once_it_is_mended(way: tuple[str, str]) -> None:
    async def scenario(world: World) -> None:
        socket = await world.connect()
        world.network.cut(*way)
        socket.send(b"one")
        socket.send(b"two")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receive(world.network, socket), 60)
        world.network.mend(*way)
        answer = b""
        while len(answer) < 6:
            answer += await receive(world.network, socket)
        assert answer == b"onetwo"

    World().run(scenario)


def test_the_end_of_a_connection_over_a_way_that_is_cut_is_heard_once_it_is_mended() -> None:
    async def scenario(world: World) -> None:
        socket = await world.connect()
        world.network.cut(MACHINE, CLIENTS)
        world.server.kill()
        await asyncio.sleep(60)
        with pytest.raises(BlockingIOError):
            socket.recv_into(memoryview(bytearray(1)))
        world.network.mend(MACHINE, CLIENTS)
        assert await receive(world.network, socket) == b""

    World().run(scenario)


@pytest.mark.parametrize("way", [(CLIENTS, MACHINE), (MACHINE, CLIENTS)])
def test_a_connection_over_a_way_that_is_cut_is_made_once_it_is_mended(way: tuple[str, str]) -> None:
    async def scenario(world: World) -> None:
        world.network.cut(*way)
        world.loop.call_later(10, world.network.mend, *way)
        await exchange(world)
        assert world.loop.time() >= 10

    World().run(scenario)


def test_a_machine_without_power_is_silent_and_refuses_connections_only_when_it_is_up_again() -> None:
    async def scenario(world: World) -> None:
        world.server.kill(power_cut=True)
        world.network.darken(MACHINE)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(world.connect(), 60)
        world.network.lighten(MACHINE)
        with pytest.raises(ConnectionRefusedError):
            await world.connect()

    World().run(scenario)
