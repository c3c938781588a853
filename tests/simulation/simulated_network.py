"""A network in memory, shaped like TCP: ordered bytes in bounded buffers, and everything else uncertain.

Bytes are taken in part, travel in segments cut anywhere, and arrive after delays drawn from the seed. A connection may
be reset, stalled, or lost without a word, so that one end waits for an answer that never comes. Between two machines
one way or both may be cut; what is sent meanwhile is sent again once the way is open, as TCP does. A killed process
leaves its ends to the kernel, which closes or resets them; a machine without power says nothing, until it is up again
and resets what still talks to it. Packets on their way belong to no process.
"""

from __future__ import annotations

import asyncio
import errno
import math
import random
from collections.abc import Callable
from contextvars import Context, copy_context
from itertools import count
from typing import TYPE_CHECKING

from tests.simulation.simulated_process import check_alive, current_process, process_of

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]

    from barnabas.core.seams import File, Socket

BUFFER_BYTES = (3_000, 30_000, 300_000)  # what one direction of a connection holds, by chance
LATENCY_S = 0.001
STALL = 300  # times the usual latency, which one packet in two hundred takes
WAKE_UP_S = 0.000_05
REBOOTED_S = 5.0
KNOCK_S = 0.2  # until a connection that was not answered is tried again

Watcher = Callable[[str, str, int], None]
"""Called with what happened, the name of the socket, and a number of bytes: to record it."""


def host_of(context: Context) -> str:
    """The machine that something runs on; the clients, which are no processes, share one without a name."""
    process = process_of(context)
    return "" if process is None else process.host


class _Readiness:
    """A call-back that runs, in the context of whoever asked for it, again and again while its socket is ready."""

    __slots__ = ("_callback", "_context", "_is_ready", "_network", "_scheduled")

    def __init__(self, network: SimulatedNetwork, is_ready: Callable[[], bool]) -> None:
        self._network = network
        self._is_ready = is_ready
        self._callback: Callable[[], None] | None = None
        self._context: Context | None = None
        self._scheduled = False

    def register(self, callback: Callable[[], None] | None) -> None:
        self._callback = callback
        self._context = copy_context()
        self.look()

    def look(self) -> None:
        if self._callback is not None and not self._scheduled and self._is_ready():
            self._scheduled = True
            delay = self._network.rng.random() * WAKE_UP_S
            self._network.loop.call_later(delay, self._fire, context=self._context)

    def _fire(self) -> None:
        self._scheduled = False
        if self._callback is not None and self._is_ready():
            self._callback()
            self.look()


