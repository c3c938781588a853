"""One event loop in one thread of the process, on which all clients without async live.

Whoever calls waits here, in the caller's own thread, for work on that loop. While it waits the work may send functions
back, which is how a callback of the caller's runs in the caller's thread. Ctrl-C interrupts the wait, cancels the work,
and is raised when that has ended. The thread starts with the first call; at exit what is still open is closed.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

from barnabas.client.errors import WrongProcess
from barnabas.core import logs

_log = logs.get_logger(__name__)
T = TypeVar("T")
LOOK_FOR_SIGNALS_S = 0.2
"""A signal that comes just before a thread begins to wait does not wake it: Python looks when the wait ends."""


class Call(Generic[T]):
    """Work on the loop, and the thread that waits for it."""

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._task: asyncio.Task[T] | None = None
        self._is_over = False

    def wait(self, unclaimed: Callable[[T], None] | None) -> T:
        """The result; if an interrupt comes too late to cancel the work, `unclaimed` gets what nobody will."""
        try:
            self._loop.call_soon_threadsafe(self._begin)
            self._serve()
        except BaseException:
            if not self._is_over:  # otherwise the end was heard already, and comes only once
                self._loop.call_soon_threadsafe(self._cancel)
                self._serve()
            task = self._task
            if unclaimed is not None and task is not None and not task.cancelled() and task.exception() is None:
                unclaimed(task.result())
            raise
        return cast("asyncio.Task[T]", self._task).result()

    async def in_caller(self, function: Callable[..., T], *arguments: object) -> T:
        """From the work: run a function in the thread that waits for it; in another one if nobody waits any more."""
        if self._is_over:
            return await asyncio.to_thread(function, *arguments)
        outcome: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = function(*arguments)
            except Exception as error:
                self._loop.call_soon_threadsafe(_settle, outcome, None, error)
            except BaseException:
                self._loop.call_soon_threadsafe(outcome.cancel)
                raise
            else:
                self._loop.call_soon_threadsafe(_settle, outcome, result, None)

        self._inbox.put(run)
        return await outcome

    def _begin(self) -> None:
        token = _current_call.set(self)
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)
        _current_call.reset(token)

    def _end(self, _: object) -> None:
        self._is_over = True
        self._inbox.put(None)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:  # interrupted before it began
            self._work.close()
            self._end(None)

    def _serve(self) -> None:
        while True:
            try:
                function = self._inbox.get(timeout=LOOK_FOR_SIGNALS_S)
            except Empty:
                continue
            if function is None:
                return
            function()


def _settle(outcome: asyncio.Future[Any], result: object, problem: Exception | None) -> None:
    if outcome.done():
        return  # the work was cancelled meanwhile
    if problem is not None:
        outcome.set_exception(problem)
    else:
        outcome.set_result(result)


_current_call: ContextVar[Call[Any] | None] = ContextVar("barnabas_call", default=None)


class Portal:
    def __init__(self) -> None:
        self.loop = _new_loop()
        self._open: dict[int, Callable[[], None]] = {}
        self._thread = threading.Thread(target=self._turn, name="barnabas-sync", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], unclaimed: Callable[[T], None] | None = None) -> T:
        """Do the work on the loop, and wait for it here."""
        try:
            self.check()
        except RuntimeError:
            work.close()
            raise
        return Call(work, self.loop).wait(unclaimed)

    def check(self) -> None:
        if self is not _current:
            raise WrongProcess("this client was made before a fork; make a new one in the child process")
        if threading.get_ident() == self._thread.ident:
            raise RuntimeError("a client of barnabas.sync was called from its own event loop, which would wait forever")

    def close_at_exit(self, client: object, close: Callable[[], None]) -> None:
        self._open[id(client)] = close

    def is_closed(self, client: object) -> None:
        self._open.pop(id(client), None)

    def end(self) -> None:
        """Close what is open, the newest first, and end the thread."""
        while self._open:
            _, close = self._open.popitem()
            try:
                close()
            except Exception:
                _log.exception("a client that was left open cannot be closed in order")
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _turn(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()


async def in_callers_thread(function: Callable[..., T], *arguments: object) -> T:
    """From work on the loop: call a function of the user's in the thread that waits for this work."""
    call = _current_call.get()
    if call is None:
        return await asyncio.to_thread(function, *arguments)
    return cast(T, await call.in_caller(function, *arguments))


_lock = threading.Lock()
_current: Portal | None = None


def portal() -> Portal:
    """The one of this process."""
    global _current
    with _lock:
        if _current is None:
            _current = Portal()
        return _current


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return cast(asyncio.AbstractEventLoop, uvloop.new_event_loop())


def _forget() -> None:
    """In the child of a fork the thread is gone."""
    global _current, _lock
    _current, _lock = None, threading.Lock()


def _end() -> None:
    if _current is not None:
        _current.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
# Before the threads that look up host names end, where this Python lets us: closing may need a new connection.
getattr(threading, "_register_atexit", atexit.register)(_end)
