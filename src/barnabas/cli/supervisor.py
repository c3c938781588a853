"""Several brokers on one machine: a process each, forked from this one, which starts, watches and stops them."""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence

from barnabas.broker.app import StartError
from barnabas.broker.siblings import PARENTS_SIGNALS, fork_broker
from barnabas.core import logs
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.dataclass import dataclass

_log = logs.get_logger(__name__)
_IN_ORDER_S = 0.8  # how long the brokers that still run wait for one that hands over to them
_STOP_PATIENCE_S = 10.0
_RESTART_PAUSE_S = 1.0
_READ_BYTES = 65536


@dataclass(slots=True)
class Child:
    """One broker; `pid` is 0 while it does not run."""

    configure: Callable[[Sequence[str]], BrokerConfig]
    """Its configuration, given the addresses it had before, which it keeps."""
    number: int
    addresses: Sequence[str] = ()
    pid: int = 0
    pipe: int = -1
    told: bytes = b""
    start_at: float = 0.0


class Supervisor:
    def __init__(self, brokers: Sequence[Callable[[Sequence[str]], BrokerConfig]], *, restart: bool) -> None:
        self._children = [Child(configure, number) for number, configure in enumerate(brokers, 1)]
        self._restart = restart
        self._stopping = False
        self._is_ready = False
        self._lifeline = os.pipe()
        self._wakeup = socket.socketpair()
        for end in self._wakeup:
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakeup[0], selectors.EVENT_READ)

    def run(self, on_ready: Callable[[Sequence[str], Sequence[int]], None]) -> None:
        """Serve until SIGTERM or SIGINT; StartError if a broker cannot start, or if none is left."""
        signal.set_wakeup_fd(self._wakeup[1].fileno(), warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, lambda *_: None) for number in PARENTS_SIGNALS}
        gc.collect()
        gc.freeze()
        try:
            for child in self._children:
                self._start(child)
            while not self._stopping:
                self._turn()
                if not self._is_ready and all(child.addresses for child in self._children):
                    self._is_ready = True
                    on_ready([each.addresses[0] for each in self._children], [each.pid for each in self._children])
        finally:
            self._stop()
            signal.set_wakeup_fd(-1)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._selector.close()
            for descriptor in self._lifeline:
                os.close(descriptor)
            for end in self._wakeup:
                end.close()

    def _turn(self) -> None:
        due = [child.start_at for child in self._children if child.start_at]
        for key, _ in self._selector.select(max(0.0, min(due) - time.monotonic()) if due else None):
            if key.data is None:
                signals = self._wakeup[0].recv(_READ_BYTES)
                self._stopping |= bool({signal.SIGTERM, signal.SIGINT} & set(signals))
            else:
                self._hear(key.data)
        if self._stopping:
            return
        self._reap()
        for child in self._children:
            if child.start_at and child.start_at <= time.monotonic():
                self._start(child)

    def _start(self, child: Child) -> None:
        config = child.configure(child.addresses)
        child.start_at = 0.0
        pid, reading = fork_broker(config, child.number, self._lifeline)
        child.pid, child.pipe, child.told = pid, reading, b""
        self._selector.register(reading, selectors.EVENT_READ, child)

    def _hear(self, child: Child) -> None:
        if data := os.read(child.pipe, _READ_BYTES):
            child.told += data
            return
        self._selector.unregister(child.pipe)
        os.close(child.pipe)
        child.pipe = -1
        if not child.told:
            return  # it died; of that we hear elsewhere
        told = json.loads(child.told)
        if "error" in told and not self._is_ready:
            raise StartError(told["error"])
        if "error" in told:
            _log.error("broker cannot start", broker=child.number, problem=told["error"])
        else:
            child.addresses = told["addresses"]
            if self._is_ready:
                _log.warning("broker serves again", broker=child.number, address=child.addresses[0])

    def _reap(self) -> None:
        for child in self._children:
            if child.pid and (status := _ended(child.pid)) is not None:
                child.pid = 0
                self._died(child, status)

    def _died(self, child: Child, status: int) -> None:
        if child.pipe >= 0:
            self._hear(child)
        if not self._is_ready:
            raise StartError(f"broker {child.number} {_told(status)} before it was ready")
        _log.error("broker has died", broker=child.number, how=_told(status), restarts=self._restart)
        if self._restart:
            child.start_at = time.monotonic() + _RESTART_PAUSE_S
        elif not any(each.pid for each in self._children):
            raise StartError("no broker is left")

    def _stop(self) -> None:
        """One after the other, so that each can hand over to the rest while there is one."""
        for child in reversed(self._children):
            if child.pid:
                os.kill(child.pid, signal.SIGTERM)
                self._wait_for([child], _IN_ORDER_S)
        self._wait_for(self._children, _STOP_PATIENCE_S)
        for child in self._children:
            if child.pid:
                _log.error("broker does not stop and is killed", broker=child.number)
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
            if child.pipe >= 0:
                os.close(child.pipe)

    def _wait_for(self, children: Sequence[Child], patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while any(child.pid for child in children) and time.monotonic() < deadline:
            for child in children:
                if child.pid and _ended(child.pid) is not None:
                    child.pid = 0
            time.sleep(0.005)


def _ended(pid: int) -> int | None:
    """The exit code of a child that has ended, negative for a signal."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _told(status: int) -> str:
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
