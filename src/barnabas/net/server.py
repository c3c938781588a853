"""The server's end of connections: accept, cut into frames, reply in order, never hold more than is bounded.

Kafka's clients expect replies in the order of their requests. Every request takes its place in the connection's queue;
one that must wait (a long poll, an acknowledgement) keeps its place while later ones are already worked on.

A connection is not read while it has a reply that its peer does not take, too many requests under way, or an exclusive
request (one whose effects a pipelined request may rely on). So a peer that never reads costs one reply and what lay in
the receive buffer. Frames too large for the shared receive buffer draw on one budget; over it, all but the oldest such
connection wait.

Replies wake requests of other connections, whose replies wake others: what a connection had to put off is taken up only
after the request at hand has been replied to, never within it.

Small replies leave together at the end of the loop's turn. A peer that waits for several is then woken once, and the
broker, which pays for waking it, does so once: that is half of the system time of small requests. They leave earlier
where one connection had many requests served, or many connections wait: nobody is to wait for long work of others.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.wire.frames import FrameError, FrameSplitter

if TYPE_CHECKING:
    from barnabas.core.seams import Clock, File, Listener, Network, Socket

_LENGTH = struct.Struct(">i")
_write_length = _LENGTH.pack_into
_SCRATCH_BYTES = 64 * 1024
_COALESCE_BYTES = 32 * 1024  # parts below this are joined; larger ones are sent from where they lie
_SMALL_BYTES = 4 * 1024  # a reply below this waits for the end of the turn
_MAX_UNSENT = 32  # connections with small replies that wait
_BYTES_PER_TURN = 2 << 20  # then other connections get their turn
_REQUESTS_PER_TURN = 32
_MAX_REQUESTS_UNDER_WAY = 32
_IN_MEMORY = (bytes, bytearray, memoryview)
_NOTHING = memoryview(b"")


class FileRange(Protocol):
    """A part of a reply that lies in a file and goes out by sendfile."""

    @property
    def file(self) -> File: ...
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def is_intact(self) -> bool:
        """Whether the file still holds what it held when the reply was made; a truncation ends that."""
        ...

    def __len__(self) -> int: ...


Part = bytes | bytearray | memoryview | FileRange

Reply = Sequence[Part]
"""The parts of a reply. The first is a bytearray that begins with four bytes of room for the frame's length."""


@dataclass(slots=True)
class Traffic:
    """What went through a server; plain counters that the metrics read."""

    bytes_in: int = 0
    copied_bytes_out: int = 0
    sendfile_bytes_out: int = 0
    accepted: int = 0
    refused: int = 0
    closed: dict[str, int] | None = None

    def count_close(self, reason: str) -> None:
        closed = self.closed = self.closed or {}
        closed[reason] = closed.get(reason, 0) + 1


@dataclass(frozen=True, slots=True)
class Limits:
    max_frame_bytes: int = 104_857_600
    max_held_bytes: int = 268_435_456
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    max_idle_seconds: float = 600.0


class Slot:
    """A request's place in the queue of its connection's replies."""

    __slots__ = ("_connection", "exclusive", "on_abandoned", "parts")

    def __init__(self, connection: Connection, exclusive: bool) -> None:
        self._connection = connection
        self.exclusive = exclusive
        self.parts: Reply | None = None
        self.on_abandoned: Callable[[], object] | None = None
        """Called if the connection ends before the reply: nobody waits for it any more."""

    def reply(self, parts: Reply) -> None:
        """Give the reply, now or later; an empty one means that the peer expects none."""
        self.parts = parts
        self._connection._advance()

    def close_connection(self, reason: str) -> None:
        self._connection.close(reason)


class _Rest:
    """What is left of a file range after a part of it has been sent."""

    __slots__ = ("_whole", "file", "position", "size")

    def __init__(self, whole: FileRange, position: int, size: int) -> None:
        self._whole, self.file, self.position, self.size = whole, whole.file, position, size

    @property
    def is_intact(self) -> bool:
        return self._whole.is_intact

    def __len__(self) -> int:
        return self.size


