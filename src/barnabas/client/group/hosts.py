"""Where memberships run: on the one thread that a process has for them, or on the caller's own loop.

The thread is there so that heartbeats go on while a caller blocks its loop. It starts with the first member and ends
with the last. It is a daemon: a process that ends without closing its consumers is not held up by it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from barnabas.net.sockets import TcpNetwork

if TYPE_CHECKING:
    from barnabas.client.client import Client


Running: TypeAlias = "concurrent.futures.Future[None]"


class Host(Protocol):
    """One per member."""

    def client(self, client: Client) -> Client:
        """A client of the same cluster for the loop that the membership runs on."""
        ...

    def start(self, membership: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Run a membership; the future, on the caller's loop, is its end."""
        ...

    def to_member(self, callback: Callable[[], object]) -> None:
        """Call on the membership's loop; called on the caller's."""
        ...

    def to_caller(self, callback: Callable[[], object]) -> None:
        """Call on the caller's loop; called on the membership's. RuntimeError once that loop is closed."""
        ...

    def close(self) -> None:
        """The membership is over."""
        ...


class LoopHost:
    """The caller's own loop: for the simulation, which has no threads."""

    def client(self, client: Client) -> Client:
        return client.twin()

    def start(self, membership: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        return asyncio.ensure_future(membership)

    def to_member(self, callback: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_soon(callback)

    to_caller = to_member

    def close(self) -> None:
        """There is nothing to end."""


class ThreadHost:
    """The process's thread for memberships."""

    def __init__(self) -> None:
        self._caller = asyncio.get_running_loop()
        self._thread = _GroupThread.enter()

    def client(self, client: Client) -> Client:
        return client.twin(TcpNetwork(self._thread.loop))

    def start(self, membership: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        ended: asyncio.Future[None] = self._caller.create_future()

        def end(running: Running) -> None:
            self._thread.leave(running)
            with suppress(RuntimeError):  # the caller's loop is closed: nobody waits for the end
                self._caller.call_soon_threadsafe(ended.set_result, None)

        self._thread.start(membership).add_done_callback(end)
        return ended

    def to_member(self, callback: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the membership has ended by itself, and the thread with it
            self._thread.loop.call_soon_threadsafe(callback)

    def to_caller(self, callback: Callable[[], object]) -> None:
        self._caller.call_soon_threadsafe(callback)

    def close(self) -> None:
        self._thread.join()


class _GroupThread:
    """The thread, its loop, and how many members need it."""

    _lock = threading.Lock()
    _current: _GroupThread | None = None
    _before_fork: ClassVar[list[_GroupThread]] = []
    """Never collected: to close a loop that the parent process uses would disturb the parent."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._members = 0
        self._running: set[Running] = set()
        """A loop holds its tasks weakly, and so a membership whose caller is gone would be collected before it ends."""
        self._thread = threading.Thread(target=self._run, name="barnabas-groups", daemon=True)
        self._thread.start()

    @classmethod
    def enter(cls) -> _GroupThread:
        with cls._lock:
            if cls._current is None:
                cls._current = cls()
            cls._current._members += 1
            return cls._current

    def start(self, membership: Coroutine[Any, Any, None]) -> Running:
        running = asyncio.run_coroutine_threadsafe(membership, self.loop)
        self._running.add(running)
        return running

    def leave(self, ended: Running) -> None:
        self._running.discard(ended)
        with self._lock:
            self._members -= 1
            if not self._members:
                type(self)._current = None
                self.loop.call_soon_threadsafe(self.loop.stop)

    def join(self) -> None:
        """Wait for the thread, if its last member has left: it is about to end."""
        if not self._members:
            self._thread.join()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()

    @classmethod
    def forked(cls) -> None:
        """A child has no such thread."""
        cls._lock = threading.Lock()
        if cls._current is not None:
            cls._before_fork.append(cls._current)
            cls._current = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_GroupThread.forked)
