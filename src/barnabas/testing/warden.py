"""The process that a test's brokers are forked from, and that ends them when the test process is gone.

It has imported everything that a broker needs, so that the next one is there at once. Orders come in on standard input,
one JSON object per line, and each is answered by one on standard output before the next may come. When the input ends,
or the parent is another one than at the start, the test process is dead, however it died: then the brokers are killed,
those that are paused too, and their directories removed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.broker.siblings import fork_broker
from barnabas.core.broker_config import BrokerConfig
from barnabas.testing.cut import CUT, HEAL, CuttableMachine

START_PATIENCE_S = 30.0
_ECHO_PATIENCE_S = 10.0
_LOOK_AT_PARENT_S = 1.0
_READ_BYTES = 65536
_LOG_TAIL_LINES = 40


class Failed(Exception):
    """An order that cannot be carried out; the message goes back."""


@dataclass(slots=True)
class Child:
    pid: int
    directory: str
    log: str
    control: socket.socket


class Warden:
    def __init__(self) -> None:
        self._parent = os.getppid()
        self._lifeline = os.pipe()
        self._children: dict[int, Child] = {}
        self._directories: set[str] = set()
        self._orders: dict[str, Callable[..., object]] = {
            "start": self.start,
            "end": self.end,
            "clear": self.clear,
            "pause": self.pause,
            "resume": self.resume,
            "cut": lambda pid: self._tell(pid, CUT),
            "heal": lambda pid: self._tell(pid, HEAL),
        }

    def run(self) -> None:
        try:
            for order in self._lines():
                reply = {"number": order.pop("number")}
                try:
                    reply["done"] = self._orders[order.pop("do")](**order)
                except Failed as error:
                    reply["failed"] = str(error)
                sys.stdout.write(json.dumps(reply) + "\n")
                sys.stdout.flush()
        finally:
            for directory in list(self._directories):
                self.clear(directory)

    def _lines(self) -> Iterator[dict[str, Any]]:
        pending = b""
        while os.getppid() == self._parent:
            if select.select([0], [], [], _LOOK_AT_PARENT_S)[0]:
                if not (data := os.read(0, _READ_BYTES)):
                    return
                *lines, pending = (pending + data).split(b"\n")
                yield from map(json.loads, lines)

    # Orders

    def start(self, directory: str, brokers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Fork brokers, and wait until all serve; if one cannot, none is left."""
        self._directories.add(directory)
        started = [self._fork(directory, **broker) for broker in brokers]
        try:
            told = self._hear({pipe: child for child, pipe in started}, time.monotonic() + START_PATIENCE_S)
        except Failed:
            for child, _ in started:
                self._kill(child)
            raise
        finally:
            for _, pipe in started:
                os.close(pipe)
        return [{"pid": child.pid, "address": told[pipe]} for child, pipe in started]

    def end(self, pid: int, by: int, patience_s: float) -> bool:
        """Send a signal that ends a broker, and wait for the end; False if it had to be killed."""
        child = self._child(pid)
        os.kill(pid, by)
        deadline = time.monotonic() + patience_s
        while not _is_dead(pid) and time.monotonic() < deadline:
            time.sleep(0.001)
        is_ended = _is_dead(pid)
        self._kill(child)
        return is_ended

    def clear(self, directory: str) -> None:
        """Kill all brokers of a directory, and remove it."""
        for child in [child for child in self._children.values() if child.directory == directory]:
            self._kill(child)
        shutil.rmtree(directory, ignore_errors=True)
        self._directories.discard(directory)

    def pause(self, pid: int) -> None:
        self._child(pid)
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)

    def resume(self, pid: int) -> None:
        self._child(pid)
        os.kill(pid, signal.SIGCONT)

    def _tell(self, pid: int, order: bytes) -> None:
        """Returns when the broker has done it."""
        child = self._child(pid)
        try:
            child.control.send(order)
            if child.control.recv(1) == order:
                return
        except OSError as error:
            raise Failed(f"broker process {pid} does not answer: {error}\n{_tail(child.log)}") from error
        raise Failed(f"broker process {pid} has died\n{_tail(child.log)}")

    # Children

    def _fork(self, directory: str, number: int, settings: dict[str, str], log: str) -> tuple[Child, int]:
        ours, theirs = socket.socketpair()
        ours.settimeout(_ECHO_PATIENCE_S)

        def prepare() -> None:
            ours.close()
            null, output = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for source, target in ((null, 0), (output, 1), (output, 2)):
                os.dup2(source, target)

        machine = CuttableMachine(theirs.fileno())
        pid, pipe = fork_broker(BrokerConfig(settings), number, self._lifeline, machine=machine, prepare=prepare)
        theirs.close()
        child = self._children[pid] = Child(pid, directory, log, ours)
        return child, pipe

    def _hear(self, pipes: dict[int, Child], deadline: float) -> dict[int, str]:
        """What the brokers' pipes tell: the address of each."""
        told: dict[int, str] = {}
        while len(told) < len(pipes):
            waiting = [pipe for pipe in pipes if pipe not in told]
            # An order cannot come now: standard input that is readable has ended.
            ready, _, _ = select.select([*waiting, 0], [], [], max(0.0, deadline - time.monotonic()))
            if not ready or 0 in ready:
                raise Failed(f"not ready within {START_PATIENCE_S:.0f} s\n{_tail(pipes[waiting[0]].log)}")
            for pipe in ready:
                facts = json.loads(os.read(pipe, _READ_BYTES) or b'{"error": "the process has died"}')
                if "error" in facts:
                    raise Failed(f"{facts['error']}\n{_tail(pipes[pipe].log)}")
                told[pipe] = facts["addresses"][0]
        return told

    def _child(self, pid: int) -> Child:
        child = self._children[pid]
        if _is_dead(pid):
            raise Failed(f"broker process {pid} has died\n{_tail(child.log)}")
        return child

    def _kill(self, child: Child) -> None:
        """Dead already or not: it is a child of ours until it is waited for, so its number belongs to nobody else."""
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        child.control.close()
        del self._children[child.pid]


def _is_dead(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _tail(log: str) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(Path(log).read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
    return "(no log)"


def main() -> None:
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: F401  # now, or every broker imports it again
    warden = Warden()
    gc.collect()
    gc.freeze()
    warden.run()


if __name__ == "__main__":
    main()
