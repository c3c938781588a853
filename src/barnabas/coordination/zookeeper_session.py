"""A session with ZooKeeper as the loop sees it: requests with a bound, and a connection that comes back by itself.

Owner: kazoo's threads do the talking. From the loop only what queues a request is called; answers, watch events and
changes of state are handed to the loop with call_soon_threadsafe, in the order in which each thread met them.

Crash: ZooKeeper ends a session that it has not heard of for the session's time-out, and removes what was ephemeral in
it. kazoo then begins a new one; who cares is told like of any other break. Where kazoo gives up for good, because a
server answered what it does not understand, it is started again here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from barnabas.coordination.store import StoreUnavailable
from barnabas.coordination.zookeeper_requests import Request, Step, transaction
from barnabas.core import logs

OUTCOMES = (NoNodeError, NodeExistsError, BadVersionError)
"""What ZooKeeper may say no with; other errors mean that it could not be asked."""

CLOSE_TIMEOUT_S = 2.0
_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
_REVIVAL_PAUSE_S = 1.0
_DEAD_STATES = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)

_log = logs.get_logger(__name__)
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # it warns at every attempt to connect; what matters is told here


class Denied(StoreUnavailable):
    """ZooKeeper is there, but this broker cannot work with it. Waiting does not help."""


class ZooKeeperSession:
    """`on_event` is called in the loop with the path of a node whose watch has fired, or None: all watches are gone."""

    def __init__(
        self,
        connect: str,
        on_event: Callable[[str | None], None],
        *,
        session_timeout_s: float,
        request_timeout_s: float,
        auth: str | None = None,
    ) -> None:
        if auth is not None and not all(auth.partition(":")):
            raise ValueError("barnabas.zookeeper.auth is not allowed: write user:password")
        self.hosts, slash, chroot = connect.partition("/")
        self.chroot = f"/{chroot}".rstrip("/") if slash else ""
        self._on_event = on_event
        self._request_timeout_s = request_timeout_s
        self._user = auth.partition(":")[0] if auth else None
        self._connected = asyncio.Event()
        self._waiting: set[asyncio.Future[None]] = set()
        self._revival: asyncio.Task[None] | None = None
        self._is_open = self._is_closed = False
        self._handler = _Handler(request_timeout_s / (self.hosts.count(",") + 1))
        try:
            self._client = KazooClient(
                hosts=self.hosts,
                timeout=session_timeout_s,
                handler=self._handler,
                auth_data=[("digest", auth)] if auth else None,
                default_acl=CREATOR_ALL_ACL if auth else OPEN_ACL_UNSAFE,
                connection_retry=_RECONNECT,
                logger=_kazoo_log,
            )
        except ValueError as error:
            raise ValueError(
                f"zookeeper.connect='{connect}' is not allowed: {error}; write host:port,host:port/path"
            ) from None

    async def open(self) -> None:
        """Return once a server has answered, however long that takes."""
        self._loop = asyncio.get_running_loop()
        self._client.add_listener(self._state_changed)
        self._client.start_async()
        self._is_open = True
        while True:
            try:
                async with asyncio.timeout(self._request_timeout_s):
                    return await self._until_connected()
            except TimeoutError:
                _log.warning("waiting for ZooKeeper", problem=self._no_answer())

    async def ask(self, *requests: Request) -> list[Any]:
        """Send requests one behind the other. The outcome of each is its result, or one of OUTCOMES that it met.

        StoreUnavailable: some were not answered, and may have been carried out all the same.
        """
        try:
            async with asyncio.timeout(self._request_timeout_s):
                await self._until_connected()
                results = await self._send(requests)
        except TimeoutError:
            raise StoreUnavailable(self._no_answer()) from None
        return [self._outcome(result) for result in results]

    async def commit(self, *steps: Step) -> list[Any]:
        """Take all steps or none; if none, the outcome of one says why, and those of the others are errors too."""
        (outcomes,) = await self.ask(transaction(*steps))
        errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        if errors and not any(isinstance(error, OUTCOMES) for error in errors):
            raise StoreUnavailable(f"ZooKeeper at {self.hosts} refused a transaction: {errors}")
        return list(outcomes)

    async def close(self) -> None:
        """End the session. A server that does not answer is left to find out by the session's time-out."""
        if self._is_closed or not self._is_open:
            return
        self._is_closed = True
        self._connected.set()
        if self._revival is not None:
            self._revival.cancel()
            await asyncio.wait((self._revival,))
        for waiter in self._waiting:
            _settle(waiter)
        cut = self._loop.call_later(CLOSE_TIMEOUT_S, self._handler.cut)
        try:
            await self._loop.run_in_executor(None, self._stop)
        finally:
            cut.cancel()

    def watcher(self, event: WatchedEvent) -> None:
        """Give this as `watch` to a request. Called in a thread of kazoo's."""
        self._tell(self._on_event, event.path)

    async def _until_connected(self) -> None:
        await self._connected.wait()
        if self._is_closed:
            raise StoreUnavailable(f"the session with ZooKeeper at {self.hosts} is closed")

    async def _send(self, requests: tuple[Request, ...]) -> list[Any]:
        answered: asyncio.Future[None] = self._loop.create_future()
        missing = len(requests)

        def count(_: object) -> None:  # in one thread of kazoo's; the loop is woken once for all of them
            nonlocal missing
            missing -= 1
            if missing == 0:
                self._tell(_settle, answered)

        results = []
        for request in requests:
            result = request(self._client)
            result.rawlink(count)
            results.append(result)
        if results:
            self._waiting.add(answered)
            answered.add_done_callback(self._waiting.discard)
            await answered
        return results

    def _outcome(self, result: Any) -> Any:
        if not result.ready():
            raise StoreUnavailable(f"the session with ZooKeeper at {self.hosts} was closed before the answer")
        error = result.exception
        if error is None or isinstance(error, OUTCOMES):
            return result.value if error is None else error
        if isinstance(error, NoAuthError):
            who = f"user '{self._user}'" if self._user else "nobody in particular (barnabas.zookeeper.auth is not set)"
            raise Denied(f"ZooKeeper at {self.hosts} does not let in {who} below '{self.chroot}/'; check user and path")
        raise StoreUnavailable(f"ZooKeeper at {self.hosts}: {type(error).__name__} {error}".rstrip())

    def _no_answer(self) -> str:
        problem = f" ({self._handler.problem})" if self._handler.problem and not self._connected.is_set() else ""
        return (
            f"ZooKeeper at {self.hosts} did not answer within {self._request_timeout_s:g} s{problem}; "
            "check that it runs and that zookeeper.connect names it"
        )

    # The connection comes and goes

    def _state_changed(self, state: str) -> None:
        """In kazoo's thread."""
        self._tell(self._note_state, state, self._client.client_state)

    def _note_state(self, state: str, keeper_state: str) -> None:
        if self._is_closed:
            return
        if state == KazooState.CONNECTED:
            _log.info("connected to ZooKeeper", hosts=self.hosts)
            self._connected.set()
        else:
            is_over = state == KazooState.LOST
            _log.warning("ZooKeeper session over" if is_over else "ZooKeeper connection lost", hosts=self.hosts)
            self._connected.clear()
            if keeper_state in _DEAD_STATES and (self._revival is None or self._revival.done()):
                self._revival = self._loop.create_task(self._revive())
        self._on_event(None)

    async def _revive(self) -> None:
        await asyncio.sleep(_REVIVAL_PAUSE_S)
        await self._loop.run_in_executor(None, self._client.start_async)

    def _stop(self) -> None:
        """In a thread: kazoo waits for the server's good-bye."""
        self._client.stop()
        self._client.close()

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(callback, *arguments)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and sockets; knows why there is no connection, and can cut the one that there is."""

    def __init__(self, connect_timeout_s: float) -> None:
        super().__init__()
        self.problem = ""
        self._connect_timeout_s = connect_timeout_s
        self._connection: socket.socket | None = None
        self._is_cut = threading.Event()

    def create_connection(self, *arguments: Any, **options: Any) -> socket.socket:
        if self._is_cut.is_set():
            raise ConnectionAbortedError("closing")
        try:
            connection: socket.socket = super().create_connection(
                *arguments, **options | {"timeout": self._connect_timeout_s}
            )
        except OSError as error:
            self.problem = error.strerror or str(error)
            raise
        self._connection = connection
        self.problem = ""
        if self._is_cut.is_set():
            self.cut()
        return connection

    def spawn(self, function: Callable[..., None], *arguments: Any, **options: Any) -> Any:
        """kazoo logs what ends its thread, and says that the session is over; the interpreter need not print it too."""

        def quietly() -> None:
            with suppress(Exception):
                function(*arguments, **options)

        return super().spawn(quietly)

    def cut(self) -> None:
        """For good: no other connection follows."""
        self._is_cut.set()
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():  # else the caller has given up
        future.set_result(None)
