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


class StopSignals(StopRequest):
    """Set by a signal; for the main thread."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        super().__init__()
        self._notify = notify

    def listen(self) -> None:
        """Handle signals here. To be called again when Spark is up: its session sets a handler of its own, which kills
        jobs, and fails while the session starts or stops."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.set()
        self._notify("stopping after this batch; once more to stop at once")


@contextmanager
def stop_on_signals(notify: Callable[[str], None]) -> Iterator[StopSignals]:
    """To be entered before Spark starts, and left after it has stopped."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    stop = StopSignals(notify)
    stop.listen()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
