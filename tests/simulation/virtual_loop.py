"""An event loop without threads, sockets or waiting: its time is a number that jumps to the next timer.

The loop is deterministic. Call-backs that are ready run in the order in which they became so, or, given a random
source, in an order drawn from it. Tasks and futures hash by serial number, so that even asyncio's own sets of them have
one order. A run is bounded: too many steps, or nothing left to run while somebody waits, is an error that tells what is
pending. An exception that nobody handles ends the run.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from asyncio.events import _set_running_loop
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack
from weakref import WeakSet

from tests.simulation.simulated_process import Process, ProcessKilled, close_suspended, process_of

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH_MS = 1_735_689_600_000  # the first moment of 2025: the simulated world has a date, too


class SimulationError(AssertionError):
    """The run cannot go on: an exception that nobody handled, a hang, a livelock."""


class _Future(asyncio.Future[T]):
    _serial: int

    def __hash__(self) -> int:
        return self._serial


class _Task(asyncio.Task[T]):
    def __init__(self, serial: int, coroutine: Coroutine[Any, Any, T], loop: VirtualLoop, name: str, context: Context):
        self._serial = serial  # before the base class puts the task into sets
        super().__init__(coroutine, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._serial


if TYPE_CHECKING:
    _LoopBase = asyncio.BaseEventLoop
else:
    # Sockets, threads, signals and subprocesses raise NotImplementedError, which the type checker takes for abstract.
    _LoopBase = asyncio.AbstractEventLoop


class VirtualLoop(_LoopBase):
    def __init__(self, *, shuffle: random.Random | None = None, max_steps: int = 1_000_000) -> None:
        self._shuffle = shuffle
        self._max_steps = max_steps
        self._now = 0.0
        self._serial = count()
        self._ready: list[tuple[asyncio.Handle, Process | None]] = []
        self._next = 0  # in `_ready`; what lies before has run
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Process | None]] = []
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._failures: list[BaseException] = []
        self._running = False
        self._closed = False
        self.steps = 0

    # time and call-backs

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context  # an empty one is false
        handle = asyncio.Handle(callback, args, self, context)
        process = process_of(context)
        if process is None or process.alive:
            self._ready.append((handle, process))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context  # an empty one is false
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        process = process_of(context)
        if process is None or process.alive:
            heapq.heappush(self._timers, (when, next(self._serial), handle, process))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer stays in the heap until it is due; asyncio tells of it all the same."""

    # tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        future: _Future[Any] = _Future(loop=self)
        future._serial = next(self._serial)
        return future

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[T]:
        context = copy_context() if context is None else context  # an empty one is false
        serial = next(self._serial)
        assert isinstance(coro, Coroutine)
        task = _Task(serial, coro, self, str(name or f"task-{serial}"), context)
        self._tasks.add(task)
        process = process_of(context)
        if process is not None:
            process.adopt(task)
            if not process.alive:
                close_suspended(task)
        return task

    # running

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        assert isinstance(future, Awaitable)
        waited_for = asyncio.ensure_future(future, loop=self)
        self._running = True
        _set_running_loop(self)
        try:
            while not waited_for.done():
                self._step()
        finally:
            _set_running_loop(None)
            self._running = False
        return waited_for.result()

    def _step(self) -> None:
        if self._next == len(self._ready):
            self._ready.clear()
            self._next = 0
            self._jump()
        handle, process = self._take()
        if handle.cancelled() or (process is not None and not process.alive):
            return
        if process is not None and process.stopped:
            process.put_off.append(handle)
            return
        self.steps += 1
        if self.steps > self._max_steps:
            raise SimulationError(f"no end after {self._max_steps} steps at {self._now:.3f} s\n{self.pending()}")
        handle._run()
        if self._failures:
            failure = self._failures[0]
            raise SimulationError(f"unhandled at {self._now:.3f} s: {failure!r}") from failure

    def _take(self) -> tuple[asyncio.Handle, Process | None]:
        ready, position = self._ready, self._next
        if self._shuffle is not None:
            chosen = self._shuffle.randrange(position, len(ready))
            ready[position], ready[chosen] = ready[chosen], ready[position]
        self._next += 1
        return ready[position]

    def _jump(self) -> None:
        """Go to the next moment at which something is due, and make ready all that is due then."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise SimulationError(f"nothing will ever happen again at {self._now:.3f} s\n{self.pending()}")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            _, _, handle, process = heapq.heappop(timers)
            self._ready.append((handle, process))

    def pending(self) -> str:
        """What waits: the tasks with the line where each is suspended, and the timers."""
        lines = ["pending tasks:"]
        for task in sorted(self._tasks, key=hash):
            if not task.done():
                stack = task.get_stack(limit=1)
                where = f" at {stack[0].f_code.co_filename}:{stack[0].f_lineno}" if stack else ""
                lines.append(f"  {task.get_name()} {getattr(task.get_coro(), '__qualname__', '?')}{where}")
        lines.append("pending timers:")
        alive = (timer for timer in sorted(self._timers, key=lambda t: t[:2]) if not timer[2].cancelled())
        lines += [f"  {when:.3f} s {_describe(handle)}" for (when, _, handle, _), _ in zip(alive, range(20))]
        return "\n".join(lines)

    def close(self) -> None:
        """End what is still suspended; an exception that no one has looked at is the run's failure."""
        if self._closed:
            return
        self._closed = True
        tasks = sorted(self._tasks, key=hash)
        self._ready.clear()
        self._next = 0
        self._timers.clear()
        for task in tasks:
            if not task.done():
                close_suspended(task)
            elif task._log_traceback and (exception := task.exception()) is not None:
                self.call_exception_handler({"message": "exception was never retrieved", "exception": exception})
        if self._failures:
            raise SimulationError(f"never looked at: {self._failures[0]!r}") from self._failures[0]

    # what asyncio asks of a loop

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        exception = context.get("exception")
        if not isinstance(exception, ProcessKilled):
            self._failures.append(exception or SimulationError(f"{context['message']}: {context}"))

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed


def _describe(handle: asyncio.Handle) -> str:
    callback = getattr(handle, "_callback", None)
    return str(getattr(callback, "__qualname__", callback))


class VirtualClock:
    """The loop's time, and a date made of it."""

    def __init__(self, loop: VirtualLoop, epoch_ms: int = EPOCH_MS) -> None:
        self._loop = loop
        self._epoch_ms = epoch_ms

    def now_ms(self) -> int:
        return self._epoch_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()
