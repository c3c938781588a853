"""Who runs under a broker id: what a process leaves in ZooKeeper for as long as its session lasts.

Two processes under one id would take the claim from each other for ever, so the second must not begin. After a crash
the first is still there until its session times out; a process of the same machine need not wait that long, because it
can see that the other is gone.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import asdict
from functools import cache

from kazoo.exceptions import NodeExistsError, NoNodeError

from barnabas.coordination.zookeeper_requests import Request, create_now, delete, facts, get, to_json
from barnabas.coordination.zookeeper_session import Denied, ZooKeeperSession
from barnabas.core import logs
from barnabas.core.dataclass import dataclass

_POLL_S = 0.1
_SHORTEST_PATIENCE_S = 5.0  # ZooKeeper's own limits may stretch a time-out to two of its ticks

_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Presence:
    host: str
    machine: str
    """Processes with the same one can see each other: one boot, one namespace of process ids."""
    pid: int
    session_timeout_s: float

    @classmethod
    def of_this_process(cls, session_timeout_s: float) -> Presence:
        return cls(socket.gethostname(), _machine(), os.getpid(), session_timeout_s)

    @property
    def patience_s(self) -> float:
        """Whoever is there for longer than this is alive."""
        return max(2 * self.session_timeout_s, _SHORTEST_PATIENCE_S)

    def is_surely_gone(self) -> bool:
        if not self.machine or self.machine != _machine():
            return False
        try:
            os.kill(self.pid, 0)
        except OSError as error:
            return isinstance(error, ProcessLookupError)
        return False


async def enter(session: ZooKeeperSession, path: str, presence: Presence) -> None:
    """Begin to run under the broker id that `path` ends with, once nobody else does."""
    loop = asyncio.get_running_loop()
    waiting_for: Presence | None = None
    since = loop.time()
    while True:
        created, found = await session.ask(be_present(path, presence), get(path))
        if not isinstance(created, NodeExistsError):
            return
        if not isinstance(found, NoNodeError):
            other = Presence(**facts(found))
            if other.is_surely_gone():
                await session.commit(delete(path))
                continue
            if other != waiting_for:
                waiting_for, since = other, loop.time()
                _log.info("broker id in use, waiting for that session to end", host=other.host, pid=other.pid)
            if loop.time() - since > other.patience_s:
                raise Denied(
                    f"broker id {path.rpartition('/')[2]} is in use by process {other.pid} on {other.host}; "
                    "stop it first, or give this broker another node.id"
                )
        await asyncio.sleep(_POLL_S)


def be_present(path: str, presence: Presence) -> Request:
    return create_now(path, to_json(**asdict(presence)), ephemeral=True)


@cache
def _machine() -> str:
    """Empty where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