class Connection:
    """One accepted connection. `listener` names where it came in, `state` is the dispatcher's to use."""

    __slots__ = (
        "_backlog", "_last_progress", "_out", "_reading", "_server", "_slots", "_small", "_socket", "_splitter",
        "_writing", "closed", "listener", "peer", "state",
    )  # fmt: skip

    def __init__(self, server: Server, socket: Socket, peer: str, listener: str) -> None:
        self._server = server
        self._socket = socket
        self.peer = peer
        self.listener = listener
        self.state: Any = None
        self.closed = False
        self._splitter = FrameSplitter(server.scratch, server.limits.max_frame_bytes)
        self._slots: deque[Slot] = deque()
        self._small: list[bytes | bytearray] = []  # replies that leave together at the end of the turn
        self._out: deque[Part] = deque()  # what the peer did not take yet
        self._backlog = _NOTHING  # frames, with their lengths, that came while this connection was busy
        self._reading = True
        self._writing = False  # whether we wait for the socket to be writable
        self._last_progress = server.monotonic()
        server.network.on_readable(socket, self._readable)

    # requests

    def _readable(self) -> None:
        # uvloop tells of a reset once, and bytes that came before the reset hide it: so as long as something is held
        # for this connection, it is read until there is no more.
        server, splitter = self._server, self._splitter
        if self._slots and self._busy():
            self._update_reading()  # only now: a peer that waits for its reply, as most do, costs no system call
            return
        budget = _BYTES_PER_TURN
        while budget > 0:
            try:
                count = self._socket.recv_into(splitter.writable())
            except BlockingIOError:
                if splitter.held_bytes:
                    server.account(self, splitter.held_bytes)  # its buffer may have grown, if in vain
                return
            except OSError:
                self._break_off("reset")
                return
            if not count:
                self.close("end of stream")
                return
            budget -= count
            server.traffic.bytes_in += count
            try:
                frames = splitter.received(count)
            except FrameError as error:
                server.on_bad_frame(self, error)
                self.close("bad frame")
                return
            held_bytes = splitter.held_bytes
            if held_bytes or self in server.holders:
                server.account(self, held_bytes)
            if frames:
                self._last_progress = server.monotonic()
                self._serve(frames)
            if not self._reading or not (held_bytes or self._slots) or self._busy():
                return

    def _serve(self, frames: list[memoryview]) -> None:
        server = self._server
        server.is_serving = True
        try:
            server.serve(self, frames[0])
            for index in range(1, len(frames)):
                if index == _REQUESTS_PER_TURN or self._busy():
                    self._put_off(frames[index:])
                    break
                server.serve(self, frames[index])
        finally:
            server.is_serving = False
        if len(frames) > 1:
            server.send_unsent()
        if self._out or self._backlog:
            self._update_reading()
        if server.ready:
            server.take_up_ready()

    def _put_off(self, frames: list[memoryview]) -> None:
        """Keep frames for later. They lie in the shared buffer, so it is a copy: one, or small frames would swell."""
        if not self.closed:
            copy = bytearray().join([part for frame in frames for part in (_LENGTH.pack(len(frame)), frame)])
            self._backlog = memoryview(copy)
            self._await_turn()

    def _await_turn(self) -> None:
        """Go on after the other connections: once the socket can be written to, which it mostly can at once."""
        if not self._writing and not self._busy():
            self._writing = True
            self._server.network.on_writable(self._socket, self._writable)

    def _busy(self) -> bool:
        slots = self._slots
        return bool(
            self.closed or self._out or (slots and (slots[-1].exclusive or len(slots) >= _MAX_REQUESTS_UNDER_WAY))
        )

    def take_up(self) -> None:
        """Go on with what was put off, then read again."""
        for _ in range(_REQUESTS_PER_TURN):
            if not self._backlog or self._busy():
                break
            end = 4 + _LENGTH.unpack_from(self._backlog)[0]
            frame, self._backlog = self._backlog[4:end], self._backlog[end:]
            self._server.serve(self, frame)
        if self._backlog:
            self._server.send_unsent()
            self._await_turn()
        self._update_reading()

    def _update_reading(self) -> None:
        if self.closed:
            return
        wanted = not (self._backlog or self._busy() or self in self._server.waiting)
        if wanted != self._reading:
            self._reading = wanted
            self._server.network.on_readable(self._socket, self._readable if wanted else None)

    # replies

    def reply(self, parts: Reply) -> None:
        """Reply to the request at hand at once."""
        if self._slots:
            slot = Slot(self, False)
            slot.parts = parts
            self._slots.append(slot)
        elif not self.closed:
            self._send(parts)

    def defer(self, *, exclusive: bool = False) -> Slot:
        """Take the place of the request at hand, whose reply comes later."""
        slot = Slot(self, exclusive)
        self._slots.append(slot)
        return slot

    def _advance(self) -> None:
        slots = self._slots
        while slots and not self.closed and (parts := slots[0].parts) is not None:
            slots.popleft()
            if parts:
                self._send(parts)
        if not self.closed and (self._backlog or self._out or not self._reading):
            self._server.take_up(self)

    def _send(self, parts: Reply) -> None:
        head: Any = parts[0]
        size = len(head)
        if size < _SMALL_BYTES and len(parts) == 1 and not self._out:
            _write_length(head, 0, size - 4)
            self._small.append(head)
            if len(self._small) == 1:
                self._server.send_soon(self)
            return
        _write_length(head, 0, sum(map(len, parts)) - 4)
        self.send_small()
        self._queue(parts)
        if not self._writing:
            self._flush()

    def send_small(self) -> None:
        """Send the small replies that have gathered."""
        small = self._small
        if not small:
            return
        data = small[0] if len(small) == 1 else b"".join(small)
        self._small = []
        if self._out:
            self._out.append(data)
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._break_off("reset")
            return
        self._server.traffic.copied_bytes_out += sent
        if sent < len(data):
            self._out.append(memoryview(data)[sent:])
            self._update_writing()
            self._update_reading()

    def _queue(self, parts: Reply) -> None:
        small: list[Any] = []
        for part in parts:
            if isinstance(part, _IN_MEMORY) and len(part) < _COALESCE_BYTES:
                small.append(part)
            elif len(part):
                if small:
                    self._out.append(b"".join(small))
                    small = []
                self._out.append(part)
        if small:
            self._out.append(b"".join(small))

    def _flush(self) -> None:
        out, traffic = self._out, self._server.traffic
        budget = _BYTES_PER_TURN
        try:
            while out and budget > 0:
                part = out[0]
                if isinstance(part, _IN_MEMORY):
                    sent = self._socket.send_more(part) if len(out) > 1 else self._socket.send(part)
                    traffic.copied_bytes_out += sent
                    rest: Part = memoryview(part)[sent:]
                else:
                    sent = self._socket.sendfile(part.file, part.position, part.size) if part.is_intact else 0
                    if not sent:
                        # The file was cut below what the reply's length already promised.
                        self._break_off("truncated under a reader")
                        return
                    traffic.sendfile_bytes_out += sent
                    rest = _Rest(part, part.position + sent, part.size - sent)
                budget -= sent
                if len(rest):
                    out[0] = rest
                else:
                    out.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._break_off("reset")
            return
        self._update_writing()

    def _update_writing(self) -> None:
        wanted = bool(self._out)
        if wanted != self._writing:
            self._writing = wanted
            self._server.network.on_writable(self._socket, self._writable if wanted else None)

    def _writable(self) -> None:
        self._last_progress = self._server.monotonic()
        self._flush()
        if not self._out and not self.closed:
            self._server.take_up(self)

    # the end

    def is_idle_since(self, deadline: float) -> bool:
        """Nothing whole came or went since; a request that we owe a reply to does not count as the peer's idleness."""
        return self._last_progress < deadline and (not self._slots or bool(self._out))

    def close(self, reason: str) -> None:
        """End the connection; replies that wait for the end of the turn still leave."""
        self.send_small()
        self._break_off(reason)

    def _break_off(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        server = self._server
        if self._reading:
            self._reading = False
            server.network.on_readable(self._socket, None)
        if self._writing:
            server.network.on_writable(self._socket, None)
        self._small.clear()
        self._out.clear()
        abandoned, self._slots = self._slots, deque()
        self._backlog = _NOTHING
        self._socket.close()
        server.forget(self, reason)
        for slot in abandoned:
            if slot.parts is None and slot.on_abandoned is not None:
                slot.on_abandoned()


class Server:
    """Listeners and their connections. `serve(connection, frame)` must reply to, or defer, every frame that wants one.

    A frame is valid until `serve` returns: what must live longer is copied.
    """

    def __init__(
        self,
        network: Network,
        clock: Clock,
        serve: Callable[[Connection, memoryview], None],
        on_bad_frame: Callable[[Connection, FrameError], None],
        limits: Limits,
    ) -> None:
        self.network = network
        self.monotonic = clock.monotonic
        self.serve = serve
        self.on_bad_frame = on_bad_frame
        self.limits = limits
        self.traffic = Traffic()
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.connections: dict[Connection, None] = {}
        self.holders: dict[Connection, int] = {}  # connections with a partial frame, oldest first
        self.waiting: dict[Connection, None] = {}  # those that are not read until the budget allows
        self.is_serving = False
        self.ready: deque[Connection] = deque()  # those that may go on with what they put off
        self._unsent: list[Connection] = []  # those with small replies that wait for the end of the turn
        self._held_bytes = 0
        self._per_ip: dict[str, int] = {}
        self._listeners: list[Listener] = []
        self._early: list[tuple[Socket, str, str]] | None = []  # accepted before `start_serving`

    def start_serving(self) -> None:
        """Read from connections from now on; those that came early are kept until then."""
        early, self._early = self._early or [], None
        for socket, peer, listener in early:
            self._accept(socket, peer, listener)

    def listen(self, name: str, host: str, port: int) -> Listener:
        listener = self.network.listen(host, port, lambda socket, peer: self._accept(socket, peer, name))
        self._listeners.append(listener)
        return listener

    def _accept(self, socket: Socket, peer: str, listener: str) -> None:
        if self._early is not None:
            self._early.append((socket, peer, listener))
            return
        ip = peer.rpartition(":")[0]
        if (
            len(self.connections) >= self.limits.max_connections
            or self._per_ip.get(ip, 0) >= self.limits.max_connections_per_ip
        ):
            self.traffic.refused += 1
            socket.close()
            return
        self.traffic.accepted += 1
        self._per_ip[ip] = self._per_ip.get(ip, 0) + 1
        self.connections[Connection(self, socket, peer, listener)] = None

    def take_up(self, connection: Connection) -> None:
        """Let a connection go on, at once or, while a request is being served, right after it."""
        self.ready.append(connection)
        if not self.is_serving:
            self.take_up_ready()

    def take_up_ready(self) -> None:
        self.is_serving = True
        try:
            while self.ready:
                self.ready.popleft().take_up()
        finally:
            self.is_serving = False

    def send_soon(self, connection: Connection) -> None:
        """Let a connection's small replies leave at the end of the loop's turn, or when many have gathered."""
        unsent = self._unsent
        if not unsent:
            self.network.soon(self.send_unsent)
        unsent.append(connection)
        if len(unsent) >= _MAX_UNSENT:
            self.send_unsent()

    def send_unsent(self) -> None:
        """Let the small replies leave that have gathered."""
        unsent, self._unsent = self._unsent, []
        for connection in unsent:
            connection.send_small()

    def account(self, connection: Connection, held_bytes: int) -> None:
        """Note what a partial frame holds; over the budget only the oldest goes on, so that one always does."""
        was_over = self._held_bytes > self.limits.max_held_bytes
        self._held_bytes += held_bytes - self.holders.get(connection, 0)
        if held_bytes:
            self.holders[connection] = held_bytes
        else:
            self.holders.pop(connection, None)
        if self._held_bytes <= self.limits.max_held_bytes:
            self._wake(list(self.waiting))
            return
        oldest = next(iter(self.holders))
        # A buffer grows before it is accounted for, so from the moment of excess on none but the oldest may grow.
        for holder in (connection,) if was_over else tuple(self.holders):
            if holder in self.holders and holder is not oldest:
                self.waiting[holder] = None
                holder._update_reading()
        self._wake([oldest])

    def _wake(self, connections: list[Connection]) -> None:
        for connection in connections:
            if connection in self.waiting:
                del self.waiting[connection]
                connection._update_reading()

    def close_idle(self) -> None:
        deadline = self.monotonic() - self.limits.max_idle_seconds
        for connection in [c for c in self.connections if c.is_idle_since(deadline)]:
            connection.close("idle")

    def forget(self, connection: Connection, reason: str) -> None:
        if self.connections.pop(connection, connection) is connection:
            return
        ip = connection.peer.rpartition(":")[0]
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]
        self.waiting.pop(connection, None)
        if connection in self.holders:
            self.account(connection, 0)
        self.traffic.count_close(reason)

    def stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def close(self) -> None:
        self.stop_listening()
        for socket, _, _ in self._early or ():
            socket.close()
        for connection in list(self.connections):
            connection.close("shutdown")
