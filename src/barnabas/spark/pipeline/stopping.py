"""Ctrl-C stops a run between commits: the batch under way is finished first. A second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Set by a signal, or by a test."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait so long at the most; whether a stop was asked for."""
        return self._event.wait(seconds)


@contextmanager
def stop_on_signals(tell: Callable[[str], None]) -> Iterator[StopRequest]:
    """For the main thread. To be entered when Spark is up: its session has a handler of its own, which kills jobs."""
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request.is_set:
            raise KeyboardInterrupt
        request.set()
        tell("stopping after this batch; once more to stop at once")

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