class SimulatedSocket:
    """One end of a connection, a `Socket`."""

    peer: SimulatedSocket

    def __init__(self, network: SimulatedNetwork, name: str, context: Context) -> None:
        self.name = name
        self.closed = False
        self.readable = _Readiness(network, self._can_receive)
        self.writable = _Readiness(network, self._can_send)
        self._network = network
        self._process = process_of(context)
        self.host = host_of(context)
        self._held: list[tuple[Callable[..., None], tuple[object, ...]]] = []  # while the way to the peer is cut
        self._received = bytearray()
        self._capacity = network.rng.choice(BUFFER_BYTES)
        self._unread = 0  # bytes sent from here that the peer has not taken yet
        self._arrival = 0.0  # when the last thing sent from here arrives: nothing overtakes
        self._at_end = False  # the peer has closed
        self._is_reset = False
        self._is_lost = False  # nothing passes any more, either way, and no one is told
        if self._process is not None:
            self._process.own(self)

    # what the process calls

    def recv_into(self, buffer: memoryview) -> int:
        self._check_usable()
        if self._received:
            size = min(len(buffer), len(self._received))
            buffer[:size] = self._received[:size]
            del self._received[:size]
            self._tell_room(size)
            return size
        if self._is_reset:
            raise ConnectionResetError(errno.ECONNRESET, f"{self.name}: connection reset by peer")
        if self._at_end:
            return 0
        raise BlockingIOError(errno.EAGAIN, f"{self.name}: nothing to receive")

    def send(self, data: Buffer) -> int:
        size = self._room(memoryview(data).nbytes)
        rest = memoryview(data).cast("B")[:size]
        self._unread += size
        rng = self._network.rng
        while rest:
            length = len(rest) if rng.random() < 0.8 else rng.randint(1, len(rest))
            self._transmit(self.peer._deliver, bytes(rest[:length]))
            rest = rest[length:]
        return size

    send_more = send

    def sendfile(self, file: File, position: int, size: int) -> int:
        return self.send(file.read(position, self._room(size)))

    def close(self) -> None:
        if self.closed:
            return
        self._forget()
        # As Linux does: who closes without having read everything resets the connection.
        self._transmit(self.peer._hear_reset if self._received else self.peer._hear_end)

    def abandon(self, power_cut: bool) -> None:
        if power_cut:
            self._forget()
            self._is_lost = True
        else:
            self.close()

    # what the network does

    def lose(self) -> None:
        self._is_lost = True

    def delay(self, seconds: float) -> None:
        self._arrival = max(self._arrival, self._network.loop.time()) + seconds

    def send_held(self) -> None:
        """The way to the peer is open again."""
        held, self._held = self._held, []
        for effect, arguments in held:
            self._transmit(effect, *arguments)

    def _transmit(self, effect: Callable[..., None], *arguments: object) -> None:
        if self._is_lost:
            return
        if self._held or self._network.is_cut(self.host, self.peer.host):
            self._held.append((effect, arguments))
            return
        loop = self._network.loop
        not_before = math.nextafter(self._arrival, math.inf)  # what is due at one moment may run in any order
        self._arrival = max(not_before, loop.time() + self._network.draw_latency())
        loop.call_at(self._arrival, effect, *arguments, context=Context())

    def _deliver(self, segment: bytes) -> None:
        if self._is_lost:
            if self.closed and self._network.rng.random() < 0.5:  # no power; later there will be
                self._network.loop.call_later(REBOOTED_S, self.peer._hear_reset, context=Context())
        elif self.closed:
            self._transmit(self.peer._hear_reset)
        elif not self._is_reset:
            self._network.watch("deliver", self.name, len(segment))
            self._received += segment
            self.readable.look()

    def _tell_room(self, size: int) -> None:
        """The peer learns of room at its own time if it waits for it; else it makes no difference when."""
        if self.peer.is_full:
            self._transmit(self.peer._make_room, size)
        else:
            self.peer._unread -= size

    def _make_room(self, size: int) -> None:
        self._unread -= size
        self.writable.look()

    def _hear_end(self) -> None:
        if not self._is_lost and not self.closed:
            self._at_end = True
            self.readable.look()

    def _hear_reset(self) -> None:
        if not self.closed and not self._is_reset:
            self._network.watch("reset", self.name, len(self._received))
            self._is_reset = True
            if self._network.rng.random() < 0.5:
                self._received.clear()
            self.readable.look()
            self.writable.look()

    def _room(self, wanted: int) -> int:
        """How much of what is wanted can be sent now: sometimes less than would fit."""
        self._check_usable()
        if self._is_reset:
            raise ConnectionResetError(errno.ECONNRESET, f"{self.name}: connection reset by peer")
        room = self._capacity - self._unread
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, f"{self.name}: buffer full")
        size = min(room, wanted)
        return size if size < 2 or self._network.rng.random() < 0.9 else self._network.rng.randint(1, size)

    @property
    def is_full(self) -> bool:
        return self._unread >= self._capacity

    def _can_receive(self) -> bool:
        return not self.closed and (bool(self._received) or self._at_end or self._is_reset)

    def _can_send(self) -> bool:
        return not self.closed and (not self.is_full or self._is_reset)

    def _check_usable(self) -> None:
        check_alive()
        if self.closed:
            raise OSError(errno.EBADF, f"{self.name}: the socket is closed")

    def _forget(self) -> None:
        self.closed = True
        self.readable.register(None)
        self.writable.register(None)
        self._network.forget(self)
        if self._process is not None:
            self._process.disown(self)


class SimulatedListener:
    """A `Listener`."""

    def __init__(
        self, network: SimulatedNetwork, host: str, port: int, on_accept: Callable[[Socket, str], None]
    ) -> None:
        self.host = host
        self.port = port
        self.context = copy_context()
        self._network = network
        self._on_accept = on_accept
        self._closed = False
        self._process = current_process()
        if self._process is not None:
            self._process.own(self)

    def accept(self, socket: SimulatedSocket, peer: str) -> None:
        if self._closed:
            socket.close()
        else:
            self._on_accept(socket, peer)

    def close(self) -> None:
        self._closed = True
        self._network.unlisten(self)
        if self._process is not None:
            self._process.disown(self)

    def abandon(self, power_cut: bool) -> None:
        self.close()


