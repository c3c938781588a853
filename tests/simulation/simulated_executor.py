"""Threads, simulated: work runs on the loop a little later, and its result is known a little later still.

Between the two moments the world goes on, so a crash may fall between an fsync and the news of it. Work is neither
started nor finished in the order of its submission, as with a pool of threads. What a dead process submitted never
runs.
"""

from __future__ import annotations

import random
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class SimulatedExecutor:
    """An `Executor`. Most work takes up to `delay` seconds; one in a hundred pieces up to fifty times as long."""

    def __init__(self, loop: AbstractEventLoop, rng: random.Random, delay: float = 0.002) -> None:
        self._loop = loop
        self._rng = rng
        self._usual_delay = self._delay = delay

    def slow_down(self, factor: float) -> None:
        """Let everything take so many times as long as usual."""
        self._delay = self._usual_delay * factor

    def submit(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        future: Future[T] = self._loop.create_future()
        self._loop.call_later(self._draw_delay(), self._run, future, function, arguments)
        return future

    def _run(self, future: Future[T], function: Callable[..., T], arguments: tuple[object, ...]) -> None:
        if future.cancelled():
            return
        try:
            result = function(*arguments)
        except Exception as exception:  # the boundary between the work and whoever waits for it
            settle = partial(future.set_exception, exception)
        else:
            settle = partial(future.set_result, result)
        self._loop.call_later(self._draw_delay(), _unless_cancelled, future, settle)

    def _draw_delay(self) -> float:
        slow = 50.0 if self._rng.random() < 0.01 else 1.0
        return self._rng.random() * self._delay * slow


def _unless_cancelled(future: Future[T], settle: Callable[[], None]) -> None:
    if not future.cancelled():
        settle()
