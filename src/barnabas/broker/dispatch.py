"""From a frame to a handler and back: decode, call, encode, reply.

A handler is a function `(request, context) -> response`, in `handlers/` under the stem of its message. It may return

- the response, which leaves at once;
- a `Later`, which it completes when a long poll or an acknowledgement is through (later requests of the connection are
  worked on meanwhile);
- None, for a request that gets no response (Produce with acks=0);
- a coroutine, for the slow roads: then its connection waits for it, as Kafka's clients expect of admin calls.

A plain function sees the receive buffer itself: nothing of the request's bytes may be kept once it has returned. An
`async def`, and a function whose module says `KEEPS_REQUEST = True`, gets a copy. A client's mistake costs one line of
the log, one counter and at most that client's connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.broker import handlers
from barnabas.core import logs
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.compiler import codec
from barnabas.wire.headers import UnknownApi, decode_request_header, response_head
from barnabas.wire.primitives import DecodeError
from barnabas.wire.registry import API_KEYS, api
from barnabas.wire.schema import table_of

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.metrics import Histogram, Metrics
    from barnabas.net.server import Connection, Slot
    from barnabas.wire.frames import FrameError

R = TypeVar("R")
_API_VERSIONS = 18
_log = logs.get_logger(__name__)


class Later(Generic[R]):
    """A response that is not there yet. `on_abandoned` is called if the connection ends before it came."""

    __slots__ = ("_then", "exclusive", "on_abandoned", "response")

    def __init__(self, on_abandoned: Callable[[], object] | None = None, *, exclusive: bool = False) -> None:
        """`exclusive`: later requests of the connection wait for this one."""
        self.exclusive = exclusive
        self.on_abandoned = on_abandoned
        self.response: R | None = None
        """What came before anybody asked for it."""
        self._then: Callable[[R], None] | None = None

    def complete(self, response: R) -> None:
        if self._then is not None:
            self._then(response)
        else:
            self.response = response

    def then(self, callback: Callable[[R], None]) -> None:
        if self.response is not None:
            callback(self.response)
        else:
            self._then = callback


def after(answer: R | Later[R], change: Callable[[R], R]) -> R | Later[R]:
    """An answer, changed before it leaves."""
    if not isinstance(answer, Later):
        return change(answer)
    changed: Later[R] = Later(answer.on_abandoned, exclusive=answer.exclusive)
    answer.then(lambda response: changed.complete(change(response)))
    return changed


class Context:
    """What a handler knows besides its request; `route`, `correlation_id` and `started` are the dispatcher's."""

    __slots__ = ("broker", "client_id", "connection", "correlation_id", "route", "started", "version")

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        version: int,
        client_id: str | None,
        route: Route,
        correlation_id: int,
        started: float,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.version = version
        self.client_id = client_id
        self.route = route
        self.correlation_id = correlation_id
        self.started = started

    @property
    def client_host(self) -> str:
        """The client's address as group descriptions tell it."""
        return "/" + self.connection.peer.rpartition(":")[0]

    @property
    def listener(self) -> str:
        """The name of the listener that the request came in on."""
        return self.connection.listener


class Route:
    """How one version of one API is decoded, handled, encoded and counted; made on first use."""

    __slots__ = ("copies_frame", "decode", "encode", "handle", "has_error_code", "head", "key", "latencies", "version")

    def __init__(self, key: int, version: int, latencies: Histogram) -> None:
        messages = api(key)
        self.key = key
        self.version = version
        self.decode: Callable[[memoryview, int], tuple[Any, int]] = codec(messages.request, version).decode
        self.encode: Callable[[Any, bytes], list[Any]] = codec(messages.response, version).encode
        self.head = response_head(key, version)
        self.handle, keeps_request = handlers.load(key)
        self.copies_frame = keeps_request or iscoroutinefunction(self.handle)
        self.has_error_code = any(field.name == "error_code" for field in table_of(messages.response))
        self.latencies = latencies


