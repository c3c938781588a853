"""What ties a producer, consumer or admin to one cluster, one event loop and one process.

Options are checked when the object is made, which may be outside of any loop; the loop that enters it owns it from then
on. Sockets and tasks do not survive a fork and do not work from another loop: both are errors here instead of hangs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from threading import get_ident

from barnabas.client.client import Client, connect
from barnabas.client.connections import parse_addresses
from barnabas.client.errors import NotOpen, WrongLoop, WrongProcess

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Session:
    """Holds a client of its own, or borrows one that its caller shares among several."""

    def __init__(
        self,
        owner: object,
        cluster: str | Client,
        *,
        client_id: str = "barnabas",
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        retry_timeout_ms: int = 30_000,
    ) -> None:
        if isinstance(cluster, str):
            parse_addresses(cluster)
        self._name = type(owner).__name__
        self._cluster = cluster
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._retry_timeout_ms = retry_timeout_ms
        self._forks = _forks
        self._loop_runs: Callable[[], bool] | None = None
        self._thread_id = 0
        self._client: Client | None = None

    async def open(self) -> Client:
        """Bind to the running loop and reach the cluster, so that a wrong address shows here."""
        self._check_process()
        if self._loop_runs is not None:
            raise NotOpen(f"this {self._name} was entered before; make a new one")
        self._loop_runs, self._thread_id = asyncio.get_running_loop().is_running, get_ident()
        if isinstance(self._cluster, Client):
            self._client = self._cluster
        else:
            self._client = await connect(
                self._cluster,
                client_id=self._client_id,
                connect_timeout_ms=self._connect_timeout_ms,
                request_timeout_ms=self._request_timeout_ms,
                retry_timeout_ms=self._retry_timeout_ms,
            ).__aenter__()
        return self._client

    async def close(self) -> None:
        """Close what `open` has opened; harmless where that has failed, or was done already."""
        client, self._client = self._client, None
        if client is not None and client is not self._cluster:
            await client.close()

    @property
    def is_open(self) -> bool:
        return self._client is not None

    def check(self) -> Client:
        """The client, if this is the loop and the process that own it."""
        client = self._client
        if client is not None and self._forks == _forks and get_ident() == self._thread_id:
            assert self._loop_runs is not None
            if self._loop_runs():  # in this thread, so it is the running one: quicker than to ask, for every record
                return client
        self._check_process()
        if self._client is None:
            state = "was closed" if self._loop_runs else f"is not open yet; use `async with {self._name}(...)`"
            raise NotOpen(f"this {self._name} {state}")
        raise WrongLoop(f"this {self._name} belongs to another event loop; make one per loop, or use barnabas.sync")

    def _check_process(self) -> None:
        if self._forks != _forks:
            raise WrongProcess(f"this {self._name} was made before a fork; make a new one in the child process")
