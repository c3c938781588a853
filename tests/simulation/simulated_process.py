"""A process inside the simulation: what it runs and what it holds dies in one moment, as under `kill -9`.

Everything that a process starts carries its context: tasks, timers, readiness call-backs, work for the executor. The
loop drops what belongs to a dead process, so no line of it runs again, and the disk and the network take back what it
held. A process may also die in the middle of a system call: `ProcessKilled` then unwinds its code, whose `finally`
blocks find that nothing outside can be reached any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

P = ParamSpec("P")
T = TypeVar("T")

_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)

_LAST_WORDS = 100  # how often a dead coroutine may await in its `finally` blocks before it is given up


class ProcessKilled(BaseException):
    """The process died in this call. Not an Exception: nothing in the process may handle its own death."""


class Resource(Protocol):
    """What the kernel takes back from a dead process: an open socket, a listener, a lock."""

    def abandon(self, power_cut: bool) -> None: ...


def current_process() -> Process | None:
    """The process whose code is running; None for the world around the processes."""
    return _PROCESS.get()


def process_of(context: Context) -> Process | None:
    return context.get(_PROCESS)


def check_alive() -> None:
    """To be called by everything that a process could reach the outside with."""
    process = _PROCESS.get()
    if process is not None and not process.alive:
        raise ProcessKilled(process.name)


class Process:
    """`host` is the name of the machine that it runs on."""

    __slots__ = (
        "__weakref__", "_context", "_loop", "_resources", "_tasks", "alive", "host", "name", "put_off", "stopped",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, host: str = "") -> None:
        self._loop = loop
        self.name = name
        self.host = host
        self.alive = True
        self.stopped = False  # as by SIGSTOP
        self.put_off: list[asyncio.Handle] = []
        """What would have run since it was stopped."""
        self._context = Context()
        self._context.run(_PROCESS.set, self)
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._resources: dict[Resource, None] = {}

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as this process."""
        return self._loop.create_task(coroutine, context=self._context.copy())

    def call(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call a function as this process."""
        return self._context.copy().run(function, *arguments, **options)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)

    def own(self, resource: Resource) -> None:
        self._resources[resource] = None

    def disown(self, resource: Resource) -> None:
        self._resources.pop(resource, None)

    def kill(self, power_cut: bool = False) -> None:
        """Die now. What the disk loses in a power cut is the disk's affair."""
        if not self.alive:
            return
        self.alive = False
        resources, self._resources = self._resources, {}
        for resource in resources:
            resource.abandon(power_cut)
        # The death may have come in the middle of one of these tasks, whose coroutine cannot be closed while it runs.
        self._loop.call_soon(self.bury, context=Context())

    def stop(self) -> None:
        """Run nothing more, until told to go on; to others it looks as if the process were only slow."""
        self.stopped = True

    def go_on(self) -> None:
        self.stopped = False
        put_off, self.put_off = self.put_off, []
        for handle in put_off:
            self._loop.call_soon(_run_unless_cancelled, handle, context=self._context.copy())

    def bury(self) -> None:
        """Close what the dead process had suspended, in the order in which it was started."""
        for task in sorted(self._tasks, key=hash):
            if not task.done():
                self._context.run(close_suspended, task)
        self._tasks.clear()


def _run_unless_cancelled(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()


def close_suspended(task: asyncio.Task[Any]) -> None:
    """End a task that nobody will run again, without the complaints that asyncio has about such tasks."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    assert coroutine is not None
    for _ in range(_LAST_WORDS):
        try:
            with contextlib.suppress(ProcessKilled):
                coroutine.close()
            return
        except RuntimeError:  # it awaited again in a `finally` block
            continue
        except BaseException:
            return  # whatever a dead process has to say goes unheard
