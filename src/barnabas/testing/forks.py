"""The test process's end of its warden: one for all clusters, started with the first and ended with the last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_PATIENCE_S = 20.0


class ClusterError(RuntimeError):
    """A cluster that cannot start, or cannot do what it was asked; with the broker's log where that helps."""


class Forks:
    """Sends an order and waits for its answer; threads take turns."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.users = 0
        self._lock = threading.Lock()
        self._orders = 0
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "barnabas.testing.warden"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # whoever kills our process group must leave it to clean up
        )

    def order(self, do: str, **arguments: object) -> Any:
        if self.pid != os.getpid():
            raise ClusterError("this cluster was made before a fork; only the parent process can give it orders")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._orders += 1
                order = {"number": self._orders, "do": do, **arguments}
                self._process.stdin.write(json.dumps(order).encode() + b"\n")
                self._process.stdin.flush()
                reply = json.loads(self._process.stdout.readline())
                while reply["number"] != self._orders:  # of an order whose sender was interrupted
                    reply = json.loads(self._process.stdout.readline())
            except (BrokenPipeError, ValueError) as error:
                self._log.seek(0)
                told = self._log.read().decode(errors="replace")
                raise ClusterError(f"the process that brokers are forked from has died\n{told}") from error
        if "failed" in reply:
            raise ClusterError(reply["failed"])
        return reply["done"]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it is dead already
            self._process.stdin.close()
        self._process.wait(_PATIENCE_S)
        self._process.stdout.close()
        self._log.close()


_lock = threading.Lock()
_current: Forks | None = None


def acquire() -> Forks:
    """The warden of this process, started if there is none; `release` it in the end."""
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = Forks()
        _current.users += 1
        return _current


def release(forks: Forks) -> None:
    global _current
    with _lock:
        forks.users -= 1
        is_last = not forks.users and forks.pid == os.getpid()
        if is_last and forks is _current:
            _current = None
    if is_last:
        forks.close()


@contextmanager
def keep_warden() -> Iterator[None]:
    """Between clusters, so that the next one starts faster."""
    forks = acquire()
    try:
        yield
    finally:
        release(forks)
