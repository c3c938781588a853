"""A broker that can be cut off: its network falls silent, and the metadata store is out of its reach.

This is what a broken cable does. Nothing is refused and nothing is reset: bytes stop in both directions, on the
connections that clients and other brokers have to this broker and on those that it has to others; new connections are
made by the system, but not answered. The broker lives on, and learns of it only by its time-outs. After the cut is
healed the bytes that were on the way arrive, as TCP would send them again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.process import Machine, metadata_file
from barnabas.coordination.embedded import EmbeddedStore
from barnabas.coordination.store import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]

    from barnabas.coordination.store import MetadataStore
    from barnabas.core.broker_config import BrokerConfig
    from barnabas.core.clock import SystemClock
    from barnabas.core.seams import File, Listener, Network, Socket

T = TypeVar("T")
Callback = Callable[[], None]
CUT, HEAL = b"c", b"h"


class Cable:
    """Whether a broker is connected to anything; the broker's loop owns it."""

    def __init__(self) -> None:
        self.is_cut = False
        self._healed = asyncio.Event()
        self._healed.set()
        self.on_change: list[Callback] = []

    def set_cut(self, is_cut: bool) -> None:
        if is_cut == self.is_cut:
            return
        self.is_cut = is_cut
        if is_cut:
            self._healed.clear()
        else:
            self._healed.set()
        for callback in self.on_change:
            callback()

    async def healed(self) -> None:
        await self._healed.wait()


class CutSocket:
    """A socket that takes and gives nothing while the cable is cut."""

    def __init__(self, inner: Socket, cable: Cable) -> None:
        self.inner = inner
        self._cable = cable

    def recv_into(self, buffer: memoryview) -> int:
        return self._open().recv_into(buffer)

    def send(self, data: Buffer) -> int:
        return self._open().send(data)

    def send_more(self, data: Buffer) -> int:
        return self._open().send_more(data)

    def sendfile(self, file: File, position: int, size: int) -> int:
        return self._open().sendfile(file, position, size)

    def close(self) -> None:
        self.inner.close()

    def _open(self) -> Socket:
        if self._cable.is_cut:
            raise BlockingIOError("the broker is cut off")
        return self.inner


class CutNetwork:
    """A network whose call-backs wait until the cable is whole again."""

    def __init__(self, inner: Network, cable: Cable) -> None:
        self._inner = inner
        self._cable = cable
        self._readers: dict[CutSocket, Callback] = {}
        self._writers: dict[CutSocket, Callback] = {}
        self._waiting: list[Callback] = []
        cable.on_change.append(self._changed)

    def listen(self, host: str, port: int, on_accept: Callable[[Socket, str], None]) -> Listener:
        def accept(socket: Socket, peer: str) -> None:
            accepted = CutSocket(socket, self._cable)
            if self._cable.is_cut:
                self._waiting.append(lambda: on_accept(accepted, peer))
            else:
                on_accept(accepted, peer)

        return self._inner.listen(host, port, accept)

    async def connect(self, host: str, port: int) -> Socket:
        await self._cable.healed()
        return CutSocket(await self._inner.connect(host, port), self._cable)

    def on_readable(self, socket: Socket, callback: Callback | None) -> None:
        self._remember(self._readers, self._inner.on_readable, socket, callback)

    def on_writable(self, socket: Socket, callback: Callback | None) -> None:
        self._remember(self._writers, self._inner.on_writable, socket, callback)

    def soon(self, callback: Callback) -> None:
        self._inner.soon(callback)

    def _remember(
        self,
        callbacks: dict[CutSocket, Callback],
        register: Callable[[Socket, Callback | None], None],
        socket: Socket,
        callback: Callback | None,
    ) -> None:
        assert isinstance(socket, CutSocket)
        if callback is None:
            callbacks.pop(socket, None)
        else:
            callbacks[socket] = callback
        if callback is None or not self._cable.is_cut:
            register(socket.inner, callback)

    def _changed(self) -> None:
        is_cut = self._cable.is_cut
        for callbacks, register in ((self._readers, self._inner.on_readable), (self._writers, self._inner.on_writable)):
            for socket, callback in callbacks.items():
                register(socket.inner, None if is_cut else callback)
        if not is_cut:
            waiting, self._waiting = self._waiting, []
            for accept in waiting:
                accept()


class CutStore(EmbeddedStore):
    """The file is on this very machine; all the same it must be out of reach, as a store beyond the cable would be."""

    def __init__(self, path: str, broker_id: int, clock: SystemClock, cable: Cable) -> None:
        super().__init__(path, broker_id, clock)
        self._cable = cable

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._cable.is_cut:
            raise StoreUnavailable(f"{self.path}: the broker is cut off")
        return await super()._call(function, *arguments)

    def _tick(self) -> None:
        if self._cable.is_cut:  # the others must see that the controller is gone
            self._tick_timer = self._loop.call_later(self._claim_timeout_s / 4, self._tick)
        else:
            super()._tick()


class CuttableMachine(Machine):
    """The machine of a broker in a test. `control` is a socket whose bytes say what to do, each echoed when done."""

    def __init__(self, control: int | None = None) -> None:
        self._control = control
        self.cable: Cable | None = None

    def network(self, loop: asyncio.AbstractEventLoop, config: BrokerConfig) -> Network:
        return CutNetwork(super().network(loop, config), self._plug(loop))

    def metadata_store(self, config: BrokerConfig, clock: SystemClock) -> MetadataStore:
        if config["zookeeper.connect"]:
            return super().metadata_store(config, clock)
        return CutStore(metadata_file(config), config.node_id, clock, self._plug(asyncio.get_running_loop()))

    def _plug(self, loop: asyncio.AbstractEventLoop) -> Cable:
        if self.cable is None:
            self.cable = Cable()
            if self._control is not None:
                loop.add_reader(self._control, self._obey, loop, self._control, self.cable)
        return self.cable

    @staticmethod
    def _obey(loop: asyncio.AbstractEventLoop, control: int, cable: Cable) -> None:
        order = os.read(control, 1)
        if not order:
            loop.remove_reader(control)
            return
        cable.set_cut(order == CUT)
        os.write(control, order)