class SimulatedNetwork:
    """A `Network`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rng: random.Random,
        watcher: Watcher | None = None,
        latency_s: float = LATENCY_S,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self._latency_s = latency_s
        self._watcher = watcher
        self._listeners: dict[tuple[str, int], SimulatedListener] = {}
        self._hosts: dict[tuple[str, int], str] = {}  # of those who have ever listened
        self._free_ports = count(32_768)
        self._numbers = count(1)
        self._ends: dict[SimulatedSocket, None] = {}
        self._silent: dict[SimulatedSocket, None] = {}  # closed at this end, but what was sent may still be held
        self._cuts: set[tuple[str, str]] = set()
        self._dark: set[str] = set()

    def listen(self, host: str, port: int, on_accept: Callable[[Socket, str], None]) -> SimulatedListener:
        check_alive()
        port = port or next(self._free_ports)
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        listener = self._listeners[host, port] = SimulatedListener(self, host, port, on_accept)
        self._hosts[host, port] = host_of(copy_context())
        return listener

    async def connect(self, host: str, port: int) -> SimulatedSocket:
        check_alive()
        here, there = host_of(copy_context()), self._hosts.get((host, port), "")
        await asyncio.sleep(self.draw_latency())
        while self.is_cut(here, there) or self.is_cut(there, here):  # noqa: ASYNC110  # as TCP does
            await asyncio.sleep(KNOCK_S)
        listener = self._listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refused the connection")
        number = next(self._numbers)
        near = SimulatedSocket(self, f"{number}-client", copy_context())
        far = SimulatedSocket(self, f"{number}-server", listener.context)
        near.peer, far.peer = far, near
        self._ends[near] = self._ends[far] = None
        self.watch("connect", near.name, 0)
        self.loop.call_later(self.draw_latency(), listener.accept, far, near.name, context=listener.context)
        return near

    def on_readable(self, socket: Socket, callback: Callable[[], None] | None) -> None:
        assert isinstance(socket, SimulatedSocket)
        socket.readable.register(callback)

    def on_writable(self, socket: Socket, callback: Callable[[], None] | None) -> None:
        assert isinstance(socket, SimulatedSocket)
        socket.writable.register(callback)

    def soon(self, callback: Callable[[], None]) -> None:
        self.loop.call_soon(callback)

    # faults

    def connections(self) -> list[SimulatedSocket]:
        """The ends that are open, in the order of their connections."""
        return list(self._ends)

    def reset(self, end: SimulatedSocket) -> None:
        """Break a connection; its two ends learn of it at their own time."""
        for side in (end, end.peer):
            self.loop.call_later(self.draw_latency(), side._hear_reset, context=Context())

    def lose(self, end: SimulatedSocket) -> None:
        """Let nothing pass a connection any more: both ends believe that the other is only slow."""
        end.lose()
        end.peer.lose()

    def stall(self, end: SimulatedSocket, seconds: float) -> None:
        """Hold up what is sent over a connection, both ways, for a while."""
        end.delay(seconds)
        end.peer.delay(seconds)

    def cut(self, here: str, there: str) -> None:
        """Let nothing more pass from one machine to another."""
        self._cuts.add((here, there))

    def mend(self, here: str, there: str) -> None:
        self._cuts.discard((here, there))
        self._send_held()

    def darken(self, host: str) -> None:
        """A machine has no power: nothing leaves it, and nothing that is sent to it arrives."""
        self._dark.add(host)

    def lighten(self, host: str) -> None:
        self._dark.discard(host)
        self._send_held()

    def _send_held(self) -> None:
        for end in (*self._ends, *self._silent):
            if not self.is_cut(end.host, end.peer.host):
                end.send_held()
                self._silent.pop(end, None)

    # for its sockets and listeners

    def is_cut(self, here: str, there: str) -> bool:
        return (here, there) in self._cuts or here in self._dark or there in self._dark

    def watch(self, event: str, name: str, size: int) -> None:
        if self._watcher is not None:
            self._watcher(event, name, size)

    def draw_latency(self) -> float:
        chance = self.rng.random()
        return chance * self._latency_s * (STALL if self.rng.random() < 0.005 else 1)

    def forget(self, end: SimulatedSocket) -> None:
        self._ends.pop(end, None)
        if self.is_cut(end.host, end.peer.host):
            self._silent[end] = None

    def unlisten(self, listener: SimulatedListener) -> None:
        if self._listeners.get((listener.host, listener.port)) is listener:
            del self._listeners[listener.host, listener.port]