class Dispatcher:
    """The `serve` of a broker's server."""

    def __init__(self, broker: Broker, metrics: Metrics, monotonic: Callable[[], float]) -> None:
        self._broker = broker
        self._metrics = metrics
        self._monotonic = monotonic
        self._routes: dict[tuple[int, int], Route] = {}
        self._tasks: dict[asyncio.Task[None], Coroutine[Any, Any, Any]] = {}

    def serve(self, connection: Connection, frame: memoryview) -> None:
        started = self._monotonic()
        key = version = -1
        try:
            key, version, correlation_id, client_id, position = decode_request_header(frame)
            route = self._routes.get((key, version)) or self._route(key, version, correlation_id)
            if route.copies_frame:
                frame = memoryview(bytes(frame))
            request, _ = route.decode(frame, position)
        except UnknownApi as unknown:
            if unknown.api_key == _API_VERSIONS:
                self._refuse_api_versions(connection, unknown)
            else:
                self._client_mistake(connection, f"unknown or unserved API: {unknown}")
            return
        except DecodeError as error:
            self._client_mistake(connection, f"malformed request: {error}")
            return
        except Exception:
            self._own_mistake(connection, key, version)
            return
        context = Context(self._broker, connection, version, client_id, route, correlation_id, started)
        try:
            response = route.handle(request, context)
        except Exception:
            self._own_mistake(connection, key, version)
            return
        if type(response) is Later:
            slot = connection.defer(exclusive=response.exclusive)
            slot.on_abandoned = response.on_abandoned
            response.then(lambda ready: slot.reply([] if ready is None else self._encode(ready, context)))
        elif type(response) is CoroutineType:
            slot = connection.defer(exclusive=True)
            task = asyncio.ensure_future(self._run(response, context, slot))
            self._tasks[task] = response
            task.add_done_callback(self._tasks.pop)
        elif response is not None:
            connection.reply(self._encode(response, context))
        else:
            route.latencies.observe(self._monotonic() - started)

    async def _run(self, handling: Coroutine[Any, Any, Any], context: Context, slot: Slot) -> None:
        key = context.route.key
        try:
            response = await handling
        except KafkaError as error:
            # Refused as a whole, such as by a controller that is stopping; the client asks another broker.
            _log.client_mistake("request refused", api=api(key).name, peer=context.connection.peer, problem=str(error))
            context.connection.close("refused")
            return
        except Exception:
            self._own_mistake(context.connection, key, context.version)
            return
        slot.reply(self._encode(response, context))

    def _encode(self, response: Any, context: Context) -> list[Any]:
        """The parts of a reply. This also runs where others are waited for, so a failure must not get out of here."""
        route = context.route
        try:
            parts = route.encode(response, route.head(context.correlation_id))
        except Exception:
            self._own_mistake(context.connection, route.key, route.version)
            return []
        route.latencies.observe(self._monotonic() - context.started)
        if route.has_error_code and response.error_code:
            self._metrics.error(route.key, response.error_code)
        return parts

    def _route(self, key: int, version: int, correlation_id: int) -> Route:
        lowest, highest = handlers.SERVED.get(key) or handlers.BETWEEN_BROKERS.get(key, (0, -1))
        if not max(lowest, api(key).min_version) <= version <= highest:
            raise UnknownApi(key, version, correlation_id)
        route = self._routes[key, version] = Route(key, version, self._metrics.latencies(key, version))
        return route

    def _refuse_api_versions(self, connection: Connection, unknown: UnknownApi) -> None:
        """A newer client learns in version 0 which versions there are, and asks again (KIP-511)."""
        correlation_id = unknown.correlation_id
        route = self._routes.get((_API_VERSIONS, 0)) or self._route(_API_VERSIONS, 0, correlation_id)
        context = Context(self._broker, connection, 0, None, route, correlation_id, self._monotonic())
        response = route.handle(None, context)
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        connection.reply(self._encode(response, context))

    def bad_frame(self, connection: Connection, error: FrameError) -> None:
        self._metrics.client_mistakes += 1
        _log.client_mistake("bad frame", peer=connection.peer, listener=connection.listener, problem=str(error))

    def _client_mistake(self, connection: Connection, problem: str) -> None:
        self._metrics.client_mistakes += 1
        _log.client_mistake("bad request", peer=connection.peer, listener=connection.listener, problem=problem)
        connection.close("bad request")

    def _own_mistake(self, connection: Connection, key: int, version: int) -> None:
        self._metrics.unhandled_errors += 1
        name = API_KEYS[key].name if key in API_KEYS else "unknown"
        _log.exception("request failed", api=name, version=version, peer=connection.peer)
        connection.close("internal error")

    async def close(self) -> None:
        """Let admin calls that are under way end, or end them."""
        under_way = dict(self._tasks)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        for handling in under_way.values():
            handling.close()  # a task that is cancelled before its first step never began it
